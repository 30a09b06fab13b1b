import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { SharedDatabaseOptions } from '../../../src/server/server-options.ts';
import { PortClaim } from '../../harness/port-claim.ts';
import { stopProcess } from '../../harness/stop-process.ts';

const SCRIPT = fileURLToPath(new URL('./server-process.mjs', import.meta.url));

export interface ServerProcessOptions {
  readonly dataDirectory: string;
  readonly publicOrigin: string;
  /** The directory of the object store, or the URL of an S3 store. */
  readonly objects: string;
  readonly database: SharedDatabaseOptions;
}

/** A server of several in a process of its own: the built one, with shorter leases and parts than `cfs serve` has. */
export class ServerProcess {
  readonly #options: ServerProcessOptions;
  readonly #claim: PortClaim;
  readonly #environment: Readonly<Record<string, string>>;
  #child: ChildProcess | null = null;

  private constructor(options: ServerProcessOptions, claim: PortClaim, environment: Readonly<Record<string, string>>) {
    this.#options = options;
    this.#claim = claim;
    this.#environment = environment;
  }

  /** @param environment for the keys of an S3 store */
  static async start(
    options: ServerProcessOptions,
    environment: Readonly<Record<string, string>> = {},
  ): Promise<ServerProcess> {
    const server = new ServerProcess(options, await PortClaim.make(), environment);
    await server.restart();
    return server;
  }

  get port(): number {
    return this.#claim.port;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** The most memory that it had: `VmHWM` of proc(5). */
  get peakBytes(): number {
    const status = readFileSync(`/proc/${this.#child?.pid}/status`, 'utf8');
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
  }

  /** Starts the server again, at the same port, after `kill`. */
  async restart(): Promise<void> {
    const options = JSON.stringify({ ...this.#options, listen: { port: this.port } });
    const child = spawn(process.execPath, [SCRIPT, options], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...this.#environment },
    });
    this.#child = child;
    const line = once(createInterface(child.stdout), 'line');
    const ended = once(child, 'exit').then(([code]) => {
      throw new Error(`a server ended with ${code} before it listened`);
    });
    ended.catch(() => {});
    await Promise.race([line, ended]);
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = null;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }

  async close(): Promise<void> {
    await this.kill();
    await this.#claim.release();
  }

  /** SIGSTOP. */
  async stop(): Promise<void> {
    await stopProcess(this.#child?.pid as number);
  }

  continue(): void {
    this.#child?.kill('SIGCONT');
  }
}

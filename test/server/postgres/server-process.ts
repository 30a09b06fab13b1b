import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { SharedDatabaseOptions } from '../../../src/server/server-options.ts';
import { PortClaim } from '../../harness/port-claim.ts';
import { stopProcess } from '../../harness/stop-process.ts';

const SCRIPT = fileURLToPath(new URL('./server-process.mjs', import.meta.url));

export interface ServerProcessOptions {
  readonly dataDirectory: string;
  readonly publicOrigin: string;
  /** The directory of the object store. */
  readonly objects: string;
  readonly database: SharedDatabaseOptions;
}

/** A server of several in a process of its own: the built one, with shorter leases and parts than `cfs serve` has. */
export class ServerProcess {
  readonly #options: ServerProcessOptions;
  readonly #claim: PortClaim;
  #child: ChildProcess | null = null;

  private constructor(options: ServerProcessOptions, claim: PortClaim) {
    this.#options = options;
    this.#claim = claim;
  }

  static async start(options: ServerProcessOptions): Promise<ServerProcess> {
    const server = new ServerProcess(options, await PortClaim.make());
    await server.restart();
    return server;
  }

  get port(): number {
    return this.#claim.port;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts the server again, at the same port, after `kill`. */
  async restart(): Promise<void> {
    const options = JSON.stringify({ ...this.#options, listen: { port: this.port } });
    const child = spawn(process.execPath, [SCRIPT, options], { stdio: ['ignore', 'pipe', 'inherit'] });
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

import { type ChildProcess, execFileSync, fork, spawn } from 'node:child_process';
import { mkdtempSync, rmdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { systemClock } from '../../src/base/clock.ts';
import { mountOn } from '../../src/kernel/mount-table.ts';
import type { HostCommand, HostOptions, HostState } from './memory-mount-host.ts';

/** Where the hosts lie as JavaScript that child processes can run. */
export function compiledSources(addon: 'plain' | 'sanitized' = 'plain'): string {
  const script = fileURLToPath(new URL('./compile-sources.mjs', import.meta.url));
  return execFileSync(process.execPath, [script, addon], { encoding: 'utf8' });
}

/** An empty folder to mount on. */
export function makeMountPoint(): string {
  return mkdtempSync(join(tmpdir(), 'cfs-kernel-'));
}

type Message = {
  readonly mounted?: object;
  readonly failed?: string;
  readonly ended?: 'unmounted' | 'aborted';
  readonly destroyed?: boolean;
  readonly id?: number;
  readonly result?: unknown;
  readonly error?: string;
};

/** A process that serves a MemoryFileSystem; the test drives it, and never touches the mount by itself. */
export class MountDriver {
  readonly directory: string;
  readonly process: ChildProcess;
  /** How the mount ended; null when the process ended without saying so. */
  readonly ended: Promise<{ how: 'unmounted' | 'aborted'; destroyed: boolean } | null>;
  readonly exited: Promise<number | null>;
  #log = '';
  #nextId = 1;
  readonly #waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();

  /** @throws Error with the sentence that the mount was refused with */
  static async start(
    options: Omit<HostOptions, 'mount'> & { mount?: Partial<HostOptions['mount']> } = {},
  ): Promise<MountDriver> {
    const directory = options.mount?.directory ?? makeMountPoint();
    const all: HostOptions = { ...options, mount: { ...options.mount, directory } };
    const driver = new MountDriver(all);
    await driver.#mounted;
    return driver;
  }

  readonly #mounted: Promise<void>;

  private constructor(options: HostOptions) {
    this.directory = options.mount.directory;
    const sanitizer = process.env.CFS_TEST_SANITIZER;
    const sources = compiledSources(sanitizer === undefined ? 'plain' : 'sanitized');
    this.process = fork(join(sources, 'test/kernel/memory-mount-host.js'), [JSON.stringify(options)], {
      execArgv: ['--enable-source-maps'],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: { ...process.env, ...(sanitizer !== undefined && { LD_PRELOAD: sanitizer }) },
    });
    this.process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#log += text;
    });
    let said: (message: { how: 'unmounted' | 'aborted'; destroyed: boolean } | null) => void;
    this.ended = new Promise((resolve) => {
      said = resolve;
    });
    this.exited = new Promise((resolve) => {
      this.process.on('exit', (code, signal) => {
        said(null);
        const how = `the host has ended (${signal ?? code}): ${this.#log}`;
        for (const { reject } of this.#waiting.values()) reject(new Error(how));
        // For scripts/test-native-asan.mjs, which looks for reports.
        const reports = process.env.CFS_TEST_REPORTS;
        if (reports !== undefined && this.#log !== '')
          writeFileSync(join(reports, `stderr.${this.process.pid}`), this.#log);
        resolve(code);
      });
    });
    this.#mounted = new Promise((resolve, reject) => {
      this.process.on('exit', () => reject(new Error(`the host ended before it mounted: ${this.#log}`)));
      this.process.on('message', (message: Message) => {
        if (message.mounted !== undefined) resolve();
        else if (message.failed !== undefined) reject(new Error(message.failed));
        else if (message.ended !== undefined) said({ how: message.ended, destroyed: message.destroyed ?? false });
        else if (message.id !== undefined) this.#settle(message.id, message);
      });
    });
  }

  #settle(id: number, message: Message): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (message.error === undefined) waiting?.resolve(message.result);
    else waiting?.reject(new Error(message.error));
  }

  /** What the host wrote to standard error: log lines, and crashes. */
  get log(): string {
    return this.#log;
  }

  do(command: HostCommand): Promise<unknown> {
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.process.send({ id, command });
    });
  }

  state(): Promise<HostState> {
    return this.do({ do: 'state' }) as Promise<HostState>;
  }

  /** Waits until the state is as wanted. */
  async until(wanted: (state: HostState) => boolean, what: string): Promise<HostState> {
    const end = performance.now() + 60_000;
    for (;;) {
      const state = await this.state();
      if (wanted(state)) return state;
      if (performance.now() > end) throw new Error(`waited in vain until ${what}: ${JSON.stringify(state)}`);
      // The process that is asked is the one that is to get on.
      await systemClock.sleep(10);
    }
  }

  /** A path on the mount. */
  path(name: string): string {
    return join(this.directory, name);
  }

  /** Unmounts and waits for the process; whatever is left is cleared away. */
  async stop(): Promise<void> {
    if (mountOn(this.directory) !== null) await run('fusermount3', ['-uz', this.directory]);
    const killed = setTimeout(() => this.process.kill('SIGKILL'), 5000);
    await this.exited;
    clearTimeout(killed);
    if (mountOn(this.directory) !== null) await run('fusermount3', ['-uz', this.directory]);
    try {
      rmdirSync(this.directory);
    } catch {
      // Not empty: a test that mounted over something.
    }
  }
}

export interface Finished {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program in a process of its own; it is killed when it takes longer than `limitMs`. */
export function run(command: string, args: readonly string[], limitMs = 30_000): Promise<Finished> {
  return started(command, args, limitMs).finished;
}

/** Starts a program; `finished` as in `run`. */
export function started(
  command: string,
  args: readonly string[],
  limitMs = 30_000,
): { child: ChildProcess; finished: Promise<Finished> } {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: limitMs, killSignal: 'SIGKILL' });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const finished = new Promise<Finished>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  return { child, finished };
}

/** A shell script on the mount. @throws Error when it fails */
export async function shell(script: string, limitMs?: number): Promise<string> {
  const { code, signal, stdout, stderr } = await run('sh', ['-euc', script], limitMs);
  if (code !== 0) throw new Error(`sh: ${signal ?? code}: ${stderr}${stdout}`);
  return stdout;
}

/** JavaScript in a process of its own, with `fs`, `path` and `D` (the mount's directory); what it returns, as JSON. */
export async function script<T = unknown>(directory: string, body: string, limitMs?: number): Promise<T> {
  const code = `const fs=require('fs'),path=require('path'),D=${JSON.stringify(directory)};
const errno=(f)=>{try{f();return 'none'}catch(e){return e.code??String(e)}};
Promise.resolve((async()=>{${body}})()).then(v=>process.stdout.write(JSON.stringify(v??null)),e=>{console.error(e);process.exit(1)})`;
  const finished = await run(process.execPath, ['-e', code], limitMs);
  if (finished.code !== 0) throw new Error(`script: ${finished.signal ?? finished.code}: ${finished.stderr}`);
  return JSON.parse(finished.stdout) as T;
}

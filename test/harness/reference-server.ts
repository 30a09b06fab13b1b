import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { vi } from 'vitest';
import type { FaultRule } from '../../src/server/fault-plan.ts';
import { openAdministration } from '../../src/server/local-back-end.ts';
import { PortClaim } from './port-claim.ts';
import { ServerReader, type SignIn } from './server-reader.ts';
import { stopProcess } from './stop-process.ts';

const CFS = new URL('../../dist/cli/cfs.js', import.meta.url).pathname;
const START_MS_MAX = 60_000;
const LOG_CHARACTERS_MAX = 200_000;

interface Started {
  readonly child: ChildProcess;
  /** What it printed, the end of it; grows. */
  readonly log: Log;
}

interface Log {
  text: string;
  /** `METHOD path`, tokens taken out. */
  readonly requests: string[];
}

/** `cfs serve` in a child process, with its data in a temporary directory and one user. */
export class ReferenceServer {
  readonly data: string;
  readonly account: SignIn;
  readonly #flags: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  readonly #listens: string;
  readonly #claim: PortClaim;
  #child: ChildProcess;
  #log: Log;
  #asked = 0;

  private constructor(
    data: string,
    account: SignIn,
    how: { flags: readonly string[]; env: Readonly<Record<string, string>>; listens: string; claim: PortClaim },
    started: Started,
  ) {
    const { flags, env, listens, claim } = how;
    this.#env = env;
    this.#listens = listens;
    this.#claim = claim;
    this.data = data;
    this.account = account;
    this.#flags = flags;
    this.#child = started.child;
    this.#log = started.log;
  }

  /**
   * @param flags further flags of `cfs serve`; `env` beside that of the tests, in every life; `name`: the host in its URLs, to be looked
   * up by whoever speaks to it (not by `reader`)
   */
  static async start(
    flags: readonly string[] = [],
    env: Readonly<Record<string, string>> = {},
    name: string | null = null,
  ): Promise<ReferenceServer> {
    const data = await mkdtemp(path.join(tmpdir(), 'cfs-server-'));
    const claim = await PortClaim.make();
    try {
      const local = await addUser(data, claim.port);
      const account = name === null ? local : { ...local, url: local.url.replace('127.0.0.1', name) };
      const all = name === null ? flags : [...flags, '--public-origin', account.url];
      const started = await listen(data, all, env);
      return new ReferenceServer(data, account, { flags: all, env, listens: local.url, claim }, started);
    } catch (error) {
      await claim.release();
      throw error;
    }
  }

  /** What the service has, read directly. */
  get reader(): ServerReader {
    return new ServerReader(this.account, this.#listens);
  }

  /** What the server printed, the end of it. */
  get log(): string {
    return this.#log.text;
  }

  /** What it was asked since it began, in order, as `METHOD path`; only of one that was started with `--log-level debug`. */
  get requests(): readonly string[] {
    return this.#log.requests;
  }

  /** The same, up to now: what is answered is logged, and read here, a moment later. */
  async requestsSoFar(): Promise<readonly string[]> {
    // No mount requests albums. The log shows paths of known resources only.
    const last = `/album/:sc:1:${++this.#asked}`;
    await fetch(this.#listens + last);
    const isLast = (request: string): boolean => request.endsWith(last);
    await vi.waitUntil(() => this.requests.some(isLast), { timeout: START_MS_MAX });
    return this.requests.filter((request) => !request.includes(' /album/'));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Whether its process runs. */
  get isAlive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Ends it without a chance to tidy up. */
  async kill9(): Promise<void> {
    await ended(this.#child, 'SIGKILL');
  }

  /** Starts it again on the same port with the same data. */
  async restart(): Promise<void> {
    const started = await listen(this.data, this.#flags, this.#env);
    this.#child = started.child;
    this.#log = started.log;
  }

  /** Trouble from now on, counted anew; none for an empty plan. Lasts over a restart. Resolves when it holds. */
  async setFaults(rules: readonly FaultRule[]): Promise<void> {
    const log = this.#log;
    await writeFile(faultFileOf(this.data), JSON.stringify(rules));
    log.text = '';
    this.#child.kill('SIGHUP');
    await vi.waitUntil(() => log.text.includes(`fault rules loaded: ${rules.length}`), { timeout: START_MS_MAX });
  }

  /** Freezes it: connections stay open and nothing is answered. */
  async pause(): Promise<void> {
    await stopProcess(this.pid);
  }
  resume(): void {
    this.#child.kill('SIGCONT');
  }

  async dispose(): Promise<void> {
    this.resume();
    await ended(this.#child, 'SIGKILL');
    await rm(this.data, { recursive: true, force: true });
    await rm(faultFileOf(this.data), { force: true });
    await this.#claim.release();
  }
}

/**
 * A user of a new server, which is to have that port. What `cfs serve user add` does, which has its own tests, but for the work of
 * guessing the password: whoever looks at the service signs in each time.
 */
async function addUser(data: string, port: number): Promise<SignIn> {
  const [username, password] = ['someone@example.com', 'a password of some length'];
  const { administration, reserve, close } = await openAdministration({ dataDirectory: data });
  try {
    await administration.addUser(username, password, { scryptCost: 2 ** 10 });
    const application = await administration.addApplication('cfs-mount');
    return { url: reserve(port), username, password, application, ...(await administration.addKeyPair(username)) };
  } finally {
    await close();
  }
}

/** Listens on the port that was chosen for these data; resolves when it does. */
async function listen(data: string, flags: readonly string[], env: Readonly<Record<string, string>>): Promise<Started> {
  const faultFile = faultFileOf(data);
  if (!existsSync(faultFile)) await writeFile(faultFile, '[]');
  const child = spawn(process.execPath, [CFS, 'serve', '--data', data, '--fault-file', faultFile, ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  });
  const atExit = () => child.kill('SIGKILL');
  process.once('exit', atExit);
  child.once('exit', () => process.removeListener('exit', atExit));
  const log: Log = { text: '', requests: [] };
  createInterface(child.stderr).on('line', (line) => {
    const [, method, path] = /"method":"(\w+)","path":"([^"]+)".*"msg":"request"/.exec(line) ?? [];
    if (method !== undefined) log.requests.push(`${method} ${path}`);
  });
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`the server did not listen within ${START_MS_MAX} ms: ${log.text}`));
    }, START_MS_MAX);
    const told = (text: Buffer): void => {
      log.text = `${log.text}${text}`.slice(-LOG_CHARACTERS_MAX);
      if (!log.text.includes('listening on ')) return;
      clearTimeout(timer);
      resolve();
    };
    child.stdout.on('data', told);
    child.stderr.on('data', told);
    child.once('exit', (code) => {
      clearTimeout(timer);
      reject(new Error(`the server ended with ${code}: ${log.text}`));
    });
  });
  return { child, log };
}

async function ended(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill(signal);
  await exit;
}

/** Beside the data, not among them: nothing of it is the server's. */
function faultFileOf(data: string): string {
  return `${data}.faults.json`;
}

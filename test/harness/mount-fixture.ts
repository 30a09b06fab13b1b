import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { vi } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { processLife } from '../../src/base/process-life.ts';
import { cfsMountProgram } from '../../src/cli/cfs-mount-program.ts';
import type { CommandOutput } from '../../src/cli/command-output.ts';
import { syncCommand } from '../../src/cli/commands/sync.ts';
import { umountCommand } from '../../src/cli/commands/umount.ts';
import { mountCommand } from '../../src/cli/launch/mount-command.ts';
import { type Paths, pathsOf } from '../../src/config/paths.ts';
import type { Status } from '../../src/control/status-model.ts';
import { accountFileOf, writeAccountFile } from '../../src/mount/account-file.ts';
import { accountStates } from '../../src/mount/running-mounts.ts';
import { type CommandOptions, type CommandResult, NOT_FOR_PROGRAMS, runCommand, runScript } from './command.ts';
import type { Ground } from './ground.ts';
import { ReferenceServer } from './reference-server.ts';

const DIST = process.env.CFS_TEST_DIST ?? new URL('../../dist/cli/', import.meta.url).pathname;
/** Loaded into the mounting process before all else: the sanitizer's library, when `test-native-asan.mjs` runs us. */
const SANITIZER = process.env.CFS_TEST_SANITIZER;
const CFS = path.join(DIST, 'cfs.js');
const MOUNT = path.join(DIST, '../mount/mounting-process.cjs');
const SYNC_MS_MAX = 180_000;
const GONE_MS_MAX = 60_000;
/** In user-mode Linux, a process takes up to half a minute to start. */
const CONTINUED_MS_MAX = 180_000;
const LOG_LINES_SHOWN = 60;

type CommandDeps = CommandOutput & { readonly paths: Paths; readonly clock: Clock };

/** Whether mounts can be tested here; null when they can, else what is missing. @throws Error under CFS_REQUIRE_FUSE=1 */
export function missingForMounts(): string | null {
  const missing = !existsSync('/dev/fuse')
    ? '/dev/fuse'
    : spawnSync('sh', ['-c', 'command -v fusermount3'], { stdio: 'ignore' }).status !== 0
      ? 'fusermount3'
      : null;
  if (missing !== null && process.env.CFS_REQUIRE_FUSE === '1') {
    throw new Error(`CFS_REQUIRE_FUSE=1, and there is no ${missing}`);
  }
  return missing;
}

/**
 * A mount of the built program with everything of its own: a server (shared where given), XDG directories, an account, a
 * directory. The test process never touches the directory: `run` and `cfs` are child processes with time limits. What `cfs sync`,
 * `cfs status` and `cfs umount` do is a question to the control socket, and `cfs-mount` starts the process that mounts: done from here
 * that costs a tenth of a start of Node.
 */
export class MountFixture implements Ground {
  readonly server: ReferenceServer;
  readonly directory: string;
  readonly #home: string;
  readonly #ownsServer: boolean;
  readonly #flags: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  /** Process that answers the kernel; null while nothing is mounted. */
  #pid: number | null = null;
  readonly #stores: MountFixture[] = [];
  readonly #atExit = () => this.#detach();

  private constructor(
    server: ReferenceServer,
    home: string,
    ownsServer: boolean,
    options: { flags?: readonly string[]; env?: Readonly<Record<string, string>> },
  ) {
    this.server = server;
    this.#home = home;
    this.directory = path.join(home, 'mnt');
    this.#ownsServer = ownsServer;
    this.#flags = options.flags ?? [];
    this.#env = options.env ?? {};
    process.once('exit', this.#atExit);
  }

  /**
   * Server, user, login and mount.
   * @param options.flags of `cfs-mount`, `env` beside its own; `serverFlags` of `cfs serve`
   */
  static async start(
    options: {
      flags?: readonly string[];
      env?: Readonly<Record<string, string>>;
      serverFlags?: readonly string[];
      server?: ReferenceServer;
    } = {},
  ): Promise<MountFixture> {
    const server = options.server ?? (await ReferenceServer.start(options.serverFlags));
    const home = await realpath(await mkdtemp(path.join(tmpdir(), 'cfs-mount-')));
    await chmod(home, 0o755);
    const fixture = new MountFixture(server, home, options.server === undefined, options);
    try {
      for (const folder of ['mnt', 'config', 'state', 'runtime']) await mkdir(path.join(home, folder), { mode: 0o755 });
      await fixture.#signIn();
      await fixture.mount();
      return fixture;
    } catch (error) {
      const logs = await fixture.logs();
      await fixture.dispose();
      throw new Error(`${(error as Error).message}\n${logs}`, { cause: error });
    }
  }

  /** What `cfs login` does, which has its own tests: a start of Node for each mount would be a minute of `npm test`. */
  async #signIn(): Promise<void> {
    const { url, username, application, accessKeyId, privateAccessKey } = this.server.account;
    const { refreshToken, user } = await this.server.reader.session();
    const account = {
      ...{ username, application, accessKeyId, privateAccessKey, refreshToken },
      origin: url,
      userId: user.slice(user.lastIndexOf('/') + 1),
      ...(new URL(url).hostname !== '127.0.0.1' && { insecure: true as const }),
    };
    writeAccountFile(accountFileOf(pathsOf(this.env()), account), account);
  }

  /** A second mount of the same account, with an empty store. Goes with this one. */
  async freshStore(flags: readonly string[] = this.#flags): Promise<MountFixture> {
    const fixture = await MountFixture.start({ server: this.server, flags });
    this.#stores.push(fixture);
    return fixture;
  }

  /** A shell script in the mount. */
  run(script: string, options: CommandOptions = {}): Promise<CommandResult> {
    return runScript(script, { directory: this.directory, ...options });
  }

  /** `cfs` with the private directories and the account in its environment. */
  cfs(args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
    return runCommand([process.execPath, CFS, ...args], { ...options, env: { ...this.env(), ...options.env } });
  }

  /** Pushes everything that is closed and waits for exactly that. @throws Error when something is parked */
  async sync(): Promise<void> {
    const flags = { file: null, account: null, wait: true, timeoutMs: SYNC_MS_MAX };
    const { code, stdout, stderr } = await this.#command((deps) => syncCommand(deps, flags));
    if (code !== 0) throw new Error(`cfs sync ended with ${code}: ${stdout}${stderr}`);
  }

  /** What the mount says of itself; null where none answers. */
  async status(): Promise<Status | null> {
    const [account] = await accountStates(pathsOf(this.env()));
    return account?.status ?? null;
  }

  /** Mounts; returns when the mount answers. */
  async mount(flags: readonly string[] = this.#flags): Promise<void> {
    const env = {
      ...process.env,
      ...NOT_FOR_PROGRAMS,
      ...this.env(),
      ...this.#env,
      ...(SANITIZER !== undefined && { LD_PRELOAD: SANITIZER }),
    };
    let code = 1;
    const context = { env, print: () => {}, warn: () => {}, program: MOUNT };
    const program = cfsMountProgram(context, async (deps, given) => {
      code = await mountCommand(deps, given);
    });
    await program.parseAsync([this.directory, ...flags], { from: 'user' });
    if (code !== 0) throw new Error(`cfs-mount ended with ${code}`);
    this.#pid = (await this.status())?.pid ?? null;
    if (this.#pid === null) throw new Error('mounted, and no process says so');
  }

  /** Process that answers the kernel. */
  get pid(): number {
    if (this.#pid === null) throw new Error('nothing is mounted');
    return this.#pid;
  }

  /** Ends the process of the mount without a chance to tidy up, and waits until it is gone. */
  async kill9(): Promise<void> {
    const { pid } = this;
    if (processLife(pid) === 'running') process.kill(pid, 'SIGKILL');
    await this.gone();
  }

  /** With `--continuity`: kills the process that answers the kernel, and waits for the one that continues. */
  async killAndContinue(kill: (pid: number) => void = (pid) => process.kill(pid, 'SIGKILL')): Promise<void> {
    const { pid } = this;
    kill(pid);
    const next = async (): Promise<number | null> => (await this.status().catch(() => null))?.pid ?? null;
    await vi.waitUntil(
      async () => {
        const now = await next();
        if (now === null || now === pid) return false;
        this.#pid = now;
        return true;
      },
      { timeout: CONTINUED_MS_MAX, interval: 20 },
    );
  }

  /** The status of the process that continues the mount, after an upgrade. Later calls mean that process. */
  async followed(): Promise<Status> {
    const isThere = async (): Promise<Status | null> => {
      const status = await this.status().catch(() => null);
      return status === null || (status.pid !== this.#pid && status.continuity?.lastPauseMs == null) ? null : status;
    };
    const status = (await vi.waitUntil(isThere, { timeout: GONE_MS_MAX, interval: 20 })) as Status;
    this.#pid = status.pid;
    return status;
  }

  /** With `--standby=on`: waits until a second process is ready. */
  async standbyReady(): Promise<void> {
    await vi.waitUntil(async () => (await this.status().catch(() => null))?.continuity?.hasStandby === true, {
      timeout: GONE_MS_MAX,
      interval: 20,
    });
  }

  /** Waits until the process of the mount has ended, after somebody ended it. */
  async gone(): Promise<void> {
    const { pid } = this;
    await vi.waitUntil(() => processLife(pid) === 'ended', { timeout: GONE_MS_MAX, interval: 10 });
    this.#pid = null;
  }

  /** Ends the mount in order, as `cfs umount`. @returns what that says and its exit code */
  async unmount(flags: readonly '--now'[] = []): Promise<CommandResult> {
    const how = { directory: null, account: null, timeoutMs: flags.includes('--now') ? 0 : null };
    const result = await this.#command((deps) => umountCommand(deps, how));
    await this.gone();
    return result;
  }

  /** What a command does, done here; it must not look at the mount. */
  async #command(run: (deps: CommandDeps) => Promise<number>): Promise<CommandResult> {
    const output = { stdout: '', stderr: '' };
    const code = await run({
      paths: pathsOf(this.env()),
      clock: systemClock,
      print: (text) => {
        output.stdout += text;
      },
      warn: (text) => {
        output.stderr += text;
      },
      redraw: null,
    });
    return { code, ...output };
  }

  /** `fusermount3 -u`, as a person would; returns when the process has ended by itself. */
  async unmountFromOutside(): Promise<void> {
    await runCommand(['fusermount3', '-u', this.directory]);
    await this.gone();
  }

  /** SHA-256 of everything that the service has, read over HTTP without our client. */
  serverTree(): Promise<Map<string, string>> {
    return this.server.reader.digests();
  }

  /** The ends of the logs of mount and server. */
  async logs(): Promise<string> {
    const accounts = path.join(this.#home, 'state', 'cfs', 'accounts');
    const names = await readdir(accounts).catch(() => []);
    const log = (
      await Promise.all(names.map((name) => readFile(path.join(accounts, name, 'mount.log'), 'utf8').catch(() => '')))
    ).join('\n');
    return `--- mount ---\n${lastLines(log)}\n--- server ---\n${lastLines(this.server.log)}`;
  }

  /** For `onTestFailed`. */
  printLogs = async (): Promise<void> => {
    console.error(await this.logs());
  };

  /** Unmounts whatever is left, ends only what was started here, and removes everything. */
  async dispose(): Promise<void> {
    for (const store of this.#stores) await store.dispose();
    if (this.#pid !== null && processLife(this.#pid) === 'running') {
      await this.unmount(['--now']).catch(() => {});
    }
    this.#detach();
    process.removeListener('exit', this.#atExit);
    if (this.#ownsServer) await this.server.dispose();
    await rm(this.#home, { recursive: true, force: true });
  }

  /** What a process needs to find this mount: private directories, and the account. */
  env(): Readonly<Record<string, string>> {
    const { account } = this.server;
    return {
      HOME: this.#home,
      XDG_CONFIG_HOME: path.join(this.#home, 'config'),
      XDG_DATA_HOME: path.join(this.#home, 'data'),
      XDG_STATE_HOME: path.join(this.#home, 'state'),
      XDG_RUNTIME_DIR: path.join(this.#home, 'runtime'),
      CFS_URL: account.url,
      CFS_USERNAME: account.username,
      CFS_PASSWORD: account.password,
      CFS_APPLICATION: account.application,
      CFS_ACCESS_KEY_ID: account.accessKeyId,
      CFS_PRIVATE_ACCESS_KEY: account.privateAccessKey,
    };
  }

  /** The last resort, also at the exit of the test process: nothing stays mounted, no process of ours stays. */
  #detach(): void {
    if (this.#pid !== null && processLife(this.#pid) === 'running') process.kill(this.#pid, 'SIGKILL');
    this.#pid = null;
    if (readFileSync('/proc/mounts', 'utf8').includes(` ${this.directory} `)) {
      spawnSync('fusermount3', ['-uz', this.directory], { timeout: 10_000 });
    }
  }
}

function lastLines(text: string): string {
  return text.split('\n').slice(-LOG_LINES_SHOWN).join('\n');
}

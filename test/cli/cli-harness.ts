import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { accountName, accountPaths, pathsOf } from '../../src/config/paths.ts';
import { type Account, accountFileOf, writeAccountFile } from '../../src/mount/account-file.ts';
import { type CommandOptions, type CommandResult, runCommand } from '../harness/command.ts';
import { PROJECT } from '../imports.ts';

/** A home of its own for the built programs: no other run's state, configuration or sockets are seen from it. */
export class CommandHome {
  readonly directory: string;
  readonly env: Readonly<Record<string, string | undefined>>;

  constructor() {
    this.directory = realpathSync(mkdtempSync(join(tmpdir(), 'cfs-home-')));
    const below = (name: string): string => {
      mkdirSync(join(this.directory, name), { mode: 0o700 });
      return join(this.directory, name);
    };
    // What the person who runs the tests has set must not reach the programs.
    const cleared = Object.fromEntries(
      Object.keys(process.env)
        .filter((name) => name.startsWith('CFS_') || name.startsWith('VITEST') || name === 'NODE_OPTIONS')
        .map((name) => [name, undefined]),
    );
    this.env = {
      ...cleared,
      HOME: below('home'),
      XDG_CONFIG_HOME: below('config'),
      XDG_STATE_HOME: below('state'),
      XDG_RUNTIME_DIR: below('run'),
      XDG_CACHE_HOME: below('cache'),
      XDG_DATA_HOME: below('data'),
    };
  }

  /** A path in this home; nothing is made. */
  path(name: string): string {
    return join(this.directory, name);
  }

  /** Runs `cfs` or `cfs-mount` from dist/ and gives back how it ended, whatever the exit code. */
  run(program: 'cfs' | 'cfs-mount', args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
    const argv = [process.execPath, join(PROJECT, 'dist/cli', `${program}.js`), ...args];
    return runCommand(argv, { anyExitCode: true, timeoutMs: 60_000, ...options, env: { ...this.env, ...options.env } });
  }

  /** Signs in without a service: the account file as `cfs login` leaves it. */
  plantAccount(changes: Partial<Account> = {}): {
    name: string;
    storeDirectory: string;
    logFile: string;
    socketPath: string;
  } {
    const account: Account = {
      origin: 'http://127.0.0.1:9',
      userId: '17',
      username: 'ann@example.com',
      application: '/sc/1/2',
      accessKeyId: 'key',
      privateAccessKey: 'private',
      refreshToken: 'http://127.0.0.1:9/app-authorization/token',
      ...changes,
    };
    const paths = pathsOf(this.env);
    writeAccountFile(accountFileOf(paths, account), account);
    const name = accountName(account.origin, account.userId);
    return { name, ...accountPaths(paths, name) };
  }

  dispose(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

import { userInfo } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { UsageError } from '../base/errors.ts';

/**
 * The paths of all files, after the XDG base directory specification. Two runs with different XDG_* directories share nothing. Nothing is
 * created here; the first writer creates its directory with mode 0700.
 */
export interface Paths {
  /** config.toml; need not exist. */
  readonly configFile: string;
  /** One directory per account (see `accountPaths`). */
  readonly accountsDirectory: string;
  /** Default data directory of `cfs serve`. */
  readonly serverDirectory: string;
  /** Data of the embedded server of `npm start`: kept, with its port. */
  readonly demoServerDirectory: string;
  /** Parent of the control sockets; null without XDG_RUNTIME_DIR, then they lie with the account's state. */
  readonly runtimeDirectory: string | null;
}

/** The files of one account. */
export interface AccountPaths {
  readonly directory: string;
  /** Origin, user and secrets; mode 0600. */
  readonly accountFile: string;
  /** Journal, LMDB and content files. */
  readonly storeDirectory: string;
  /** The store for `--root account`: another root is another tree. */
  readonly accountStoreDirectory: string;
  readonly logFile: string;
  /** The running mount's socket; its directory has mode 0700. */
  readonly socketPath: string;
  /** The control socket of a mount that started without XDG_RUNTIME_DIR, as by fstab(5) at boot. */
  readonly bootSocketPath: string;
}

/** The stores that an account may have, one for each root; the usual one first. */
export function storeDirectories(files: AccountPaths): readonly [string, string] {
  return [files.storeDirectory, files.accountStoreDirectory];
}

/**
 * @param env the environment of the process: `XDG_CONFIG_HOME`, `XDG_STATE_HOME`, `XDG_RUNTIME_DIR`, `HOME`.
 * @throws UsageError as `homeDirectory`, where that is needed
 */
export function pathsOf(env: Readonly<Record<string, string | undefined>>): Paths {
  // The specification: a relative path in these variables is invalid and to be ignored.
  const base = (name: string): string | null => {
    const value = env[name];
    return value !== undefined && isAbsolute(value) ? value : null;
  };
  const config = join(base('XDG_CONFIG_HOME') ?? join(homeDirectory(env), '.config'), 'cfs');
  const state = join(base('XDG_STATE_HOME') ?? join(homeDirectory(env), '.local', 'state'), 'cfs');
  const runtime = base('XDG_RUNTIME_DIR');
  return {
    configFile: join(config, 'config.toml'),
    accountsDirectory: join(state, 'accounts'),
    serverDirectory: join(state, 'server'),
    demoServerDirectory: join(state, 'demo-server'),
    runtimeDirectory: runtime === null ? null : join(runtime, 'cfs'),
  };
}

/**
 * HOME. If it is unset, empty or relative, the home directory of this user in the system. `homedir()` would return a relative HOME unchanged,
 * and put keys and store into the working directory of a command.
 *
 * @param ofUser the entry of this user in the system
 * @throws UsageError if the system does not know the user (in a container), or has no directory for it (an empty field of passwd(5))
 */
export function homeDirectory(
  { HOME }: Readonly<Record<string, string | undefined>>,
  ofUser: () => { readonly homedir: string } = userInfo,
): string {
  if (HOME !== undefined && isAbsolute(HOME)) return HOME;
  let cause: unknown;
  try {
    const { homedir } = ofUser();
    if (isAbsolute(homedir)) return homedir;
  } catch (error) {
    cause = error;
  }
  throw new UsageError('there is no home directory: set HOME to one, with its whole path', 2, { cause });
}

/**
 * This user's thumbnailers: below the data directory, which desktops search before those of the system.
 *
 * @param env `XDG_DATA_HOME`, `HOME`
 * @throws UsageError as `homeDirectory`
 */
export function thumbnailersDirectory(env: Readonly<Record<string, string | undefined>>): string {
  const { XDG_DATA_HOME: data } = env;
  const isGiven = data !== undefined && isAbsolute(data);
  return join(isGiven ? data : join(homeDirectory(env), '.local', 'share'), 'thumbnailers');
}

/**
 * The thumbnails of this user's desktop (freedesktop thumbnail specification).
 *
 * @param env `XDG_CACHE_HOME`, `HOME`
 * @throws UsageError as `homeDirectory`
 */
export function thumbnailsDirectory(env: Readonly<Record<string, string | undefined>>): string {
  return join(cacheHome(env), 'thumbnails');
}

/**
 * Where a mount keeps the code that V8 compiled at an earlier start.
 *
 * @param env `XDG_CACHE_HOME`, `HOME`
 * @throws UsageError as `homeDirectory`
 */
export function compiledCodeDirectory(env: Readonly<Record<string, string | undefined>>): string {
  return join(cacheHome(env), 'cfs', 'compiled');
}

function cacheHome(env: Readonly<Record<string, string | undefined>>): string {
  const { XDG_CACHE_HOME: cache } = env;
  const isGiven = cache !== undefined && isAbsolute(cache);
  return isGiven ? cache : join(homeDirectory(env), '.cache');
}

/** @param name the account's name from `accountName`. */
export function accountPaths(paths: Paths, name: string): AccountPaths {
  const directory = join(paths.accountsDirectory, name);
  const bootSocketPath = join(directory, 'run', 'control.sock');
  return {
    directory,
    accountFile: join(directory, 'account.json'),
    storeDirectory: join(directory, 'store'),
    accountStoreDirectory: join(directory, 'store-account'),
    logFile: join(directory, 'mount.log'),
    socketPath: paths.runtimeDirectory === null ? bootSocketPath : join(paths.runtimeDirectory, name, 'control.sock'),
    bootSocketPath,
  };
}

/**
 * The name of an account's directory: server origin + user id, readable, and different for different accounts.
 * `https://api.example.com` and user 17 give `17@api.example.com`.
 */
export function accountName(origin: string, userId: string): string {
  const { protocol, host } = new URL(origin);
  const scheme = protocol === 'https:' ? '' : `${protocol.slice(0, -1)}+`;
  // Percent-encoding is injective, so two accounts never share a directory; `/` and a leading dot never get through.
  const encode = (text: string): string =>
    encodeURIComponent(text)
      .replaceAll('%3A', ':')
      .replace(/^\.+/, (dots) => '%2E'.repeat(dots.length));
  return `${encode(userId)}@${scheme}${encode(host)}`;
}

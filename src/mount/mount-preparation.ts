import { accessSync, constants, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { UsageError } from '../base/errors.ts';
import type { Options } from '../config/options.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { mountOn } from '../kernel/mount-table.ts';
import { type Account, chooseAccount } from './account-file.ts';
import { type DashOOptions, NO_DASH_O_OPTIONS } from './dash-o-options.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';
import { checkMountPoint, checkNothingNeededBelow, mountPathOf } from './mount-point.ts';
import { LAYOUTS, type MountRequest } from './mount-request.ts';
import { statusOf } from './running-mounts.ts';
import { systemBindingOf } from './system-binding.ts';

/** A mount that can be launched. */
export interface PreparedMount {
  readonly request: MountRequest;
  readonly account: Account;
}

/**
 * Checks everything that can be checked before the mounting process starts: FUSE, the account, the directory, another mount.
 *
 * @param wanted the account's name or user name; null: the only one
 * @throws UsageError naming what is wrong
 */
export async function prepareMount(
  deps: { readonly paths: Paths; readonly options: Options },
  wanted: string | null,
  place: {
    readonly directory: string;
    readonly foreground: boolean;
    readonly words?: DashOOptions;
    /** The log goes to the journal, by standard error. */
    readonly toJournal?: boolean;
    /** The options of the command line, without the account. */
    readonly flags?: readonly string[];
  },
): Promise<PreparedMount> {
  systemBindingOf(deps.options).check();
  const { name, account } = chooseAccount(deps.paths, wanted);
  const directory = await checkMountPoint(place.directory, { allowNonEmpty: deps.options.nonempty });
  await checkNotMounted(deps.paths, name);
  return { account, request: mountRequest(deps, { ...place, directory, account: name }) };
}

/** As `prepareMount`, for a mount that waits for a process. Its directory must not be accessed: that would wait, too. */
export function runningMount(
  deps: { readonly paths: Paths; readonly options: Options },
  wanted: string | null,
  place: Parameters<typeof prepareMount>[2],
): PreparedMount {
  const { name, account } = chooseAccount(deps.paths, wanted);
  const directory = mountPathOf(place.directory);
  return { account, request: mountRequest(deps, { ...place, directory, account: name }) };
}

/**
 * One account, one mount. The mounting process itself waits for a mount that is ending.
 *
 * @throws UsageError (alreadyMounted) naming the other mount point
 */
export async function checkNotMounted(paths: Paths, account: string): Promise<void> {
  const status = await statusOf(paths, account);
  if (status === null || status.phase === 'draining') return;
  // `fusermount3 -u` has just returned, and the mounting process has not noticed it yet.
  if (mountOn(status.directory) === null) return;
  const directory = visible(status.directory);
  throw new UsageError(
    `this account is already mounted at ${directory} (process ${status.pid}): run cfs umount first`,
    exitCode('alreadyMounted'),
  );
}

/**
 * The request to the mounting process. `flags.directory` is already checked; `flags.account` is the account's name.
 *
 * @throws UsageError (mountPoint) if one of these files is below the directory
 */
export function mountRequest(
  deps: { readonly paths: Paths; readonly options: Options },
  flags: {
    readonly directory: string;
    readonly account: string;
    readonly foreground: boolean;
    readonly words?: DashOOptions;
    readonly toJournal?: boolean;
    readonly flags?: readonly string[];
  },
): MountRequest {
  const files = accountPaths(deps.paths, flags.account);
  const { accountFile, bootSocketPath } = files;
  // Commands look for the socket in both directories (`running-mounts`).
  const socketPath = isUsable(deps.paths.runtimeDirectory) ? files.socketPath : bootSocketPath;
  const storeDirectory = deps.options.root === 'account' ? files.accountStoreDirectory : files.storeDirectory;
  const logFile = deps.options.logFile ?? (flags.toJournal === true ? null : files.logFile);
  const needed = [storeDirectory, accountFile, socketPath, ...(logFile === null ? [] : [logFile])];
  checkNothingNeededBelow(flags.directory, needed);
  return {
    source: flags.account,
    directory: flags.directory,
    accountFile,
    storeDirectory,
    socketPath,
    bootSocketPath,
    logFile,
    options: deps.options,
    words: flags.words ?? NO_DASH_O_OPTIONS,
    flags: flags.flags === undefined ? null : [`--account=${flags.account}`, ...flags.flags],
    foreground: flags.foreground,
    layouts: LAYOUTS,
  };
}

/**
 * Whether the directory can hold sockets. After su(1), XDG_RUNTIME_DIR is still that of the calling user (its specification: "MUST be
 * owned by the user"). An ordinary user cannot open it. A socket that root created there would stay in that user's way until the next boot.
 */
function isUsable(runtimeDirectory: string | null): boolean {
  if (runtimeDirectory === null) return false;
  const ofSession = dirname(runtimeDirectory);
  try {
    const found = statSync(ofSession, { throwIfNoEntry: false });
    if (found !== undefined) return found.uid === process.getuid?.();
    accessSync(dirname(ofSession), constants.W_OK); // it can be created
    return true;
  } catch {
    return false;
  }
}

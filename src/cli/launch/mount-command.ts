import { accessSync, constants, fstatSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import type { Options } from '../../config/options.ts';
import { accountPaths, type Paths } from '../../config/paths.ts';
import { unknownVariables } from '../../config/variables.ts';
import { callControl } from '../../control/client.ts';
import { isMtabReadable, MTAB_CURE } from '../../kernel/fusermount.ts';
import { chooseAccount } from '../../mount/account-file.ts';
import { type DashOOptions, NO_DASH_O_OPTIONS } from '../../mount/dash-o-options.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { launchMount } from '../../mount/launch.ts';
import { connectionNote, visible } from '../../mount/mount-event.ts';
import { checkFuse, checkMountPoint, checkNothingNeededBelow, mountAt } from '../../mount/mount-point.ts';
import type { MountRequest } from '../../mount/mount-request.ts';
import { statusOf } from '../../mount/running-mounts.ts';
import { ServiceManager } from './service-manager.ts';
import { SignalRelay } from './signal-relay.ts';

export interface MountFlags {
  readonly directory: string;
  readonly account: string | null;
  readonly foreground: boolean;
  readonly words: DashOOptions;
}

/**
 * `cfs-mount DIR`: checks everything that can be checked beforehand, starts the mounting process, and returns when the mount
 * answers; in the foreground, when it has ended.
 */
export async function mountCommand(
  deps: {
    paths: Paths;
    options: Options;
    env: Readonly<Record<string, string | undefined>>;
    print: (text: string) => void;
    warn: (text: string) => void;
    /** Another program that mounts, for tests. */
    program?: string;
  },
  flags: MountFlags,
): Promise<number> {
  checkFuse();
  for (const sentence of warningsFor(deps.env)) deps.warn(`cfs-mount: ${visible(sentence)}\n`);
  const { name, account } = chooseAccount(deps.paths, flags.account);
  const directory = checkMountPoint(flags.directory, { allowNonEmpty: deps.options.nonempty });
  await checkNotMounted(deps.paths, name);
  const where = visible(directory);
  const manager = ServiceManager.of(deps.env);
  const signals = new SignalRelay(() => manager?.stopping(`unmounting ${where}`));
  let stopSigns = (): void => {};
  let note: string;
  try {
    const toJournal = flags.foreground && isJournal(deps.env.JOURNAL_STREAM);
    const request = mountRequest({ ...deps, toJournal }, { ...flags, directory, account: name });
    const mount = await launchMount(request, { env: deps.env, program: deps.program });
    // In the background the mounting process is the service from now on, and this one ends.
    const isBackground = !flags.foreground && !signals.interrupted;
    note = connectionNote(mount.connection);
    manager?.ready(`mounted ${visible(account.username)} at ${where}${note}`, isBackground ? mount.pid : null);
    if (!isBackground) {
      if (manager !== null) stopSigns = giveSigns(manager, request.socketPath);
      return await signals.passTo(mount);
    }
    mount.release();
  } finally {
    stopSigns();
    signals.dispose();
  }
  deps.print(`mounted ${visible(account.username)} at ${where}${note}\n`);
  return exitCode('ok');
}

/** Warnings that do not prevent the mount. */
function warningsFor(env: Readonly<Record<string, string | undefined>>): readonly string[] {
  const warnings = [...unknownVariables(env)];
  if (process.geteuid?.() !== 0 && !isMtabReadable())
    warnings.push(`/etc/mtab is missing, so only root can unmount this mount; as root: ${MTAB_CURE}`);
  return warnings;
}

/** Whether standard error is a stream of the journal, as systemd.exec(5) has it: its device and inode are named. */
function isJournal(stream: string | undefined): boolean {
  if (stream === undefined) return false;
  const { dev, ino } = fstatSync(2);
  return stream === `${dev}:${ino}`;
}

/** Sends watchdog notifications while the mount answers at its control socket. @returns a function that stops it */
function giveSigns(manager: ServiceManager, socketPath: string): () => void {
  const { signEveryMs } = manager;
  if (signEveryMs === null) return () => {};
  const timer = setInterval(() => {
    const signal = AbortSignal.timeout(signEveryMs);
    callControl(socketPath, 'status', {}, { signal }).then(
      () => manager.alive(),
      () => {}, // without an answer no notification is sent, and the manager decides
    );
  }, signEveryMs);
  return () => clearInterval(timer);
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
  if (mountAt(status.directory) === null) return;
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
  deps: { paths: Paths; options: Options; toJournal?: boolean },
  flags: {
    readonly directory: string;
    readonly account: string;
    readonly foreground: boolean;
    readonly words?: DashOOptions;
  },
): MountRequest {
  const files = accountPaths(deps.paths, flags.account);
  const { accountFile, bootSocketPath } = files;
  // Commands look for the socket in both directories (`running-mounts`).
  const socketPath = isUsable(deps.paths.runtimeDirectory) ? files.socketPath : bootSocketPath;
  const storeDirectory = deps.options.root === 'account' ? files.accountStoreDirectory : files.storeDirectory;
  const logFile = deps.options.logFile ?? (deps.toJournal === true ? null : files.logFile);
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
    foreground: flags.foreground,
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

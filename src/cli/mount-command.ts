import { UsageError } from '../base/errors.ts';
import type { Options } from '../config/options.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { chooseAccount } from './account-file.ts';
import { exitCode } from './exit-codes.ts';
import { launchMount } from './launch.ts';
import { visible } from './mount-event.ts';
import { checkFuse, checkMountPoint } from './mount-point.ts';
import type { MountRequest } from './mount-request.ts';
import { type MountWords, NO_MOUNT_WORDS } from './mount-words.ts';
import { statusAt } from './running-mounts.ts';
import { SignalRelay } from './signal-relay.ts';

export interface MountFlags {
  readonly directory: string;
  readonly account: string | null;
  readonly foreground: boolean;
  readonly words: MountWords;
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
  },
  flags: MountFlags,
): Promise<number> {
  checkFuse(deps.env);
  const { name, account } = chooseAccount(deps.paths, flags.account);
  const directory = checkMountPoint(flags.directory, { allowNonEmpty: deps.options.nonempty });
  await checkNotMounted(deps.paths, name);
  const signals = new SignalRelay();
  try {
    const mount = await launchMount(mountRequest(deps, { ...flags, directory, account: name }));
    if (flags.foreground || signals.interrupted) return await signals.passTo(mount);
    mount.release();
  } finally {
    signals.dispose();
  }
  deps.print(`mounted ${visible(account.username)} at ${visible(directory)}\n`);
  return exitCode('ok');
}

/**
 * One account, one mount. One that is just ending is waited for by the mounting process, which takes the store over.
 *
 * @throws UsageError (alreadyMounted) saying where
 */
export async function checkNotMounted(paths: Paths, account: string): Promise<void> {
  const status = await statusAt(accountPaths(paths, account).socketPath);
  if (status === null || status.phase === 'draining') return;
  const directory = visible(status.directory);
  throw new UsageError(
    `this account is mounted already at ${directory} (process ${status.pid}): cfs umount ends that`,
    exitCode('alreadyMounted'),
  );
}

/** What the mounting process is told. `flags.directory` is checked, `flags.account` is the account's name. */
export function mountRequest(
  deps: { paths: Paths; options: Options },
  flags: {
    readonly directory: string;
    readonly account: string;
    readonly foreground: boolean;
    readonly words?: MountWords;
  },
): MountRequest {
  const files = accountPaths(deps.paths, flags.account);
  return {
    source: flags.account,
    directory: flags.directory,
    accountFile: files.accountFile,
    storeDirectory: deps.options.root === 'account' ? files.accountStoreDirectory : files.storeDirectory,
    socketPath: files.socketPath,
    logFile: deps.options.logFile ?? files.logFile,
    options: deps.options,
    words: flags.words ?? NO_MOUNT_WORDS,
    foreground: flags.foreground,
  };
}

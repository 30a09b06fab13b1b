import { UsageError } from '../base/errors.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { askStatus, NoMountError, NoRoomError } from '../control/client.ts';
import type { Status } from '../control/status-model.ts';
import { accountNames, readAccountFile } from './account-file.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';
import { mountPathOf } from './mount-point.ts';

/** A signed-in account, with the status of its mount if one is running. */
export interface AccountState {
  readonly name: string;
  readonly username: string;
  readonly origin: string;
  readonly socketPath: string;
  /** null: not mounted, or `silent`. */
  readonly status: Status | null;
  /** Set if a process accepted the request and did not answer in time. */
  readonly silent: boolean;
  /** Set if the socket belongs to another user. */
  readonly isForeign?: true;
}

export interface RunningMount extends AccountState {
  readonly status: Status;
}

/** Limit for the answer of a mount to a status request. */
const STATUS_MS_MAX = 10_000;

/** All signed-in accounts, with the state of their mounts. */
export async function accountStates(paths: Paths): Promise<readonly AccountState[]> {
  return Promise.all(
    accountNames(paths).map(async (name) => {
      const { accountFile } = accountPaths(paths, name);
      const { username, origin } = readAccountFile(accountFile);
      const { socketPath, status } = await answerOf(paths, name);
      return {
        name,
        username,
        origin,
        socketPath,
        status: typeof status === 'string' ? null : status,
        silent: status === 'silent',
        ...(status === 'foreign' ? { isForeign: true } : {}),
      };
    }),
  );
}

export async function runningMounts(paths: Paths): Promise<readonly RunningMount[]> {
  return (await accountStates(paths)).filter(isRunning);
}

/** Whether a mount of the account answers. */
export function isRunning(state: AccountState): state is RunningMount {
  return state.status !== null;
}

/**
 * The mount of a command: the one at `directory`, that of `account`, or the only one.
 *
 * @throws UsageError (notMounted, usage) if none or several match
 */
export async function chooseMount(
  paths: Paths,
  wanted: { directory: string | null; account: string | null },
): Promise<RunningMount> {
  const states = (await accountStates(paths)).filter((state) => isMeant(state, wanted.account));
  const path = wanted.directory === null ? null : mountPathOf(wanted.directory);
  const fitting = states.filter(isRunning).filter(({ status }) => path === null || status.directory === path);
  const [only, second] = fitting;
  if (only !== undefined && second === undefined) return only;
  if (second !== undefined) {
    const directories = fitting.map(({ status }) => visible(status.directory)).join(', ');
    throw new UsageError(`several mounts are running (${directories}): name the directory`);
  }
  if (wanted.directory !== null) throw noMount(states, `no cfs mount is running at ${visible(wanted.directory)}`);
  throw noMount(states, wanted.account === null ? 'no mount is running' : `${visible(wanted.account)} is not mounted`);
}

/**
 * The error if no mount answers. A mount that does not answer, or belongs to another user, may be the intended one: its directory is
 * unknown.
 */
export function noMount(states: readonly AccountState[], sentence: string): UsageError {
  const silent = states.find((state) => state.silent);
  if (silent !== undefined) {
    const who = visible(silent.username);
    return new UsageError(`the mount of ${who} does not answer: run cfs doctor`, exitCode('failure'));
  }
  const isForeign = states.some((state) => state.isForeign === true);
  const why = isForeign ? 'that mount belongs to another user: run the command as that user' : sentence;
  return new UsageError(why, exitCode('notMounted'));
}

/** Whether `--account` matches: by the account's name or by its user name. */
export function isMeant({ name, username }: AccountState, wanted: string | null): boolean {
  return wanted === null || wanted === name || wanted === username;
}

/** The status of an account's mount; null if none answers. */
export async function statusOf(paths: Paths, name: string): Promise<Status | null> {
  const { status } = await answerOf(paths, name);
  return typeof status === 'string' ? null : status;
}

/**
 * The socket at which the mount of an account answers; the default one if none does. A mount by fstab(5) at boot had no
 * XDG_RUNTIME_DIR; the session of the same user has one.
 */
async function answerOf(
  paths: Paths,
  name: string,
): Promise<{ readonly socketPath: string; readonly status: SocketAnswer }> {
  const { socketPath, bootSocketPath } = accountPaths(paths, name);
  const status = await answerAt(socketPath);
  if ((status !== null && status !== 'foreign') || bootSocketPath === socketPath) return { socketPath, status };
  const other = await answerAt(bootSocketPath);
  return other === null ? { socketPath, status } : { socketPath: bootSocketPath, status: other };
}

/** null: no process answers. */
type SocketAnswer = Status | 'silent' | 'foreign' | null;

async function answerAt(socketPath: string): Promise<SocketAnswer> {
  try {
    return await askStatus(socketPath, AbortSignal.timeout(STATUS_MS_MAX));
  } catch (error) {
    if (error instanceof NoMountError) return error.code === 'EACCES' ? 'foreign' : null;
    if (error instanceof NoRoomError || (error instanceof Error && error.name === 'TimeoutError')) return 'silent';
    throw error;
  }
}

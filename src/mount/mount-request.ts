import { closeSync, writeSync } from 'node:fs';
import type { Options } from '../config/options.ts';
import type { ConnectionStatus } from '../control/status-model.ts';
import { HANDOVER_LAYOUT } from '../kernel/keeper.ts';
import { SCHEMA_VERSION } from '../store/schema-version.ts';
import type { DashOOptions } from './dash-o-options.ts';

/**
 * What the launcher (`cfs-mount DIR`) hands to the process that mounts (`dist/mount/mounting-process.cjs`), and what that process answers.
 *
 * Down: one JSON text in the environment variable CFS_MOUNT_REQUEST. No secret is in it: it names the account file.
 * Up: one JSON line on the file descriptor named by CFS_MOUNT_READY_FD, which is then closed.
 */
export interface MountRequest {
  /** The account's name: shown as the source in /proc/mounts. */
  readonly source: string;
  /** Where to mount: absolute, an existing directory, checked by the launcher. */
  readonly directory: string;
  /** Account (origin, user, keys, refresh token): see account-file.ts. */
  readonly accountFile: string;
  /** Journal, LMDB and content files; may not exist yet. */
  readonly storeDirectory: string;
  /** The control socket; its directory is made with mode 0700 by ControlServer. */
  readonly socketPath: string;
  /** The control socket of a mount that started at boot; see `AccountPaths`. */
  readonly bootSocketPath: string;
  /** Where the log goes: `options.logFile` or the account's mount.log; null: to the journal, by standard error. */
  readonly logFile: string | null;
  readonly options: Options;
  /** The settings of `-o` that are no options. */
  readonly words: DashOOptions;
  /** The options of `cfs-mount` that start this mount again with this environment; null: `cfs-mount` did not start it. */
  readonly flags: readonly string[] | null;
  /** True: events are printed on standard output, a line each. False: nothing is printed, there is no terminal. */
  readonly foreground: boolean;
  /** With `--continuity`: the layouts of the version that mounted. A successor with others must not continue. */
  readonly layouts: Layouts;
}

/** What two versions must have in common for one to continue the mount of the other. */
export interface Layouts {
  readonly store: number;
  readonly handover: number;
}

export const LAYOUTS: Layouts = { store: SCHEMA_VERSION, handover: HANDOVER_LAYOUT };

export function haveSameLayouts(one: Layouts, other: Layouts): boolean {
  return one.store === other.store && one.handover === other.handover;
}

/** The answer of the mounting process. It reports ready after the kernel has got an answer through the mount. */
export type MountAnswer =
  | { readonly ready: true; readonly directory: string; readonly pid: number; readonly connection: ConnectionStatus }
  | { readonly ready: false; readonly error: string; readonly exitCode: number };

export const REQUEST_VARIABLE = 'CFS_MOUNT_REQUEST';
const READY_VARIABLE = 'CFS_MOUNT_READY_FD';

/** The environment of a mounting process: `request` for `readMountRequest`, `readyFd` for `answerLauncher`. */
export function mountEnvironment(request: MountRequest, readyFd: number): Record<string, string> {
  return { [REQUEST_VARIABLE]: JSON.stringify(request), [READY_VARIABLE]: String(readyFd) };
}

/** The command of a mounting process with another request than the one in the environment. */
export function commandOf(request: MountRequest, program: readonly string[]): readonly string[] {
  return ['/usr/bin/env', `${REQUEST_VARIABLE}=${JSON.stringify(request)}`, ...program];
}

/** The environment of a mounting process that continues this one's mount: it has no launcher. */
export function successorEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string | undefined>> {
  return { ...env, [READY_VARIABLE]: undefined };
}

/** The request of a launcher; null without one. */
export function readMountRequest(env: Readonly<Record<string, string | undefined>>): MountRequest | null {
  const text = env[REQUEST_VARIABLE];
  return text === undefined ? null : (JSON.parse(text) as MountRequest);
}

/**
 * Sends the outcome to the launcher. Only the first answer counts: a later one, one without a launcher, or one to a launcher
 * that is gone does nothing.
 */
export function answerLauncher(env: Record<string, string | undefined>, answer: MountAnswer): void {
  const fd = takeAnswerDescriptor(env);
  if (fd === null) return;
  try {
    writeSync(fd, `${JSON.stringify(answer)}\n`);
    closeSync(fd);
  } catch {
    // EPIPE: the launcher was killed while it waited. The mount continues without it.
  }
}

/** The descriptor on which the launcher, or `bin/cfs-mount`, waits for the outcome; null without one. No child gets the variable. */
export function takeAnswerDescriptor(env: Record<string, string | undefined>): number | null {
  const fd = Number(env[READY_VARIABLE] ?? Number.NaN);
  delete env[READY_VARIABLE];
  return Number.isInteger(fd) ? fd : null;
}

/** @returns null for a line that is not an answer (the process printed something else and died). */
export function parseMountAnswer(line: string): MountAnswer | null {
  try {
    const answer = JSON.parse(line) as Partial<MountAnswer>;
    return typeof answer.ready === 'boolean' ? (answer as MountAnswer) : null;
  } catch {
    return null;
  }
}

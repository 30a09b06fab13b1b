import { accessSync, constants, readFileSync, type Stats, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { delimiter, join } from 'node:path';

const PROGRAM = 'fusermount3';
/** fusermount3 reads the mount table from there when an ordinary user unmounts (fusermount.c, may_unmount). */
const MTAB = '/etc/mtab';
/** Creates it, as root. */
export const MTAB_CURE = `ln -s /proc/self/mounts ${MTAB}`;

const SETUID = 0o4000;
const GROUP_MAY_RUN = 0o010;

/** A fusermount3 that was found. */
export interface Fusermount {
  readonly path: string;
  /** The permission bits, with setuid. */
  readonly mode: number;
  readonly isSetuidRoot: boolean;
  /** Whether this user may run it. */
  readonly mayRun: boolean;
  /** The group whose members may run it; null where group membership makes no difference. */
  readonly group: string | null;
}

/**
 * The search path for fusermount3 and umount: the system's folders first, then those of a libfuse built from source (/usr/local), then
 * the PATH of the mounting user (NixOS: /run/wrappers/bin).
 */
export function programPath(): string {
  const own = process.env.PATH ?? '';
  return ['/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin', own].filter((part) => part !== '').join(':');
}

/** The fusermount3 that a mount runs, chosen as by execvp(3): the first that this user may run, otherwise the first. Null: not installed. */
export function findFusermount(path: string = programPath()): Fusermount | null {
  let refused: Fusermount | null = null;
  for (const directory of path.split(delimiter).filter((part) => part !== '')) {
    const found = fusermountIn(directory);
    if (found?.mayRun === true) return found;
    refused ??= found;
  }
  return refused;
}

/** Why an ordinary user cannot run fusermount3, with the fix; null if it can be run. Root needs none: it mounts by mount(2). */
export function whyNoFusermount(found: Fusermount | null): string | null {
  if (found === null) return `${PROGRAM} is not installed: apt-get install fuse3, as root`;
  if (found.mayRun) return null;
  return `${found.path} may not be run by this user (mode ${found.mode.toString(8)}): ${cureOfRefused(found)}`;
}

/** The command, to be run by root, that lets this user run it. */
export function cureOfRefused({ path, group }: Fusermount): string {
  if (group === null) return `chmod 4755 ${path}, as root`;
  return `usermod -aG ${group} ${userName()}, as root, then sign in to this machine again`;
}

/** Whether ordinary users can unmount: without the mount table, fusermount3 mounts but cannot unmount. */
export function isMtabReadable(path: string = MTAB): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/** A message of fusermount3, with the fix if it lacks the mount table. */
export function withMtabCure(said: string): string {
  return said.includes(MTAB) ? `${said}; to unmount it: ${MTAB_CURE}, as root, then try again` : said;
}

function fusermountIn(directory: string): Fusermount | null {
  const path = join(directory, PROGRAM);
  const stats = statsOf(path);
  if (stats === null || stats.isDirectory()) return null;
  const mode = stats.mode & 0o7777;
  return {
    path,
    mode,
    isSetuidRoot: stats.uid === 0 && (mode & SETUID) !== 0,
    mayRun: isAllowed(path),
    group: (mode & GROUP_MAY_RUN) === 0 ? null : groupName(stats.gid),
  };
}

/** Null also in a PATH folder that this user may not enter, as after su(1). */
function statsOf(path: string): Stats | null {
  try {
    return statSync(path);
  } catch {
    return null;
  }
}

function isAllowed(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** group(5); the number of a group without a name. */
function groupName(gid: number): string {
  try {
    const line = readFileSync('/etc/group', 'utf8')
      .split('\n')
      .find((each) => each.split(':')[2] === String(gid));
    return line?.split(':')[0] ?? String(gid);
  } catch {
    return String(gid);
  }
}

/** The number of a user without a name (uv_os_get_passwd). */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return String(process.getuid?.() ?? 0);
  }
}

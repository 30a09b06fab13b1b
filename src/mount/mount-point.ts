import { execFile, spawnSync } from 'node:child_process';
import { accessSync, constants, lstatSync, readdirSync, readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UsageError } from '../base/errors.ts';
import type { Options } from '../config/options.ts';
import { type Fusermount, findFusermount, whyNoFusermount } from '../kernel/fusermount.ts';
import { loadKernelAddon } from '../kernel/kernel-addon.ts';
import { type MountEntry, mountOn, readMountTable } from '../kernel/mount-table.ts';
import { unmountDirectory } from '../kernel/mounting.ts';
import { checkNfs } from '../nfs/system-mount.ts';
import { MOUNT_SUBTYPE } from './dash-o-options.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';

/** How long a mount may take to answer before it counts as hanging. */
const PROBE_MS_MAX = 3000;
/** path_resolution(7): more links count as a loop. */
const LINKS_MAX = 40;

/** @throws UsageError (noFuse) when no mount with this binding is possible on this system, saying what to do */
export function checkBinding({ binding }: Pick<Options, 'binding'>): void {
  if (binding === 'nfs') checkNfs();
  else checkFuse();
}

/**
 * @param whoMounts uid of this process, and the fusermount3 that it would run
 * @throws UsageError (noFuse) when no mount is possible on this system, saying what to install or load.
 */
export function checkFuse(
  whoMounts: { readonly uid: number; readonly fusermount: Fusermount | null } = {
    uid: process.geteuid?.() ?? 0,
    fusermount: findFusermount(),
  },
  platform: NodeJS.Platform = process.platform,
): void {
  const refuse = (sentence: string): never => {
    throw new UsageError(sentence, exitCode('noFuse'));
  };
  if (platform === 'darwin')
    refuse('this program has no FUSE on macOS: leave --binding out, and the mount uses NFS (experimental)');
  try {
    accessSync('/dev/fuse', constants.R_OK | constants.W_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT')
      refuse('there is no /dev/fuse here: load the module (modprobe fuse), or give the container the device');
    refuse(`/dev/fuse cannot be opened (${code})`);
  }
  const why = whoMounts.uid === 0 ? null : whyNoFusermount(whoMounts.fusermount);
  if (why !== null) refuse(why);
}

/**
 * Checks that a directory can be mounted on and returns its real path. A dead mount of ours on it is detached first.
 *
 * @throws UsageError (mountPoint, alreadyMounted) with what is wrong with it
 */
export function checkMountPoint(directory: string, options: { allowNonEmpty: boolean }): string {
  const shown = visible(directory);
  const refuse = (reason: string): never => {
    throw new UsageError(`${shown} ${reason}`, exitCode('mountPoint'));
  };
  // The mount table comes first: accessing a hanging mount would block this process too.
  detachDeadMount(mountPathOf(directory));

  let path = '';
  try {
    path = realpathSync(directory);
    if (!lstatSync(path).isDirectory()) refuse('is not a directory');
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') refuse('does not exist: create the directory first');
    if (code === 'ENOTDIR') refuse('is not a directory');
    refuse(`cannot be used (${code})`);
  }
  detachDeadMount(path); // through a symbolic link
  let entries: readonly string[] = [];
  try {
    entries = readdirSync(path);
  } catch (error) {
    refuse(`cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
  if (entries.length > 0 && !options.allowNonEmpty)
    refuse('is not empty: choose another directory, or hide its contents with --nonempty');
  return path;
}

/**
 * Rejects a directory that contains files of the mounting process: the kernel would ask it for its own store, and both would wait for
 * each other permanently, and block every process that accesses the directory.
 *
 * @param needed paths that the process uses; they need not exist
 * @throws UsageError (mountPoint) naming the first
 */
export function checkNothingNeededBelow(directory: string, needed: readonly string[]): void {
  const below = directory === '/' ? '/' : `${directory}/`;
  const hidden = needed.find((path) => `${realPathOf(path)}/`.startsWith(below));
  if (hidden === undefined) return;
  throw new UsageError(
    `${visible(directory)} cannot be a mount point: it contains ${visible(hidden)}, which the mount itself needs`,
    exitCode('mountPoint'),
  );
}

/** The real path of a path, also before it exists. */
function realPathOf(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const above = dirname(path);
    return above === path ? path : join(realPathOf(above), basename(path));
  }
}

/** Whether the mount is one of ours, alive or dead. */
export function isOurs(mount: MountEntry): boolean {
  return mount.type === `fuse.${MOUNT_SUBTYPE}`;
}

/**
 * The path under which a mount at `directory` is in the mount table, with symbolic links resolved. The mounted directory itself is not
 * accessed.
 */
export function mountPathOf(directory: string): string {
  const mounts = readMountTable();
  // Paths inside one of our mounts are not accessed either, because the mount may hang: a link there stands for itself.
  const isMounted = (path: string): boolean =>
    mounts.some((each) => path === each.directory || (isOurs(each) && path.startsWith(`${each.directory}/`)));
  let path = namedPathOf(directory);
  for (let links = 0; links < LINKS_MAX && !isMounted(path); links++) {
    const target = linkTarget(path);
    if (target === null) break;
    path = namedPathOf(resolve(dirname(path), target));
  }
  return path;
}

/** Links in the folders above are followed; the last part is taken as named, and not touched. */
export function namedPathOf(path: string): string {
  const absolute = resolve(path);
  try {
    return join(realpathSync(dirname(absolute)), basename(absolute));
  } catch {
    return absolute;
  }
}

/** null: no link. */
function linkTarget(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch {
    return null;
  }
}

/**
 * Whether a mount answers. Another process asks, so that ours cannot hang. It uses statfs(2), because the kernel answers
 * stat(2) from its cache even after the mounting process was killed.
 */
export function probeMount(path: string): MountState {
  const probe = spawnSync('stat', ['--file-system', '--', path], probeOptions());
  if (probe.status === 0) return 'alive';
  if (probe.signal !== null || probe.error !== undefined) return 'hangs';
  return stateOf(probe.stderr);
}

/** As `probeMount`, without blocking this thread. */
export function probeMountLater(path: string): Promise<MountState> {
  return new Promise((resolve) => {
    execFile('stat', ['--file-system', '--', path], probeOptions(), (error, _stdout, stderr) => {
      if (error === null) resolve('alive');
      else resolve(error.killed || typeof error.code !== 'number' ? 'hangs' : stateOf(stderr));
    });
  });
}

export type MountState = 'alive' | 'dead' | 'hangs';

function probeOptions() {
  return { encoding: 'utf8', timeout: PROBE_MS_MAX, env: { ...process.env, LC_ALL: 'C' } } as const;
}

function stateOf(stderr: string): MountState {
  return /not connected|connection abort/i.test(stderr) ? 'dead' : 'alive';
}

/**
 * Detaches a dead mount lazily.
 *
 * @returns null if the mount is gone, otherwise the reason why it is still there
 */
export function detachMount(path: string): string | null {
  try {
    unmountDirectory(path, 'lazily', loadKernelAddon());
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function detachDeadMount(path: string): void {
  for (let mount = mountOn(path); mount?.type.startsWith('fuse'); mount = mountOn(path)) {
    const shown = visible(path);
    const state = probeMount(path);
    const refuse = (sentence: string): never => {
      throw new UsageError(sentence, exitCode('alreadyMounted'));
    };
    if (state === 'hangs') refuse(`${shown} has a mount that does not answer: fusermount3 -uz ${shown} removes it`);
    if (state === 'alive') refuse(`${shown} is mounted already (${mount.source})`);
    if (!isOurs(mount))
      refuse(`a dead mount of another program (${mount.type}) is on ${shown}: fusermount3 -u ${shown} removes it`);
    const why = detachMount(path);
    if (why !== null) refuse(`a dead mount is on ${shown} and cannot be removed: ${visible(why)}`);
  }
}

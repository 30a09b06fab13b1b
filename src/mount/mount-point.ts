import { lstatSync, readdirSync, readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UsageError } from '../base/errors.ts';
import { mountOn, readMountTable } from '../kernel/mount-table.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';
import { isOurs, stateOf } from './mount-state.ts';
import { systemBindingOfMount } from './system-binding.ts';

/** path_resolution(7): more links count as a loop. */
const LINKS_MAX = 40;

/**
 * Checks that a directory can be mounted on and returns its real path. A dead mount of ours on it is detached first.
 *
 * @throws UsageError (mountPoint, alreadyMounted) with what is wrong with it
 */
export async function checkMountPoint(directory: string, options: { allowNonEmpty: boolean }): Promise<string> {
  const shown = visible(directory);
  const refuse = (reason: string): never => {
    throw new UsageError(`${shown} ${reason}`, exitCode('mountPoint'));
  };
  // The mount table comes first: accessing a hanging mount would block this process too.
  await detachDeadMount(mountPathOf(directory));

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
  await detachDeadMount(path); // through a symbolic link
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
 * Detaches dead mounts of ours. The directory is not accessed.
 *
 * @throws UsageError (alreadyMounted) for another mount that answers or hangs, or that cannot be detached
 */
async function detachDeadMount(path: string): Promise<void> {
  for (let mount = mountOn(path); mount !== null; mount = mountOn(path)) {
    const binding = systemBindingOfMount(mount);
    if (binding === null) return;
    const shown = visible(path);
    const refuse = (sentence: string): never => {
      throw new UsageError(sentence, exitCode('alreadyMounted'));
    };
    const state = await stateOf(mount);
    if (state === 'hangs') refuse(`${shown} has a mount that does not answer: ${binding.removal(shown)} removes it`);
    if (state === 'alive') {
      // Another program's NFS mount can be mounted on, as any directory.
      if (!mount.type.startsWith('fuse') && !isOurs(mount)) return;
      refuse(`${shown} is mounted already (${mount.source})`);
    }
    if (!isOurs(mount))
      refuse(`a dead mount of another program (${mount.type}) is on ${shown}: fusermount3 -u ${shown} removes it`);
    const why = await binding.detachDead(path);
    if (why !== null) refuse(`a dead mount is on ${shown} and cannot be removed: ${visible(why)}`);
  }
}

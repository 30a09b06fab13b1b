import { closeSync, fsyncSync, lstatSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { StorageError } from '../base/errors.ts';

/**
 * Creates the data directory if it does not exist, and syncs its name and those of newly created parents. Otherwise a
 * power cut could remove the directory with all acknowledged data in it.
 */
export function makeDataDirectory(directory: string): void {
  // The mode does not apply to an existing directory: the files themselves are private.
  const top = mkdirSync(directory, { recursive: true, mode: 0o700 }) ?? directory;
  const above = dirname(resolve(top));
  for (let at = resolve(directory); at !== above; at = dirname(at)) syncNow(at);
  try {
    syncNow(above);
  } catch (error) {
    // Another user's directory, with search but no read permission: typically created by root for the server's user,
    // long ago.
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error;
  }
}

/**
 * Refuses a directory in which other users can create, replace or remove names: a symbolic link there would make the
 * server change files elsewhere.
 * @throws StorageError
 */
export function refuseWritableByOthers(directory: string): void {
  if ((statSync(directory).mode & 0o022) !== 0)
    throw new StorageError(`other users can write to ${directory}: run chmod go-w on it`);
}

/** Refuses anything but a regular file of this user, or of root; a missing one is fine. @throws StorageError */
export function refuseForeignFile(path: string): void {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return;
  const self = process.geteuid?.() ?? stats.uid;
  if (!stats.isFile()) throw new StorageError(`${path} is not a regular file: it is not followed`);
  if (self !== 0 && stats.uid !== self && stats.uid !== 0)
    throw new StorageError(`${path} belongs to another user (uid ${stats.uid})`);
}

/** fsync(2) of a file or directory. */
export function syncNow(path: string): void {
  const fd = openSync(path, 'r');
  try {
    fsyncSync(fd);
  } catch (error) {
    // A directory on a read-only image (squashfs, erofs) with the data mounted inside needs no sync.
    if ((error as NodeJS.ErrnoException).code !== 'EINVAL') throw error;
  } finally {
    closeSync(fd);
  }
}

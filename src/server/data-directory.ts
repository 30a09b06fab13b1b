import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

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

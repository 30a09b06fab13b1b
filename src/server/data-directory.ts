import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/**
 * Makes the directory of the data where there is none. Its name is on the disk then, and that of each folder that was made for it: what is
 * acknowledged later, however well it is synced itself, would be gone with any of them after a power cut.
 */
export function makeDataDirectory(directory: string): void {
  // Says nothing about a directory that was there: the files keep other users of the machine out themselves.
  const top = mkdirSync(directory, { recursive: true, mode: 0o700 }) ?? directory;
  const above = dirname(resolve(top));
  for (let at = resolve(directory); at !== above; at = dirname(at)) syncNow(at);
  try {
    syncNow(above);
  } catch (error) {
    // Somebody else's, who lets us pass but not look: as root made it for a server of another user, and long ago as a rule.
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error;
  }
}

/** fsync(2) of a file or a directory, whoever wrote it. */
export function syncNow(path: string): void {
  const fd = openSync(path, 'r');
  try {
    fsyncSync(fd);
  } catch (error) {
    // Nothing there is ever to be synced: a directory of an image that is only read (squashfs, erofs), with the data mounted in it.
    if ((error as NodeJS.ErrnoException).code !== 'EINVAL') throw error;
  } finally {
    closeSync(fd);
  }
}

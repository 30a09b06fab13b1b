import { statfsSync } from 'node:fs';

/**
 * Free bytes of the file system of `directory` for unprivileged programs (statfs(2) f_bavail); null if it cannot be
 * queried.
 */
export function freeBytesOf(directory: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize;
  } catch {
    return null;
  }
}

import { statfsSync } from 'node:fs';

/** What the file system under `directory` has left for a program of ours (statfs(2) f_bavail); null where it cannot be asked. */
export function freeBytesOf(directory: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize;
  } catch {
    return null;
  }
}

import { statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';

const MEMORY = '/dev/shm';
/** More than all tests that use it leave there at once. A container may have 64 MiB. */
const ROOM_BYTES = 2 * 1024 ** 3;

/** Where syncing costs nothing: memory, if there is room. */
export const FAST_DISK = memoryHasRoom() ? MEMORY : tmpdir();

function memoryHasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY);
    return bavail * bsize >= ROOM_BYTES;
  } catch {
    return false;
  }
}

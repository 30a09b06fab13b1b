import { join } from 'node:path';
import { StorageError } from '../base/errors.ts';
import type { Disk } from './disk.ts';

/** Enough for the owner lock, two journal files and the pages that LMDB writes for some deletions. */
const ROOM_BYTES = 512 * 1024;
const PIECE_BYTES = 64 * 1024;

/**
 * Disk space that the store keeps allocated, so that a start on a full disk can mount the cached files and accept deletions. A start frees
 * as much as it needs and takes it immediately for its own files. The file is refilled when the disk has space.
 *
 * Another program may take the freed space in between. The start then continues without a journal file.
 */
export class StartRoom {
  readonly #path: string;
  readonly #disk: Disk;
  readonly #wantedBytes: number;

  /** @param segmentBytes size of a journal file: the room is never larger */
  constructor(directory: string, disk: Disk, segmentBytes: number) {
    this.#path = join(directory, 'start-room');
    this.#disk = disk;
    this.#wantedBytes = Math.min(ROOM_BYTES, segmentBytes);
  }

  /** Frees up to `sizeBytes`. @returns false if nothing is left. Never throws */
  give(sizeBytes: number): boolean {
    try {
      return this.#withFile((fd) => {
        const heldBytes = this.#disk.sizeBytes(fd);
        if (heldBytes > 0) this.#disk.truncate(fd, Math.max(0, heldBytes - sizeBytes));
        return heldBytes > 0;
      });
    } catch {
      return false;
    }
  }

  /** Allocates the missing part, as far as the disk has space. Never throws. */
  refill(): void {
    try {
      this.#withFile((fd) => {
        const zeros = new Uint8Array(PIECE_BYTES);
        for (let at = this.#disk.sizeBytes(fd); at < this.#wantedBytes; at += PIECE_BYTES)
          this.#disk.write(fd, zeros.subarray(0, Math.min(PIECE_BYTES, this.#wantedBytes - at)), at);
      });
    } catch {
      // Tried again at a later start or end of the store.
    }
  }

  #withFile<T>(act: (fd: number) => T): T {
    const fd = this.#opened();
    try {
      return act(fd);
    } finally {
      this.#disk.close(fd);
    }
  }

  #opened(): number {
    try {
      return this.#disk.open(this.#path, 'write');
    } catch (error) {
      const isMissing = error instanceof StorageError && (error.cause as NodeJS.ErrnoException)?.code === 'ENOENT';
      if (!isMissing) throw error;
      return this.#disk.open(this.#path, 'create');
    }
  }
}

import { StorageError } from '../../src/base/errors.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';

/** A disk that has no room from its n-th step on that needs some, until somebody makes room. */
export class FillingDisk {
  /** Steps so far that needed room. */
  steps = 0;
  /** Number of the first step that finds none, counted from 1. */
  fullFrom = Number.POSITIVE_INFINITY;
  /** That step alone, as when somebody else's file comes and goes. */
  once = false;
  /** Whether a step was refused. */
  wasFull = false;

  readonly disk: Disk = {
    ...systemDisk,
    makeDirectory: (path) => {
      this.#needsRoom();
      systemDisk.makeDirectory(path);
    },
    open: (path, how) => {
      if (how === 'create') this.#needsRoom();
      return systemDisk.open(path, how);
    },
    write: (fd, bytes, position) => {
      try {
        this.#needsRoom();
      } catch (error) {
        // What fits is written first, as a real disk does.
        systemDisk.write(fd, bytes.subarray(0, bytes.byteLength >> 1), position);
        throw error;
      }
      systemDisk.write(fd, bytes, position);
    },
    writeLater: async (fd, bytes, position) => this.disk.write(fd, bytes, position),
    allocate: async (path, sizeBytes) => {
      this.#needsRoom();
      await systemDisk.allocate(path, sizeBytes);
    },
    reserve: (fd, sizeBytes) => {
      this.#needsRoom();
      systemDisk.reserve(fd, sizeBytes);
    },
  };

  makeRoom(): void {
    this.fullFrom = Number.POSITIVE_INFINITY;
  }

  #needsRoom(): void {
    const step = ++this.steps;
    if (step < this.fullFrom || (this.once && step > this.fullFrom)) return;
    this.wasFull = true;
    throw new StorageError('no space', { full: true });
  }
}

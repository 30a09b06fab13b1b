import { statfsSync } from 'node:fs';
import { freeBytesOf } from '../base/free-bytes.ts';
import { noRoom } from './refusal.ts';

/** The file system that the data lie on, in bytes. */
export interface DiskSpace {
  readonly totalBytes: number;
  /** Null where it cannot be asked. */
  readonly freeBytes: () => number | null;
}

export function diskSpaceOf(directory: string): DiskSpace {
  return { totalBytes: totalBytesOf(directory), freeBytes: () => freeBytesOf(directory) };
}

function totalBytesOf(directory: string): number {
  try {
    const { blocks, bsize } = statfsSync(directory);
    return blocks * bsize;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/**
 * The part of the disk that uploads leave alone: signing in, deleting and starting need room for their rows (`Database.change`), and
 * without them nobody could make any.
 */
export class DiskReserve {
  readonly #space: DiskSpace;
  readonly #reserveBytes: number;
  /** On their way to the disk, which counts them as free as long as they are. */
  #arrivingBytes = 0;

  constructor(space: DiskSpace) {
    this.#space = space;
    // Of a small disk a part; but more than what `Database.change` wants to see free.
    const part = Math.max(Math.floor(space.totalBytes / 4), RESERVE_BYTES_MIN);
    this.#reserveBytes = Math.min(part, RESERVE_BYTES_MAX);
  }

  /** @throws Refusal 507 when `bytes` more would go into the reserve */
  check(bytes: number): void {
    const freeBytes = this.#space.freeBytes();
    if (bytes === 0 || freeBytes === null) return;
    if (freeBytes - this.#arrivingBytes - bytes < this.#reserveBytes) throw noRoom();
  }

  /** Runs `write`, which takes `bytes` of the disk. @throws Refusal 507 instead when they would go into the reserve */
  async spend(bytes: number, write: () => Promise<void>): Promise<void> {
    this.check(bytes);
    this.#arrivingBytes += bytes;
    try {
      await write();
    } finally {
      this.#arrivingBytes -= bytes;
    }
  }
}

const MIB = 1024 * 1024;
const RESERVE_BYTES_MIN = 8 * MIB;
const RESERVE_BYTES_MAX = 64 * MIB;

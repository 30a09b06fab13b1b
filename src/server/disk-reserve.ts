import { statfsSync } from 'node:fs';
import { freeBytesOf } from '../base/free-bytes.ts';
import { noRoom } from './refusal.ts';

/** The file system of the data, in bytes. */
export interface DiskSpace {
  readonly totalBytes: number;
  /** Null if it cannot be queried. */
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
 * Disk space that creations and uploads must leave free: signing in, deleting, administration and starting need space
 * for rows, and without them no user could free any.
 */
export class DiskReserve {
  readonly #space: DiskSpace;
  readonly #reserveBytes: number;
  /** Bytes being written, which the disk still counts as free. */
  #arrivingBytes = 0;

  constructor(space: DiskSpace) {
    this.#space = space;
    // On a small disk, a fraction of it, but more than the free space that `Database.change` requires.
    const part = Math.max(Math.floor(space.totalBytes / 4), RESERVE_BYTES_MIN);
    this.#reserveBytes = Math.min(part, RESERVE_BYTES_MAX);
  }

  /** Free bytes; null if the disk cannot be queried: LMDB fails too, and reports the error. */
  freeBytes(): number | null {
    return this.#space.freeBytes();
  }

  /** The part of `freeBytes` that creations and uploads may use. */
  spareBytes(freeBytes: number | null): number {
    return freeBytes === null ? Number.POSITIVE_INFINITY : freeBytes - this.#arrivingBytes - this.#reserveBytes;
  }

  /** @throws Refusal 507 if `bytes` more would use the reserve */
  check(bytes: number): void {
    if (bytes > 0 && bytes > this.spareBytes(this.#space.freeBytes())) throw noRoom();
  }

  /** Runs `write`, which needs `bytes` of disk space. @throws Refusal 507 instead if they would use the reserve */
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

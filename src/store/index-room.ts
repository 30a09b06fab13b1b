import { closeSync, fstatSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { FsError } from '../base/errors.ts';
import { freeBytesOf } from '../base/free-bytes.ts';
import { NativeFiles } from '../base/native.ts';
import type { Row } from './overlay.ts';

/** Page size of LMDB on Linux, on the processors that this program supports. */
const PAGE_BYTES = 4096;
/** A longer value has pages of its own. */
const VALUE_IN_PAGE_BYTES_MAX = 2000;
const ROW_OVERHEAD_BYTES = 64;
/** The branch pages above a leaf, the list of free pages, and the two meta pages. */
const OTHER_PAGES = 32;
/** With this much free space beyond the need, no block is reserved: no other program fills it during one batch. */
const AMPLE_BYTES = 32 * 1024 * 1024;
/** Rows of a batch while less than twice `AMPLE_BYTES` are free: each row may need its own page, and reserved pages stay with LMDB. */
const FEW_ROWS = 64;

/**
 * Disk space for the next transaction of LMDB, to the block. LMDB must not meet a full disk. lmdb-js 3.5.6 formats the error of a page
 * that it could not write into a buffer of 100 bytes, and the text may be longer (`mdb_page_flush` in its mdb.c). That corrupts the heap,
 * and the process ends some time later (*malloc(): corrupted top size*).
 *
 * On an almost full disk, the blocks of the file are reserved before each batch, including those of pages that LMDB never wrote. The
 * length of the file does not change. If the file system cannot reserve blocks, the free space that it reports must do (ADR 22).
 */
export class IndexRoom {
  /** Offset of the first page that was never used, bytes. */
  readonly #endBytes: () => number;
  readonly #disk: IndexRoomDisk;
  /** LMDB's file; null if it cannot be opened. */
  #fd: number | null;
  /** Every byte before this offset has its block. */
  #solidBytes = 0;

  /** @param path LMDB's file; `lastPage` returns the highest page that it ever used; `disk` replaces the file system in tests */
  constructor(path: string, lastPage: () => number, disk?: Partial<IndexRoomDisk>) {
    this.#fd = opened(path);
    this.#endBytes = () => (lastPage() + 1) * PAGE_BYTES;
    const own: IndexRoomDisk = {
      freeBytes: () => this.#freeBytes(dirname(path)),
      reserve: (fd, offset, length) => new NativeFiles().allocate(fd, offset, length, 'keep-size'),
    };
    this.#disk = { ...own, ...disk };
  }

  /** Free bytes on the disk of LMDB's file. Never throws. */
  get freeBytes(): number {
    return this.#free();
  }

  /** The largest number of rows of a batch. Never throws. */
  rowsMax(): number {
    return this.#free() >= 2 * AMPLE_BYTES ? Number.POSITIVE_INFINITY : FEW_ROWS;
  }

  /** Ensures the space for a transaction. @returns false if there is too little. Never throws */
  makeFor(rows: readonly Row[]): boolean {
    const needBytes = bytesFor(rows);
    const freeBytes = this.#free();
    if (freeBytes >= needBytes + AMPLE_BYTES) {
      this.#solidBytes = 0; // LMDB does not write pages that it allocates and frees within one transaction
      return true;
    }
    const endBytes = this.#endBytes() + needBytes;
    if (endBytes <= this.#solidBytes) return true;
    try {
      const fd = this.#fd;
      if (fd === null) return freeBytes >= needBytes;
      // Some file systems keep the part of a failed reservation that fitted. It would take the rest of the disk and still be too short.
      if (endBytes - fstatSync(fd).blocks * 512 > freeBytes) return false;
      this.#disk.reserve(fd, this.#solidBytes, endBytes - this.#solidBytes);
      this.#solidBytes = endBytes;
      return true;
    } catch (error) {
      const errno = error instanceof FsError ? error.errno : null;
      return errno !== 'ENOSPC' && errno !== 'EDQUOT' && freeBytes >= needBytes;
    }
  }

  close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }

  /** By the descriptor, because another disk may be mounted over the path; by the path on a system without /proc. */
  #freeBytes(directory: string): number | null {
    const byDescriptor = this.#fd === null ? null : freeBytesOf(`/proc/self/fd/${this.#fd}`);
    return byDescriptor ?? freeBytesOf(directory);
  }

  /** A disk that cannot be queried fails LMDB as well, and LMDB's error is the one to report. */
  #free(): number {
    return this.#disk.freeBytes() ?? Number.POSITIVE_INFINITY;
  }
}

/** Null if the file cannot be opened: LMDB's own error is the one to report. A read-only disk allows only queries. */
function opened(path: string): number | null {
  for (const flags of ['r+', 'r']) {
    try {
      return openSync(path, flags);
    } catch {}
  }
  return null;
}

export interface IndexRoomDisk {
  /** Null if the disk cannot be queried. */
  freeBytes(): number | null;
  /** @throws FsError */
  reserve(fd: number, offset: number, length: number): void;
}

/**
 * Upper estimate of the space of a transaction, bytes. A few rows may be far apart: two pages each, for the changed page and its split.
 * Many rows come from one record (a listing, the removal of a tree), so they are neighbours.
 */
function bytesFor(rows: readonly Row[]): number {
  let [beside, own] = [0, 0];
  for (const { keyBytes, valueBytes } of rows) {
    const length = valueBytes?.byteLength ?? 0;
    beside += ROW_OVERHEAD_BYTES + keyBytes.byteLength + (length > VALUE_IN_PAGE_BYTES_MAX ? 0 : length);
    if (length > VALUE_IN_PAGE_BYTES_MAX) own += Math.ceil(length / PAGE_BYTES) + 1;
  }
  const pages = 2 * Math.min(rows.length, FEW_ROWS) + OTHER_PAGES + own;
  return pages * PAGE_BYTES + (rows.length > FEW_ROWS ? 4 * beside : 0);
}

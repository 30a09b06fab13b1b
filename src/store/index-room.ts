import { closeSync, fstatSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { FsError } from '../base/errors.ts';
import { freeBytesOf } from '../base/free-bytes.ts';
import { NativeFiles } from '../base/native.ts';
import type { Row } from './overlay.ts';

/** What LMDB's pages have on Linux on the processors that we run on. */
const PAGE_BYTES = 4096;
/** A value that is longer has pages of its own. */
const VALUE_IN_PAGE_BYTES_MAX = 2000;
const ROW_OVERHEAD_BYTES = 64;
/** The way down to a leaf, the list of free pages, and the two pages that say which transaction holds. */
const OTHER_PAGES = 32;
/** As much beside what is needed, and no block is reserved: nobody takes it while a batch is written. */
const AMPLE_BYTES = 32 * 1024 * 1024;
/** Rows of a batch while the disk has less than twice as much: each may be on a page of its own, and what is reserved stays LMDB's. */
const FEW_ROWS = 64;

/**
 * Room on the disk for what LMDB is about to write, down to the block. LMDB must not meet a full disk: lmdb-js 3.5.6 describes a page
 * that could not be written in a text for which it takes 100 bytes, and which may be longer (`mdb_page_flush` in its mdb.c); what lies
 * behind in memory is overwritten, and the process ends some time later (*malloc(): corrupted top size*).
 *
 * Where there is little room the file's blocks are reserved before a batch, also those of pages that LMDB never wrote. Its length stays.
 * Where the file system cannot reserve, what it says of its room has to do (ADR 22).
 */
export class IndexRoom {
  readonly #path: string;
  /** Where the next page goes that was never used, bytes. */
  readonly #endBytes: () => number;
  readonly #disk: IndexRoomDisk;
  #fd: number | null = null;
  /** Every byte before has its block. */
  #solidBytes = 0;

  /** @param path LMDB's file; `lastPage` the last one that it has ever used; `disk` stands for the file system in tests */
  constructor(path: string, lastPage: () => number, disk?: Partial<IndexRoomDisk>) {
    this.#path = path;
    this.#endBytes = () => (lastPage() + 1) * PAGE_BYTES;
    const own: IndexRoomDisk = {
      freeBytes: () => freeBytesOf(dirname(path)),
      reserve: (fd, offset, length) => new NativeFiles().allocate(fd, offset, length, 'keep-size'),
    };
    this.#disk = { ...own, ...disk };
  }

  /** How many rows a batch may have at most. Never throws. */
  rowsMax(): number {
    return this.#free() >= 2 * AMPLE_BYTES ? Number.POSITIVE_INFINITY : FEW_ROWS;
  }

  /** Makes sure of the room for a transaction. @returns false where there is none. Never throws */
  makeFor(rows: readonly Row[]): boolean {
    const needBytes = bytesFor(rows);
    const freeBytes = this.#free();
    if (freeBytes >= needBytes + AMPLE_BYTES) {
      this.#solidBytes = 0; // LMDB leaves out pages that it takes and gives back within one transaction
      return true;
    }
    const endBytes = this.#endBytes() + needBytes;
    if (endBytes <= this.#solidBytes) return true;
    try {
      this.#fd ??= openSync(this.#path, 'r+');
      // Some file systems keep the part of a reservation that they had room for: all that is left, and nothing could be written with it.
      if (endBytes - fstatSync(this.#fd).blocks * 512 > freeBytes) return false;
      this.#disk.reserve(this.#fd, this.#solidBytes, endBytes - this.#solidBytes);
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

  /** A disk that cannot be queried fails LMDB as well, and LMDB's error is the one to report. */
  #free(): number {
    return this.#disk.freeBytes() ?? Number.POSITIVE_INFINITY;
  }
}

export interface IndexRoomDisk {
  /** Null if the disk cannot be queried. */
  freeBytes(): number | null;
  /** @throws FsError */
  reserve(fd: number, offset: number, length: number): void;
}

/**
 * What a transaction may take, bytes. Few rows may be far from each other: two pages each, the one that changes and the one that it
 * splits into. Of many, one record has been made (a listing, a removal of a tree), whose rows are beside each other.
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

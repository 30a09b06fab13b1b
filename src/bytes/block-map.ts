import { BLOCK_BYTES } from '../base/vocabulary.ts';
import type { GivenUp } from './contents.ts';

/**
 * Which blocks of a content file are present. One row per 512 blocks, 5 bytes per block: state u8, checksum u32 (crc32 of the block's
 * bytes, little endian). A row ends behind its last present block.
 *
 * A block that the map does not name is absent, even if the file has bytes there.
 */
export const BLOCKS_PER_ROW = 512;
const ENTRY_BYTES = 5;
const ROW_BYTES = BLOCKS_PER_ROW * ENTRY_BYTES;

/** In place of a block's number. */
const EACH = -1;
const ABSENT = 0;
const MARKED = 2;
const EMPTY_ROW = Buffer.alloc(ROW_BYTES);

export class BlockMap {
  readonly #load: (row: number) => Uint8Array | undefined;
  /** Rows with blocks: a sound listing may claim a file of petabytes, and a walk over it must not fill the memory. */
  readonly #rows = new Map<number, Buffer>();
  /** The last row that was found empty; -1 for none. */
  #emptyRow = -1;
  /** Blocks whose bytes were compared with their checksum in this run, or were written in it. */
  readonly #verified = new Set<number>();
  /** Blocks that this run found not to match their checksums, and whose checksums must be kept. */
  readonly #damaged = new Set<number>();
  readonly #dirty = new Set<number>();
  readonly #watches = new Set<Set<number>>();

  constructor(load: (row: number) => Uint8Array | undefined) {
    this.#load = load;
  }

  isPresent(block: number): boolean {
    return this.#stateOf(block) !== ABSENT && !this.#damaged.has(block);
  }

  isVerified(block: number): boolean {
    return this.#verified.has(block);
  }

  hasChecksum(block: number): boolean {
    return this.#stateOf(block) === MARKED;
  }

  checksumOf(block: number): number {
    return this.#readRow(block).readUInt32LE((block % BLOCKS_PER_ROW) * ENTRY_BYTES + 1);
  }

  isDamaged(block: number): boolean {
    return this.#damaged.has(block);
  }

  get hasDamage(): boolean {
    return this.#damaged.size > 0;
  }

  /** The block keeps its checksum and counts as absent; the next run finds the same. */
  damaged(block: number): void {
    this.#damaged.add(block);
    this.#verified.delete(block);
  }

  /** The blocks that row `index` names. */
  blocksOfRow(index: number): number[] {
    return Array.from({ length: BLOCKS_PER_ROW }, (_, at) => index * BLOCKS_PER_ROW + at).filter((block) =>
      this.hasChecksum(block),
    );
  }

  verified(block: number): void {
    this.#verified.add(block);
  }

  /** The file was replaced: each block is verified again, and writes into the previous file are given up. */
  remade(): void {
    this.#verified.clear();
    for (const watch of this.#watches) watch.add(EACH);
  }

  /** The block's bytes are in the file and replace those that were found damaged. */
  landed(block: number, checksum: number): void {
    this.#damaged.delete(block);
    this.setChecksum(block, checksum);
  }

  setChecksum(block: number, checksum: number): void {
    const row = this.#row(block);
    const at = (block % BLOCKS_PER_ROW) * ENTRY_BYTES;
    row[at] = MARKED;
    row.writeUInt32LE(checksum >>> 0, at + 1);
    this.#verified.add(block);
    this.#dirty.add(Math.floor(block / BLOCKS_PER_ROW));
  }

  /** Records the blocks that are given up from now on. Valid while the content is leased: after that the map may be dropped. */
  watchGivenUp(): GivenUp {
    const blocks = new Set<number>();
    this.#watches.add(blocks);
    return {
      *without({ start, end }) {
        if (blocks.has(EACH)) return;
        let from = start;
        const first = Math.floor(start / BLOCK_BYTES);
        for (let block = first; blocks.size > 0 && block * BLOCK_BYTES < end; block++) {
          if (!blocks.has(block)) continue;
          const at = block * BLOCK_BYTES;
          if (at > from) yield { start: from, end: at };
          from = at + BLOCK_BYTES;
        }
        if (from < end) yield { start: from, end };
      },
      stop: () => this.#watches.delete(blocks),
    };
  }

  cleared(block: number): void {
    for (const watch of this.#watches) watch.add(block);
    const at = (block % BLOCKS_PER_ROW) * ENTRY_BYTES;
    this.#row(block).fill(0, at, at + ENTRY_BYTES);
    this.#verified.delete(block);
    this.#damaged.delete(block);
    this.#dirty.add(Math.floor(block / BLOCKS_PER_ROW));
  }

  /** The current rows to be stored; null for an empty row. They count as stored from here on. */
  takeDirty(): (readonly [row: number, bytes: Uint8Array | null])[] {
    const rows = [...this.#dirty].map((row) => [row, encodeRow(this.#rows.get(row))] as const);
    this.#dirty.clear();
    return rows;
  }

  /** Storing `rows` failed: they are to be stored again. */
  putBackDirty(rows: readonly (readonly [row: number, bytes: unknown])[]): void {
    for (const [row] of rows) this.#dirty.add(row);
  }

  get isDirty(): boolean {
    return this.#dirty.size > 0;
  }

  /** Rows that may name a block and are not stored yet, in any order. */
  get rowsInMemory(): Iterable<number> {
    return this.#rows.keys();
  }

  #stateOf(block: number): number {
    return this.#readRow(block)[(block % BLOCKS_PER_ROW) * ENTRY_BYTES] as number;
  }

  /** Do not write into the row. */
  #readRow(block: number): Buffer {
    const index = Math.floor(block / BLOCKS_PER_ROW);
    if (index === this.#emptyRow) return EMPTY_ROW;
    const row = this.#loadedRow(index);
    if (row !== undefined) return row;
    this.#emptyRow = index;
    return EMPTY_ROW;
  }

  /** The row, to write into it. */
  #row(block: number): Buffer {
    const index = Math.floor(block / BLOCKS_PER_ROW);
    let row = this.#loadedRow(index);
    if (row === undefined) {
      row = Buffer.alloc(ROW_BYTES);
      this.#rows.set(index, row);
      if (index === this.#emptyRow) this.#emptyRow = -1;
    }
    return row;
  }

  #loadedRow(index: number): Buffer | undefined {
    const known = this.#rows.get(index);
    if (known !== undefined) return known;
    const stored = this.#load(index);
    if (stored === undefined) return undefined;
    const row = Buffer.alloc(ROW_BYTES);
    row.set(stored.subarray(0, ROW_BYTES));
    this.#rows.set(index, row);
    return row;
  }
}

/** The blocks that a stored row names. */
export function* blocksOfRow(
  index: number,
  row: Uint8Array,
): Generator<{ readonly block: number; readonly checksum: number }> {
  const view = Buffer.from(row.buffer, row.byteOffset, row.byteLength);
  for (let at = 0; at + ENTRY_BYTES <= view.byteLength; at += ENTRY_BYTES) {
    if (view[at] === MARKED)
      yield { block: index * BLOCKS_PER_ROW + at / ENTRY_BYTES, checksum: view.readUInt32LE(at + 1) };
  }
}

/** Length of block `block` of a content of `sizeBytes`. */
export function blockLength(block: number, sizeBytes: number): number {
  return Math.max(0, Math.min(BLOCK_BYTES, sizeBytes - block * BLOCK_BYTES));
}

function encodeRow(row: Buffer | undefined): Uint8Array | null {
  if (row === undefined) return null;
  let end = 0;
  const stored = Buffer.from(row);
  for (let at = 0; at < ROW_BYTES; at += ENTRY_BYTES) {
    if (stored[at] === MARKED) end = at + ENTRY_BYTES;
    else stored.fill(0, at, at + ENTRY_BYTES);
  }
  return end === 0 ? null : stored.subarray(0, end);
}

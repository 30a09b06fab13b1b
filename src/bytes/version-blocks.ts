import { LRUCache } from 'lru-cache';
import { crc32 } from '../base/checksum.ts';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import { BLOCK_BYTES, type ContentId, type Extent } from '../base/vocabulary.ts';
import type { StoreWriter, Transaction } from '../store/tables.ts';
import { BLOCKS_PER_ROW, BlockMap, blockLength } from './block-map.ts';
import type { CacheUsage } from './cache-usage.ts';
import type { ContentFiles } from './content-files.ts';

const MAPS_MAX = 4096;
const SAVE_DELAY_MS = 200;
/** Bytes whose blocks one map row names. */
const ROW_SPAN_BYTES = BLOCKS_PER_ROW * BLOCK_BYTES;
/** Limit of blocks in memory while the disk is full: enough for a read to get the blocks that it fetched. */
const MEMORY_BYTES_MAX = 16 * 1024 * 1024;

/**
 * The present blocks of versions: their maps, their checksums, and the blocks that only memory holds.
 *
 * A block counts as present once its bytes are in the file; the map is stored a little later, and names only blocks with checksums.
 * After a crash some are fetched again; after a power cut the checksums show which bytes did not reach the disk.
 */
export class VersionBlocks {
  readonly #store: StoreWriter;
  readonly #files: ContentFiles;
  readonly #usage: CacheUsage;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #maps = new Map<ContentId, BlockMap>();
  readonly #unsaved = new Set<ContentId>();
  readonly #memory = new LRUCache<string, Uint8Array>({
    maxSize: MEMORY_BYTES_MAX,
    sizeCalculation: (bytes) => bytes.byteLength + 1,
  });
  #cancelSave: (() => void) | null = null;
  #closed = false;

  constructor(deps: { store: StoreWriter; files: ContentFiles; usage: CacheUsage; clock: Clock; log: Logger }) {
    this.#store = deps.store;
    this.#files = deps.files;
    this.#usage = deps.usage;
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  map(id: ContentId): BlockMap {
    let map = this.#maps.get(id);
    if (map === undefined) {
      // Rows of a removed file are meaningless.
      const hasFile = this.#store.get('content', id)?.where === 'file';
      map = new BlockMap((row) => (hasFile ? this.#store.get('blocks', [id, row]) : undefined));
      this.#maps.set(id, map);
      if (this.#maps.size > MAPS_MAX) this.#forgetOldMaps();
    }
    return map;
  }

  /** The first offset from `from` on where a block may be present; Infinity for none. Reads no map row. */
  mayBePresentAt(id: ContentId, from: number): number {
    const row = Math.floor(from / ROW_SPAN_BYTES);
    let next = Number.POSITIVE_INFINITY;
    for (const index of this.map(id).rowsInMemory) if (index >= row && index < next) next = index;
    if (this.#store.get('content', id)?.where === 'file') {
      for (const [index] of this.#store.scan('blocks', id, row === 0 ? undefined : row - 1)) {
        next = Math.min(next, index);
        break;
      }
    }
    return Math.max(from, next * ROW_SPAN_BYTES);
  }

  memoryBlock(id: ContentId, block: number): Uint8Array | undefined {
    return this.#memory.size === 0 ? undefined : this.#memory.get(`${id}/${block}`);
  }

  /** The file holds the bytes of `extent`: its complete blocks are present. `checksums`: of blocks whose checksums were computed during the transfer. */
  arrived(id: ContentId, extent: Extent, sizeBytes: number, checksums?: ReadonlyMap<number, number>): void {
    const map = this.map(id);
    for (const block of wholeBlocks(extent, sizeBytes)) {
      if (this.#memory.size > 0) this.#memory.delete(`${id}/${block}`);
      if (map.isPresent(block)) continue;
      map.landed(block, checksums?.get(block) ?? this.#checksumOf(id, block, sizeBytes));
      this.#saveSoon(id);
      this.#usage.addCached(id, blockLength(block, sizeBytes));
    }
    this.#usage.changed(id);
    this.#usage.touch('file', id, extent.start, extent.end, this.#clock.elapsedMs());
  }

  /** The disk is full: keeps the complete blocks of `extent` in memory for the waiting readers. */
  arrivedInMemory(id: ContentId, extent: Extent, bytes: Uint8Array, sizeBytes: number): void {
    for (const block of wholeBlocks(extent, sizeBytes)) {
      const at = block * BLOCK_BYTES - extent.start;
      this.#memory.set(`${id}/${block}`, bytes.slice(at, at + blockLength(block, sizeBytes)));
    }
  }

  /** A checksum that was computed elsewhere; its map row is to be stored. */
  setChecksum(id: ContentId, block: number, checksum: number): void {
    this.map(id).setChecksum(block, checksum);
    this.#saveSoon(id);
  }

  cleared(id: ContentId, block: number): void {
    this.map(id).cleared(block);
    this.#saveSoon(id);
  }

  /**
   * The file does not hold the bytes that were written: the block is dropped. If own ranges of a draft lie under it, the checksum stays:
   * without it they would count as valid.
   */
  damaged(id: ContentId, block: number, sizeBytes: number, below: 'own ranges' | 'nothing'): void {
    if (below === 'own ranges') this.map(id).damaged(block);
    else this.cleared(id, block);
    this.#usage.addCached(id, -blockLength(block, sizeBytes));
  }

  /** Stores the map rows of `id` that changed, as part of a change. */
  saveInto(tx: Transaction, id: ContentId): void {
    const record = tx.get('content', id);
    const map = this.#maps.get(id);
    if (map === undefined || !map.isDirty) return;
    if (record === undefined) return void map.takeDirty();
    const rows = map.takeDirty();
    let names = false;
    for (const [row, bytes] of rows) {
      if (bytes === null) tx.remove('blocks', [id, row]);
      else tx.put('blocks', [id, row], bytes);
      names ||= bytes !== null;
    }
    if (names && record.where === 'none') tx.put('content', id, { ...record, where: 'file' });
    // The rows count as unsaved until the record is committed: the change may fail.
    map.putBackDirty(rows);
    tx.afterCommit(() => {
      map.takeDirty();
      this.#unsaved.delete(id);
    });
  }

  /** Stores all changed map rows. If the disk is full, those blocks are fetched again later. */
  save(): void {
    this.#cancelSave?.();
    this.#cancelSave = null;
    if (this.#unsaved.size === 0) return;
    const ids = [...this.#unsaved];
    try {
      this.#store.transact((tx) => {
        for (const id of ids) this.saveInto(tx, id);
      });
      for (const id of ids) if (!this.#maps.get(id)?.isDirty) this.#unsaved.delete(id);
    } catch (err) {
      this.#log.warn({ err }, 'block maps not stored');
    }
  }

  forget(id: ContentId): void {
    this.#maps.delete(id);
    this.#unsaved.delete(id);
  }

  close(): void {
    this.#closed = true;
    this.save();
    this.#cancelSave?.();
  }

  /** For a block whose bytes are in the file and have no checksum yet. */
  #checksumOf(id: ContentId, block: number, sizeBytes: number): number {
    const length = blockLength(block, sizeBytes);
    const start = block * BLOCK_BYTES;
    const bytes = this.#files.lend(id, 'cache', start, length);
    // A file that ends early has a hole there: the rest of the block is zeros.
    const zeros = new Uint8Array(length - bytes.byteLength);
    if (zeros.byteLength > 0) this.#files.write(id, 'cache', zeros, start + bytes.byteLength);
    return crc32(zeros, crc32(bytes, 0));
  }

  #saveSoon(id: ContentId): void {
    this.#unsaved.add(id);
    if (!this.#closed) this.#cancelSave ??= this.#clock.after(SAVE_DELAY_MS, () => this.save());
  }

  #forgetOldMaps(): void {
    for (const id of this.#maps.keys()) {
      if (this.#unsaved.has(id) || this.#files.isHeld(id)) continue;
      this.#maps.delete(id);
      if (this.#maps.size <= MAPS_MAX / 2) return;
    }
  }
}

/** Removes the map rows of a content without a file: leftover rows would count as damage of the store. */
export function removeBlockRows(tx: Transaction, id: ContentId): void {
  for (const [row] of tx.scan('blocks', id)) tx.remove('blocks', [id, row]);
}

function wholeBlocks({ start, end }: Extent, sizeBytes: number): number[] {
  const first = Math.ceil(start / BLOCK_BYTES);
  const behind = end >= sizeBytes ? Math.ceil(sizeBytes / BLOCK_BYTES) : Math.floor(end / BLOCK_BYTES);
  return Array.from({ length: Math.max(0, behind - first) }, (_, at) => first + at);
}

import { setImmediate as nextTurn } from 'node:timers/promises';
import { crc32 } from '../base/checksum.ts';
import { FsError, isOutOfDescriptors } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { BLOCK_BYTES, type ContentId } from '../base/vocabulary.ts';
import type { ContentRecord, StoreReader, Transaction } from '../store/tables.ts';
import { BlockMap, blockLength } from './block-map.ts';
import type { ContentFiles } from './content-files.ts';
import { coversExtent, indexBehind } from './extents.ts';
import { DAMAGED_DRAFT } from './small-bytes.ts';
import type { VersionBlocks } from './version-blocks.ts';

const MARKED_PER_TURN = 8;

/**
 * The checksums of frozen drafts whose bytes lie in a file: rows of the block map like those of versions. A checksum covers the
 * own bytes of its block; other bytes of the file there are meaningless.
 *
 * A damaged version is fetched again. Reading damaged bytes of a draft fails with EIO: unless the draft is pushed, they exist nowhere else. A block without a
 * checksum counts as valid: checksums are made after the file was synced, so that a power cut never looks like damage.
 */
export class DraftChecksums {
  readonly #store: StoreReader;
  readonly #files: ContentFiles;
  readonly #blocks: VersionBlocks;
  readonly #log: Logger;
  readonly #onDamagedDraft: (content: ContentId) => void;

  constructor(deps: {
    store: StoreReader;
    files: ContentFiles;
    blocks: VersionBlocks;
    log: Logger;
    onDamagedDraft: (content: ContentId) => void;
  }) {
    this.#onDamagedDraft = deps.onDamagedDraft;
    this.#store = deps.store;
    this.#files = deps.files;
    this.#blocks = deps.blocks;
    this.#log = deps.log;
  }

  /** Whether checksums of a content were stored, by this run or an earlier one. */
  has(id: ContentId): boolean {
    for (const _ of this.#store.scan('blocks', id)) return true;
    return false;
  }

  /** Computes the checksums of a frozen draft, in short turns, until done or until the draft is no longer frozen. */
  async make(id: ContentId): Promise<void> {
    const blocks = blocksOf(this.#store.get('content', id)?.extents ?? []);
    for (const [count, block] of blocks.entries()) {
      if (count % MARKED_PER_TURN === MARKED_PER_TURN - 1) await nextTurn();
      const record = this.#store.get('content', id);
      if (record === undefined || !isFrozenFile(record)) return;
      if (this.#blocks.map(id).hasChecksum(block)) continue;
      const checksum = this.#checksumOf(id, record, block);
      if (checksum !== null) this.#blocks.setChecksum(id, block, checksum);
    }
  }

  /**
   * Compares the blocks of a range with their checksums, each once in a run.
   *
   * @throws FsError EIO when the file does not hold the bytes that were written
   */
  check(id: ContentId, record: ContentRecord, start: number, end: number): void {
    const map = this.#blocks.map(id);
    for (let block = Math.floor(start / BLOCK_BYTES); block * BLOCK_BYTES < end; block++) {
      if (map.isVerified(block)) continue;
      if (!map.isDamaged(block)) {
        if (!map.hasChecksum(block)) continue;
        if (this.#checksumOf(id, record, block) === map.checksumOf(block)) {
          map.verified(block);
          continue;
        }
        const path = this.#files.path(id, 'drafts');
        // Logged once per file.
        if (!map.hasDamage) {
          this.#log.error({ content: id, block, path }, DAMAGED_DRAFT);
          this.#onDamagedDraft(id);
        }
        map.damaged(block);
      }
      throw new FsError('EIO', `block ${block} of content ${id} is damaged, and in no version`);
    }
  }

  /**
   * The draft becomes a version: the checksums of blocks that are entirely its own are valid for the version; the others are removed.
   *
   * @returns how many bytes keep a checksum
   */
  hand(tx: Transaction, id: ContentId, record: ContentRecord, which: 'whole blocks' | 'none'): number {
    let bytes = 0;
    for (const [row] of [...tx.scan('blocks', id)]) {
      const map = new BlockMap((index) => tx.get('blocks', [id, index]));
      for (const block of map.blocksOfRow(row)) {
        const start = block * BLOCK_BYTES;
        const length = blockLength(block, record.sizeBytes);
        const isOwn = which === 'whole blocks' && length > 0 && coversExtent(record.extents, start, start + length);
        if (isOwn) bytes += length;
        else map.cleared(block);
      }
      for (const [index, left] of map.takeDirty()) {
        if (left === null) tx.remove('blocks', [id, index]);
        else tx.put('blocks', [id, index], left);
      }
    }
    return bytes;
  }

  /** Null: the file does not have these bytes. */
  #checksumOf(id: ContentId, { extents, sizeBytes }: ContentRecord, block: number): number | null {
    const start = block * BLOCK_BYTES;
    const length = blockLength(block, sizeBytes);
    let bytes: Uint8Array;
    try {
      bytes = this.#files.lend(id, 'drafts', start, length);
    } catch (err) {
      if (isOutOfDescriptors(err)) throw err;
      this.#log.warn({ content: id, block, err }, 'a block of a change cannot be read');
      return null;
    }
    let checksum = 0;
    for (let index = indexBehind(extents, start); index < extents.length; index += 2) {
      const from = Math.max((extents[index] as number) - start, 0);
      const to = Math.min((extents[index + 1] as number) - start, length);
      if (from >= to) break;
      if (to > bytes.byteLength) return null;
      checksum = crc32(bytes.subarray(from, to), checksum);
    }
    return checksum;
  }
}

/** Whether a content is a sealed draft with a file. */
export function isFrozenFile(record: ContentRecord): boolean {
  return record.kind === 'draft' && record.sealed && record.where === 'file';
}

/** The blocks that the ranges touch, each once, in order. */
function blocksOf(extents: readonly number[]): number[] {
  const blocks: number[] = [];
  for (let at = 0; at < extents.length; at += 2) {
    const first = Math.max(Math.floor((extents[at] as number) / BLOCK_BYTES), (blocks.at(-1) ?? -1) + 1);
    for (let block = first; block * BLOCK_BYTES < (extents[at + 1] as number); block++) blocks.push(block);
  }
  return blocks;
}

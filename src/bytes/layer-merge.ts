import { setImmediate as nextTurn } from 'node:timers/promises';
import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { BLOCK_BYTES, type ContentId } from '../base/vocabulary.ts';
import { countReference, ifSound } from '../store/node-table.ts';
import type { ContentRecord, StoreWriter, Transaction } from '../store/tables.ts';
import { blockLength } from './block-map.ts';
import type { CacheEviction } from './cache-eviction.ts';
import type { CacheUsage } from './cache-usage.ts';
import type { ContentFiles } from './content-files.ts';
import { isLayered } from './content-layers.ts';
import type { Contents } from './contents.ts';
import { removeBlockRows, type VersionBlocks } from './version-blocks.ts';

const BLOCKS_PER_TURN = 4;

/**
 * Merges the layers of acknowledged drafts into plain versions: blocks that the layers can fill are completed in the version's file,
 * then own ranges and base are dropped. Other blocks are missing, and a read fetches them.
 */
export class LayerMerge {
  readonly #store: StoreWriter;
  readonly #files: ContentFiles;
  readonly #blocks: VersionBlocks;
  readonly #eviction: CacheEviction;
  readonly #usage: CacheUsage;
  readonly #log: Logger;
  readonly #inlineMaxBytes: number;
  readonly #contents: Pick<Contents, 'pieces' | 'readAll' | 'lease'>;
  readonly #toFile: (id: ContentId) => void;
  readonly #waiting = new Set<ContentId>();
  /** Contents whose failure was logged already. */
  readonly #logged = new Set<ContentId>();
  #running: Promise<void> | null = null;

  constructor(deps: {
    store: StoreWriter;
    files: ContentFiles;
    blocks: VersionBlocks;
    eviction: CacheEviction;
    usage: CacheUsage;
    log: Logger;
    inlineMaxBytes: number;
    contents: Pick<Contents, 'pieces' | 'readAll' | 'lease'>;
    /** Creates the version's file if necessary. */
    toFile: (id: ContentId) => void;
  }) {
    this.#store = deps.store;
    this.#files = deps.files;
    this.#blocks = deps.blocks;
    this.#eviction = deps.eviction;
    this.#usage = deps.usage;
    this.#log = deps.log;
    this.#inlineMaxBytes = deps.inlineMaxBytes;
    this.#contents = deps.contents;
    this.#toFile = deps.toFile;
  }

  add(id: ContentId): void {
    this.#waiting.add(id);
  }

  /** Drops the layers of a version unmerged: only its blocks with checksums stay valid. */
  distrust(id: ContentId): void {
    this.#store.transact((tx) => {
      const record = tx.get('content', id);
      if (record !== undefined && record.kind === 'version') this.#dropLayers(tx, id, record, 'file');
    });
  }

  /** Merges the queued contents, in short turns, until done or aborted. A second caller waits for the first. */
  async run(signal: AbortSignal): Promise<void> {
    while (this.#running !== null) await this.#running;
    if (signal.aborted || this.#waiting.size === 0) return;
    this.#running = this.#runAll(signal).finally(() => {
      this.#running = null;
    });
    await this.#running;
  }

  /** All bytes of a small version are present: stores it in LMDB, without layers. */
  becomeInline(tx: Transaction, id: ContentId, bytes: Uint8Array): void {
    const record = tx.get('content', id);
    if (record === undefined) return;
    tx.put('inline', id, bytes);
    this.#dropLayers(tx, id, record, 'inline');
    this.#dropFile(tx, id, record);
    tx.afterCommit(() => {
      this.#usage.setSmall(id, bytes.byteLength);
      this.#usage.found('small', id, 0);
    });
  }

  async #runAll(signal: AbortSignal): Promise<void> {
    for (const id of this.#waiting) {
      if (signal.aborted) return;
      try {
        if (!(await this.#merge(id, signal))) continue;
        this.#waiting.delete(id);
        this.#logged.delete(id);
      } catch (err) {
        this.#log[this.#logged.has(id) ? 'debug' : 'warn']({ err, content: id }, 'layers not merged');
        this.#logged.add(id);
        // A full disk stops the others as well. Any other failure concerns this content alone.
        if (err instanceof StorageError && err.full) return;
      }
    }
  }

  /** Whether nothing is left to be done for `id`. */
  async #merge(id: ContentId, signal: AbortSignal): Promise<boolean> {
    const record = this.#store.get('content', id);
    if (record === undefined || record.kind !== 'version' || !isLayered(record)) return true;
    const lease = this.#contents.lease(id);
    try {
      if (record.sizeBytes <= this.#inlineMaxBytes) {
        // A damaged row of a layer counts as missing bytes, which are fetched again. Any other failure may be temporary.
        const bytes = ifSound(() => this.#contents.readAll(id, { start: 0, end: record.sizeBytes })) ?? null;
        this.#store.transact((tx) => {
          if (bytes !== null && bytes.byteLength > 0) this.becomeInline(tx, id, bytes);
          else this.#dropAll(tx, id);
        });
        return true;
      }
      this.#toFile(id);
      const blocks = Math.ceil(record.sizeBytes / BLOCK_BYTES);
      for (let block = 0; block < blocks; block++) {
        if (block % BLOCKS_PER_TURN === BLOCKS_PER_TURN - 1) await nextTurn();
        if (signal.aborted) return false;
        if (this.#store.get('content', id) === undefined) return true;
        this.#complete(id, block, record.sizeBytes);
      }
      this.#store.transact((tx) => {
        this.#blocks.saveInto(tx, id);
        const now = tx.get('content', id);
        if (now !== undefined) this.#dropLayers(tx, id, now, 'file');
      });
      return true;
    } finally {
      lease.release();
    }
  }

  #complete(id: ContentId, block: number, sizeBytes: number): void {
    if (this.#blocks.map(id).isPresent(block)) return;
    const start = block * BLOCK_BYTES;
    const end = start + blockLength(block, sizeBytes);
    const pieces = ifSound(() => this.#contents.pieces(id, { start, end }));
    if (pieces === undefined || pieces.some((piece) => piece.kind === 'missing')) return;
    const path = this.#files.path(id, 'cache');
    let at = start;
    for (const piece of pieces) {
      if (piece.kind === 'bytes') {
        this.#files.write(id, 'cache', piece.bytes, at);
      } else if (piece.kind === 'zeros') {
        this.#files.zero(id, 'cache', at, at + piece.length);
      } else if (piece.kind === 'slice' && piece.path !== path) {
        const bytes = new Uint8Array(piece.length);
        this.#files.readSlice(piece.fd, bytes, piece.position);
        this.#files.write(id, 'cache', bytes, at);
      }
      at += piece.length;
    }
    this.#blocks.arrived(id, { start, end }, sizeBytes);
  }

  #dropAll(tx: Transaction, id: ContentId): void {
    const record = tx.get('content', id);
    if (record === undefined) return;
    this.#dropLayers(tx, id, record, 'none');
    this.#dropFile(tx, id, record);
  }

  /** The file's disk space is already counted if it was measured since the push. */
  #dropFile(tx: Transaction, id: ContentId, { where }: ContentRecord): void {
    tx.afterCommit(() => {
      this.#usage.setCached(id, 0);
      this.#usage.measured(id, 0);
    });
    if (where !== 'file') return;
    removeBlockRows(tx, id);
    tx.afterCommit(() => this.#files.remove(id));
  }

  #dropLayers(tx: Transaction, id: ContentId, record: ContentRecord, where: ContentRecord['where']): void {
    const { base } = record;
    // A base whose row is damaged lost its count with it.
    if (base !== null) ifSound(() => countReference(tx, base, -1));
    // Own ranges may remain: the disk had no room to move them to the file, or they are damaged.
    if (record.where === 'inline' && where !== 'inline') {
      tx.remove('inline', id);
      tx.afterCommit(() => this.#usage.setSmall(id, 0));
    }
    tx.put('content', id, { ...record, where, base: null, baseBytes: 0, extents: [] });
    tx.afterCommit(() => {
      this.#eviction.releaseBase(id);
      if (where !== 'file') this.#blocks.forget(id);
    });
  }
}

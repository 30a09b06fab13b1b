import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Logger } from '../base/log.ts';
import type { ContentId } from '../base/vocabulary.ts';
import { countReference, ifSound } from '../store/node-table.ts';
import type { ContentRecord, StoreWriter, Transaction } from '../store/tables.ts';
import { blockLength, blocksOfRow } from './block-map.ts';
import type { CacheEviction } from './cache-eviction.ts';
import { type CacheUsage, UNIT_BLOCKS } from './cache-usage.ts';
import type { ContentFiles, Place } from './content-files.ts';
import { isLayered } from './content-layers.ts';
import { isFrozenFile } from './draft-checksums.ts';
import { bytesOf } from './extents.ts';
import type { LayerMerge } from './layer-merge.ts';
import { soundContents } from './sound-contents.ts';
import { removeBlockRows } from './version-blocks.ts';

const COLLECTED_PER_CALL_MAX = 200;
const RECORDS_PER_TURN = 200;

/** Removes unreferenced contents, and takes stock of the contents and files of earlier runs. */
export class ContentCollector {
  readonly #store: StoreWriter;
  readonly #files: ContentFiles;
  readonly #usage: CacheUsage;
  readonly #eviction: CacheEviction;
  readonly #merge: LayerMerge;
  readonly #log: Logger;
  readonly #trustsLayers: (id: ContentId) => boolean;
  readonly #frozen: (id: ContentId) => void;
  readonly #forget: (id: ContentId) => void;
  /** Ids of this run lie at or above it: their files may be ahead of their records. */
  readonly #firstNewId: number;
  /** Iterates over unreferenced contents without a lease; null between two rounds. */
  #round: Iterator<ContentId, undefined> | null = null;
  /** The state of store and files in which the last round found nothing; -1: none. */
  #nothingIn = { changes: -1, freed: -1 };
  /** Contents whose removal failed, for example because of a damaged row: they stay garbage and are not retried in this run. */
  readonly #left = new Set<ContentId>();
  /** Contents whose records are removed; their files are removed when no power cut can undo that. */
  readonly #doomed: ContentId[] = [];

  constructor(deps: {
    store: StoreWriter;
    files: ContentFiles;
    usage: CacheUsage;
    eviction: CacheEviction;
    merge: LayerMerge;
    log: Logger;
    trustsLayers: (id: ContentId) => boolean;
    /** A draft of an earlier run that was frozen and lies in a file. */
    frozen: (id: ContentId) => void;
    /** A content was removed: drop its state in memory. */
    forget: (id: ContentId) => void;
  }) {
    this.#store = deps.store;
    this.#files = deps.files;
    this.#usage = deps.usage;
    this.#eviction = deps.eviction;
    this.#merge = deps.merge;
    this.#log = deps.log;
    this.#trustsLayers = deps.trustsLayers;
    this.#frozen = deps.frozen;
    this.#forget = deps.forget;
    this.#firstNewId = Number(deps.store.get('meta', 'next-content') ?? 1);
  }

  /**
   * Removes contents without references and leases. An idle mount reads nothing: each read of LMDB changes a page of its lock file, which
   * the kernel then writes to the disk.
   *
   * @returns whether there may be more of them
   */
  collect(): boolean {
    const { changes } = this.#store;
    const { freed } = this.#files;
    if (changes === this.#nothingIn.changes && freed === this.#nothingIn.freed) return false;
    let ids: ReadonlySet<ContentId>;
    try {
      ids = this.#garbage();
      if (ids.size === 0) {
        this.#nothingIn = { changes, freed };
        return false;
      }
      this.#store.transact((tx) => {
        for (const id of ids) this.#destroyOrLeave(tx, id);
      }, 'freeing');
    } catch (err) {
      this.#round = null;
      this.#log.warn({ err }, 'contents not collected');
      return false;
    }
    this.#removeFiles();
    return ids.size === COLLECTED_PER_CALL_MAX;
  }

  /**
   * The next portion. It starts where the last one ended and wraps around once: LMDB still has the removed rows before that point, and
   * scanning over them for each portion would take longer every time.
   */
  #garbage(): Set<ContentId> {
    const ids = new Set<ContentId>();
    for (let isWhole = this.#round === null; ids.size < COLLECTED_PER_CALL_MAX; ) {
      this.#round ??= this.#unheld();
      const { done, value } = this.#round.next();
      if (!done) {
        ids.add(value);
        continue;
      }
      this.#round = null;
      if (isWhole) break;
      isWhole = true;
    }
    return ids;
  }

  *#unheld(): Generator<ContentId, undefined> {
    for (const [id] of this.#store.all('garbage')) if (!this.#files.isHeld(id) && !this.#left.has(id)) yield id;
  }

  /** @returns whether the stock-taking is complete; otherwise it may be retried. Eviction is suspended until then. */
  async takeStock(signal: AbortSignal): Promise<boolean> {
    this.#eviction.suspend();
    try {
      let count = 0;
      for (const [id, read] of soundContents(this.#store)) {
        if (++count % RECORDS_PER_TURN === 0) await nextTurn();
        if (signal.aborted) return false;
        if (read === undefined || (read.kind === 'version' && read.where === 'none' && !isLayered(read))) continue;
        const record = this.#store.get('content', id);
        if (record !== undefined) this.#count(id, record);
      }
      for (const place of ['drafts', 'cache'] as const) {
        await nextTurn();
        // A folder that is made from now on has new ids only.
        for (const [at, shard] of this.#files.shardsIn(place).entries()) {
          if (signal.aborted) return false;
          for (const id of this.#files.idsIn(place, shard)) if (id < this.#firstNewId) this.#tidyFile(id, place);
          if (at % 8 === 7) await nextTurn();
        }
      }
      this.#eviction.resume();
      return true;
    } catch (err) {
      this.#log.warn({ err }, 'taking stock of the cache ended early: nothing is evicted until it is taken');
      return false;
    }
  }

  #count(id: ContentId, record: ContentRecord): void {
    if (record.base !== null) this.#eviction.protectBase(id, record.base);
    if (record.kind === 'draft') {
      this.#usage.setDraft(id, bytesOf(record.extents));
      if (isFrozenFile(record)) this.#frozen(id);
      return;
    }
    if (isLayered(record) && record.where === 'file' && !this.#trustsLayers(id)) this.#merge.distrust(id);
    else if (isLayered(record)) this.#merge.add(id);
    if (record.where === 'inline' && !isLayered(record)) {
      this.#usage.setSmall(id, record.sizeBytes);
      this.#usage.found('small', id, 0);
    }
    if (record.where !== 'file') return;
    let bytes = 0;
    for (const [row, stored] of this.#store.scan('blocks', id)) {
      for (const { block } of blocksOfRow(row, stored)) {
        bytes += blockLength(block, record.sizeBytes);
        this.#usage.found('file', id, Math.floor(block / UNIT_BLOCKS));
      }
    }
    // Blocks that landed in the meantime are counted already and may not be stored yet.
    if (bytes > this.#usage.cachedBytes(id)) this.#usage.setCached(id, bytes);
    this.#usage.measured(id, this.#files.diskBytes(id, 'cache'));
    // None of its blocks is valid: measuring is the only way to get the file removed.
    if (bytes === 0) this.#usage.changed(id);
  }

  /** A file of an earlier run, whose record may not match it. */
  #tidyFile(id: ContentId, place: Place): void {
    const read = ifSound(() => ({ record: this.#store.get('content', id) }));
    // With a damaged record the file stays: it may be a draft, whose bytes exist nowhere else.
    if (read === undefined) return;
    const { record } = read;
    if (record === undefined) this.#files.remove(id);
    else if (record.where !== 'file') {
      // The earlier run was killed during the first fetch or write, before a record named the file: none of its bytes is ever read.
      if (!this.#files.wasMade(id) && !this.#files.isHeld(id)) this.#files.remove(id);
    } else if (place === 'drafts' && record.kind === 'version') {
      // The earlier run was killed before the move: in its old place the file would not be counted.
      this.#files.find(id, 'cache');
      this.#usage.changed(id);
    }
  }

  /** A failed removal does not block the others: otherwise the same portion would be retried endlessly. */
  #destroyOrLeave(tx: Transaction, id: ContentId): void {
    try {
      this.#destroy(tx, id);
    } catch (err) {
      this.#left.add(id);
      this.#log.warn({ err, content: id }, 'content not collected');
    }
  }

  /** Throws before any change, or not at all. */
  #destroy(tx: Transaction, id: ContentId): void {
    const record = tx.get('content', id);
    if (record === undefined || record.refs > 0) {
      tx.remove('garbage', id);
      return;
    }
    const { base, version } = record;
    // A base whose row is damaged lost its count with it.
    if (base !== null) ifSound(() => countReference(tx, base, -1));
    tx.remove('garbage', id);
    tx.remove('content', id);
    if (record.where === 'inline') tx.remove('inline', id);
    if (version !== null && ifSound(() => tx.get('version', version)) === id) tx.remove('version', version);
    removeBlockRows(tx, id);
    tx.afterCommit(() => {
      this.#eviction.releaseBase(id);
      this.#forget(id);
      this.#usage.forget(id, record.sizeBytes);
      if (record.where === 'file') this.#doomed.push(id);
      else this.#files.remove(id);
    });
  }

  /** Records first, then files: otherwise a power cut that loses the removal's records would restore names without bytes. */
  #removeFiles(): void {
    const doomed = this.#doomed.splice(0);
    if (doomed.length === 0) return;
    this.#store
      .sync()
      .then(() => {
        for (const id of doomed) this.#files.remove(id);
      })
      .catch((err: unknown) =>
        this.#log.warn({ err, count: doomed.length }, 'files without a record stay until the next start'),
      );
  }
}

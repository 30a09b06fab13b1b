import { existsSync } from 'node:fs';
import type { Clock } from '../base/clock.ts';
import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { NativeFiles } from '../base/native.ts';
import type { ContentId, Extent, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import { type Disk, systemDisk } from '../store/disk.ts';
import { indexBytes } from '../store/index-file.ts';
import { countReference, ifSound } from '../store/node-table.ts';
import type { ContentRecord, StoreWriter, Transaction } from '../store/tables.ts';
import { CacheEviction, type EvictionBurst } from './cache-eviction.ts';
import { CacheUsage } from './cache-usage.ts';
import { ContentCollector } from './content-collector.ts';
import { ContentFiles, type HolePunch } from './content-files.ts';
import { ContentLayers, isLayered } from './content-layers.ts';
import { ContentSync } from './content-sync.ts';
import type { CacheFigures, Contents, DraftBase, GivenUp, Lease, Piece, Presence } from './contents.ts';
import type { Draft } from './draft.ts';
import { DraftChecksums } from './draft-checksums.ts';
import { clip } from './extents.ts';
import { LayerMerge } from './layer-merge.ts';
import { LayerValidity } from './layer-validity.ts';
import { OpenDrafts } from './open-drafts.ts';
import { SmallBytes } from './small-bytes.ts';
import { VersionBlocks } from './version-blocks.ts';
import type { WritePace } from './write-pace.ts';

export interface ContentStoreDeps {
  readonly store: StoreWriter;
  /** The store's directory: content files lie in `drafts/` and `cache/` below it. */
  readonly directory: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly options: ContentStoreOptions;
  /** Stands between the content files and the file system in tests. */
  readonly disk?: Disk;
  /** Hole punching; null: none. Default: our addon, if it is built. */
  readonly holes?: HolePunch | null;
  /** Detects throttled writes; without it, writes block. */
  readonly pace?: WritePace;
  /** Whether the user pinned a content, so that it is never evicted; default: none. */
  readonly isKept?: (content: ContentId) => boolean;
  readonly onEviction?: (burst: EvictionBurst) => void;
  /** Bytes of a frozen draft were found damaged, once for each draft. */
  readonly onDamagedDraft?: (content: ContentId) => void;
  /** Boot id of the machine; tests change it. */
  readonly bootId?: string | null;
}

export interface ContentStoreOptions {
  /** Contents up to this size live in the journal and LMDB. */
  readonly inlineMaxBytes: number;
  /** Budget of clean blocks. */
  readonly cacheBytes: number;
  /** Free space that read caching leaves on the disk. */
  readonly reserveBytes?: number;
}

/**
 * The bytes of all contents: small ones in LMDB, larger ones in one sparse file each.
 *
 * Drafts change in memory and in their file; after a crash their last record counts (`flush`). Acknowledged drafts
 * become versions in place (`adopt`), with their layers, which are merged in the background (`mergeLayers`).
 */
export class ContentStore implements Contents {
  readonly #store: StoreWriter;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #options: ContentStoreOptions;
  readonly #files: ContentFiles;
  readonly #usage = new CacheUsage();
  readonly #blocks: VersionBlocks;
  readonly #checksums: DraftChecksums;
  readonly #layers: ContentLayers;
  readonly #eviction: CacheEviction;
  readonly #merge: LayerMerge;
  readonly #collector: ContentCollector;
  readonly #drafts: OpenDrafts;
  readonly #validity: LayerValidity;
  readonly #small: SmallBytes;
  readonly #sync: ContentSync;

  constructor(deps: ContentStoreDeps) {
    const { store, directory, clock, log } = deps;
    this.#store = store;
    this.#clock = clock;
    this.#log = log;
    this.#options = deps.options;
    this.#validity = new LayerValidity({ store, log, bootId: deps.bootId });
    const onDamagedDraft = deps.onDamagedDraft ?? (() => {});
    this.#small = new SmallBytes({ store, log, onDamagedDraft });
    const holes = deps.holes === undefined ? addonHoles(log) : deps.holes;
    this.#files = new ContentFiles({
      ...{ directory, disk: deps.disk ?? systemDisk, holes },
      pace: deps.pace ?? null,
    });
    const files = this.#files;
    const usage = this.#usage;
    this.#blocks = new VersionBlocks({ store, files, usage, clock, log });
    this.#checksums = new DraftChecksums({ store, files, blocks: this.#blocks, log, onDamagedDraft });
    this.#layers = new ContentLayers({
      files,
      log,
      source: {
        draft: (id) => this.#drafts.get(id),
        record: (id) => this.#known(id),
        inlineBytes: (id) => this.#small.of(id),
        blockMap: (id) => this.#blocks.map(id),
        mayBePresentAt: (id, from) => this.#blocks.mayBePresentAt(id, from),
        memoryBlock: (id, block) => this.#blocks.memoryBlock(id, block),
        trustsLayers: (id) => this.#validity.isGiven(id),
        damaged: (id, block, sizeBytes, below) => this.#blocks.damaged(id, block, sizeBytes, below),
        lost: (id) => this.#merge.distrust(id),
        checkFrozen: (id, record, start, end) => this.#checksums.check(id, record, start, end),
      },
    });
    const { cacheBytes, reserveBytes = 0 } = deps.options;
    this.#eviction = new CacheEviction({
      ...{ store, files, usage, clock, log, directory, cacheBytes, reserveBytes },
      blocks: this.#blocks,
      indexBytes: () => indexBytes(directory),
      isKept: deps.isKept ?? (() => false),
      onBurst: deps.onEviction,
    });
    this.#drafts = new OpenDrafts({
      store,
      files,
      usage,
      eviction: this.#eviction,
      inlineBytesMax: deps.options.inlineMaxBytes,
      lease: (id) => this.lease(id),
    });
    this.#sync = new ContentSync({
      ...{ store, files, log, drafts: this.#drafts, checksums: this.#checksums },
      lease: (id) => this.lease(id),
    });
    this.#merge = new LayerMerge({
      store,
      files,
      blocks: this.#blocks,
      eviction: this.#eviction,
      usage,
      log,
      inlineMaxBytes: deps.options.inlineMaxBytes,
      contents: this,
      toFile: (id) => this.#toFile(id),
    });
    this.#collector = new ContentCollector({
      store,
      files,
      usage,
      eviction: this.#eviction,
      merge: this.#merge,
      log,
      trustsLayers: (id) => this.#validity.isGiven(id),
      frozen: (id) => {
        if (!this.#checksums.has(id)) this.#sync.soon(id);
      },
      forget: (id) => this.#forget(id),
    });
  }

  record(id: ContentId): ContentRecord | undefined {
    return this.#store.get('content', id);
  }

  versionContent(tx: Transaction, version: VersionUrl, resource: ResourceUrl, sizeBytes: number): ContentId {
    const known = tx.get('version', version);
    if (known !== undefined && tx.get('content', known) !== undefined) return known;
    const id = tx.nextId('content') as ContentId;
    tx.put('content', id, { ...EMPTY, kind: 'version', sealed: true, sizeBytes, version, resource });
    tx.put('version', version, id);
    return id;
  }

  inlineContent(tx: Transaction, bytes: Uint8Array): ContentId {
    const id = tx.nextId('content') as ContentId;
    const sizeBytes = bytes.byteLength;
    const [where, extents] = sizeBytes === 0 ? (['none', []] as const) : (['inline', [0, sizeBytes]] as const);
    tx.put('content', id, { ...EMPTY, kind: 'draft', sealed: true, sizeBytes, where, extents });
    if (sizeBytes > 0) tx.put('inline', id, bytes.slice());
    return id;
  }

  createDraft(tx: Transaction, base: DraftBase | null): ContentId {
    const id = tx.nextId('content') as ContentId;
    const under = base !== null && base.sizeBytes > 0 ? base.content : null;
    const sizeBytes = base?.sizeBytes ?? 0;
    const record: ContentRecord = {
      ...{ ...EMPTY, kind: 'draft', sealed: false, sizeBytes },
      base: under,
      baseBytes: sizeBytes,
    };
    tx.put('content', id, record);
    if (under !== null) {
      countReference(tx, under, 1);
      tx.afterCommit(() => this.#eviction.protectBase(id, under));
    }
    this.#drafts.begin(id, record, undefined);
    return id;
  }

  sizeOf(id: ContentId): number {
    return this.#layers.sizeOf(id);
  }

  write(draft: ContentId, offset: number, data: Uint8Array): void {
    this.#drafts.open(draft).write(offset, data);
  }

  writeAtPace(draft: ContentId, offset: number, data: Uint8Array): void | Promise<void> {
    return this.#drafts.open(draft).writeAtPace(offset, data);
  }

  isBeingWritten(draft: ContentId): boolean {
    return this.#drafts.get(draft)?.isBeingWritten ?? false;
  }

  truncate(draft: ContentId, sizeBytes: number): void {
    this.#drafts.open(draft).truncate(sizeBytes);
  }

  zero(draft: ContentId, extent: Extent): void {
    const open = this.#drafts.open(draft);
    open.zero(clip(extent, open.sizeBytes));
  }

  get unflushed(): Contents['unflushed'] {
    return this.#drafts;
  }

  isUnflushed(draft: ContentId): boolean {
    return this.#drafts.get(draft)?.isUnflushed ?? false;
  }

  flush(tx: Transaction, id: ContentId): void {
    this.#drafts.flush(tx, id);
  }

  putDown(id: ContentId): boolean {
    if (this.#drafts.hasChangers(id)) return false;
    const isLoss = this.isUnflushed(id);
    // A lost change is dropped even if readers or a sync hold the draft: it would be pushed although close(2) reported its loss.
    if (!isLoss && this.#files.isHeld(id)) return false;
    this.#drafts.putDown(id);
    return isLoss;
  }

  seal(tx: Transaction, id: ContentId): void {
    if (this.isBeingWritten(id)) throw new Error(`content ${id} is being written`);
    this.flush(tx, id);
    const record = tx.get('content', id);
    if (record === undefined) throw new StorageError(`content ${id} is not there`);
    if (!record.sealed) tx.put('content', id, { ...record, sealed: true });
    tx.afterCommit(() => {
      this.#drafts.putDown(id);
      if (record.where === 'file') this.#sync.soon(id);
    });
  }

  syncFile(id: ContentId): Promise<void> {
    return this.#sync.sync(id);
  }

  pieces(id: ContentId, extent: Extent): Piece[] {
    const { start, end } = clip(extent, this.sizeOf(id));
    const record = this.#store.get('content', id);
    if (record?.kind === 'version')
      this.#usage.touch(record.where === 'inline' ? 'small' : 'file', id, start, end, this.#clock.elapsedMs());
    return this.#layers.resolve(id, start, end);
  }

  presence(id: ContentId, sizeBytes: number): Presence {
    return this.#layers.presence(id, sizeBytes);
  }

  readAll(id: ContentId, extent: Extent): Uint8Array | null {
    const { start, end } = clip(extent, this.sizeOf(id));
    const pieces = this.#layers.resolve(id, start, end);
    if (pieces.some((piece) => piece.kind === 'missing')) return null;
    const bytes = new Uint8Array(end - start);
    let at = 0;
    for (const piece of pieces) {
      if (piece.kind === 'bytes') bytes.set(piece.bytes, at);
      else if (piece.kind === 'slice')
        this.#files.readSlice(piece.fd, bytes.subarray(at, at + piece.length), piece.position);
      at += piece.length;
    }
    return bytes;
  }

  nextData(id: ContentId, offset: number): Extent | null {
    return this.#layers.nextData(id, offset);
  }

  fetchPath(version: ContentId): string | null {
    const record = this.#known(version);
    if (record.sizeBytes <= this.#options.inlineMaxBytes || !this.#eviction.hasRoom()) return null;
    this.#toFile(version);
    const path = this.#files.find(version, 'cache');
    if (path !== null && !existsSync(path)) {
      // The file was removed from outside. Its replacement has no valid blocks: own ranges would be read from it as zeros.
      if (isLayered(record)) this.#merge.distrust(version);
      this.#blocks.map(version).remade();
      this.#files.create(version, 'cache');
    }
    return path;
  }

  landed(version: ContentId, extent: Extent, bytes: Uint8Array | null, checksums?: ReadonlyMap<number, number>): void {
    const record = this.record(version);
    if (record === undefined) return;
    const { sizeBytes } = record;
    const range = clip(extent, sizeBytes);
    if (bytes === null) {
      this.#blocks.arrived(version, range, sizeBytes, checksums);
    } else if (sizeBytes > this.#options.inlineMaxBytes || range.start > 0 || range.end < sizeBytes) {
      this.#blocks.arrivedInMemory(version, range, bytes, sizeBytes);
    } else {
      try {
        this.#store.transact((tx) => this.#merge.becomeInline(tx, version, bytes.slice(0, sizeBytes)));
      } catch (error) {
        if (!(error instanceof StorageError)) throw error;
        this.#blocks.arrivedInMemory(version, range, bytes, sizeBytes);
      }
    }
    this.#eviction.evict();
  }

  watchGivenUp(version: ContentId): GivenUp {
    return this.#blocks.map(version).watchGivenUp();
  }

  adopt(tx: Transaction, id: ContentId, version: VersionUrl, resource: ResourceUrl): void {
    this.flush(tx, id);
    const record = tx.get('content', id);
    if (record === undefined) throw new StorageError(`content ${id} is not there`);
    tx.put('content', id, { ...record, kind: 'version', sealed: true, version, resource });
    tx.put('version', version, id);
    const isSmall = record.sizeBytes <= this.#options.inlineMaxBytes;
    const checkedBytes = this.#checksums.hand(tx, id, record, isSmall ? 'none' : 'whole blocks');
    tx.afterCommit(() => {
      this.#drafts.putDown(id);
      this.#usage.setDraft(id, 0);
      this.#usage.setCached(id, checkedBytes);
      if (checkedBytes > 0) this.#usage.touch('file', id, 0, record.sizeBytes, this.#clock.elapsedMs());
      this.#validity.adopted(id);
      if (record.where === 'file') this.#moveToCache(id);
      this.#blocks.forget(id);
      this.#merge.add(id);
    });
  }

  async mergeLayers(signal: AbortSignal): Promise<void> {
    await this.#merge.run(signal);
  }

  lease(id: ContentId, use: 'open' | 'changing' | 'copying' = 'open'): Lease {
    const held: ContentId[] = [];
    if (use === 'changing') this.#drafts.beginChanging(id);
    for (let at: ContentId | null = id; at !== null; ) {
      held.push(at);
      this.#files.hold(at);
      if (use === 'copying') this.#eviction.beginCopy(at);
      const open: Draft | undefined = this.#drafts.get(at);
      // The base chain stops at a damaged record: reads of it fail, and the lease covers the layers above.
      const here: ContentId = at;
      at = open === undefined ? (ifSound(() => this.record(here))?.base ?? null) : open.base;
    }
    let released = false;
    return {
      content: id,
      release: () => {
        if (released) return;
        released = true;
        if (use === 'changing') this.#drafts.endChanging(id);
        for (const each of held) {
          if (use === 'copying') this.#eviction.endCopy(each);
          this.#files.release(each);
        }
      },
    };
  }

  collect(): boolean {
    this.#drafts.putDownIdle();
    this.#blocks.save();
    const isMore = this.#collector.collect();
    this.#eviction.measure();
    this.#eviction.evict();
    return isMore;
  }

  /** Whether the budget is exceeded, or the disk usage of some file is not measured yet: `collect` is due again soon. */
  isUnsettled(): boolean {
    return this.#usage.hasUnmeasured || this.#eviction.isOver;
  }

  evictVersion(version: ContentId): Generator<void, number | null> {
    return this.#eviction.evictVersion(version);
  }

  usage(): CacheFigures {
    const { fileBytes, smallBytes, draftBytes } = this.#usage;
    return { cacheBytes: fileBytes + smallBytes, draftBytes, diskBytes: this.#eviction.diskBytes };
  }

  overBudgetBytes(): number {
    return this.#eviction.overBudgetBytes;
  }

  /**
   * Takes stock of the state of earlier runs (sizes, unmerged layers, orphaned files), in short turns. Eviction waits until it
   * has resolved to true. Call it after the store was opened, and again after a failure.
   *
   * @returns whether the stock-taking is complete. Never rejects
   */
  async takeStock(signal: AbortSignal): Promise<boolean> {
    const isTaken = await this.#collector.takeStock(signal);
    if (isTaken) this.#validity.lookedThrough();
    return isTaken;
  }

  /** Stores block maps and closes the files; the store itself is closed by its owner, after this. */
  close(): void {
    this.#sync.close();
    this.#blocks.close();
    this.#files.closeAll();
  }

  #known(id: ContentId): ContentRecord {
    const record = this.#store.get('content', id);
    if (record === undefined) throw new StorageError(`content ${id} is not there`);
    return record;
  }

  #moveToCache(id: ContentId): void {
    try {
      this.#files.move(id, 'drafts', 'cache');
    } catch (err) {
      // The file is used in its old place; the next start finds it there.
      this.#log.warn({ err, content: id }, 'content file not moved');
    }
  }

  /** Creates a version's file if necessary, including its own ranges if it has layers. */
  #toFile(id: ContentId): void {
    const record = this.#known(id);
    if (record.where === 'file' || this.#files.wasMade(id)) return;
    this.#files.create(id, 'cache');
    const own = record.where === 'inline' ? this.#small.of(id) : null;
    if (own === 'damaged') {
      this.#merge.distrust(id);
      return;
    }
    if (own !== null && isLayered(record)) {
      for (let at = 0; at < record.extents.length; at += 2) {
        const start = record.extents[at] as number;
        this.#files.write(id, 'cache', own.subarray(start, record.extents[at + 1]), start);
      }
      this.#store.transact((tx) => {
        const now = tx.get('content', id);
        if (now === undefined) return;
        tx.put('content', id, { ...now, where: 'file' });
        tx.remove('inline', id);
      });
    }
    this.#blocks.forget(id);
  }

  /** The content was removed from the store. */
  #forget(id: ContentId): void {
    this.#drafts.putDown(id);
    this.#blocks.forget(id);
  }
}

const EMPTY: Omit<ContentRecord, 'kind' | 'sealed' | 'sizeBytes'> = {
  version: null,
  resource: null,
  where: 'none',
  base: null,
  baseBytes: 0,
  extents: [],
  refs: 0,
};

function addonHoles(log: Logger): HolePunch | null {
  try {
    return new NativeFiles();
  } catch (err) {
    log.warn({ err }, 'holes cannot be punched: whole contents are evicted');
    return null;
  }
}

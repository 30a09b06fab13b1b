import { statfsSync } from 'node:fs';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import { BLOCK_BYTES, type ContentId } from '../base/vocabulary.ts';
import { ifSound } from '../store/node-table.ts';
import type { ContentRecord, StoreWriter } from '../store/tables.ts';
import { blockLength } from './block-map.ts';
import { type CacheKind, type CacheUnit, type CacheUsage, UNIT_BLOCKS, UNIT_BYTES } from './cache-usage.ts';
import type { ContentFiles } from './content-files.ts';
import { isLayered } from './content-layers.ts';
import { removeBlockRows, type VersionBlocks } from './version-blocks.ts';

const UNITS_PER_CALL_MAX = 64;
/** A block of a leased content that was unused for this long may be evicted, unless it is being copied (`beginCopy`). */
const LEASED_IDLE_MS = 30_000;
/** Excess over the budget up to which that idle time applies. Beyond it, leased contents keep only their most recent blocks. */
const LEASED_OVER_BYTES_MAX = 32 * 1024 * 1024;
const ROOM_CHECK_MS = 1000;
const MEASURED_PER_CALL_MAX = 256;

/** A burst of evictions ends when nothing was evicted for so long: a long read evicts all the time. */
const BURST_QUIET_MS = 30_000;
/** Longest time until an eviction is reported. */
const BURST_MS_MAX = 600_000;
const BURST_CONTENTS_MAX = 10_000;

/** Why cached bytes were evicted, and how many. */
export interface EvictionBurst {
  readonly reason: 'cache-size' | 'cache-reserve';
  readonly bytes: number;
  readonly contents: number;
}

interface Hole {
  readonly id: ContentId;
  readonly start: number;
  readonly end: number;
}

/**
 * Keeps clean blocks within their budget, evicting the least recently used first. Drafts are never evicted, nor are their bases, which
 * the service may have dropped.
 */
export class CacheEviction {
  readonly #store: StoreWriter;
  readonly #files: ContentFiles;
  readonly #usage: CacheUsage;
  readonly #blocks: VersionBlocks;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #directory: string;
  readonly #indexBytes: () => number;
  readonly #cacheBytes: number;
  readonly #reserveBytes: number;
  readonly #isKept: (content: ContentId) => boolean;
  /** Which content each draft (or unsettled version) lies over. */
  readonly #baseOf = new Map<ContentId, ContentId>();
  readonly #draftsOver = new Map<ContentId, number>();
  /** Contents that are being copied, with the number of copies. */
  readonly #copies = new Map<ContentId, number>();
  #checkedMs = Number.NEGATIVE_INFINITY;
  #freeBytes = Number.POSITIVE_INFINITY;
  #lastIndexBytes = 0;
  readonly #onBurst: (burst: EvictionBurst) => void;
  #burst: {
    readonly reason: EvictionBurst['reason'];
    readonly contents: Set<ContentId>;
    readonly sinceMs: number;
    lastMs: number;
    bytes: number;
  } | null = null;
  #allowed = true;

  constructor(deps: {
    store: StoreWriter;
    files: ContentFiles;
    usage: CacheUsage;
    blocks: VersionBlocks;
    clock: Clock;
    log: Logger;
    directory: string;
    /** Disk space of LMDB's file. */
    indexBytes: () => number;
    cacheBytes: number;
    reserveBytes: number;
    /** Whether the user pinned it (`cfs pin`). */
    isKept: (content: ContentId) => boolean;
    onBurst?: ((burst: EvictionBurst) => void) | undefined;
  }) {
    this.#store = deps.store;
    this.#files = deps.files;
    this.#usage = deps.usage;
    this.#blocks = deps.blocks;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#directory = deps.directory;
    this.#indexBytes = deps.indexBytes;
    this.#cacheBytes = deps.cacheBytes;
    this.#reserveBytes = deps.reserveBytes;
    this.#isKept = deps.isKept;
    this.#onBurst = deps.onBurst ?? (() => {});
  }

  /** `draft` needs the cached blocks of `base`. */
  protectBase(draft: ContentId, base: ContentId): void {
    if (this.#baseOf.get(draft) === base) return;
    this.releaseBase(draft);
    this.#baseOf.set(draft, base);
    this.#draftsOver.set(base, (this.#draftsOver.get(base) ?? 0) + 1);
  }

  releaseBase(draft: ContentId): void {
    const base = this.#baseOf.get(draft);
    if (base === undefined) return;
    this.#baseOf.delete(draft);
    const count = (this.#draftsOver.get(base) ?? 0) - 1;
    if (count > 0) this.#draftsOver.set(base, count);
    else this.#draftsOver.delete(base);
  }

  /** Slices of `id` were handed out: none of its blocks is evicted until a matching `endCopy`. */
  beginCopy(id: ContentId): void {
    this.#copies.set(id, (this.#copies.get(id) ?? 0) + 1);
  }

  endCopy(id: ContentId): void {
    const count = (this.#copies.get(id) ?? 0) - 1;
    if (count > 0) this.#copies.set(id, count);
    else this.#copies.delete(id);
  }

  /** Suspends eviction until it is known which contents are bases of drafts. */
  suspend(): void {
    this.#allowed = false;
  }

  resume(): void {
    this.#allowed = true;
  }

  /** Whether read caching may take more of the disk (`--cache-reserve`). */
  hasRoom(): boolean {
    if (this.#reserveBytes === 0) return true;
    if (this.#shortBytes() > 0) this.evict();
    return this.#shortBytes() <= 0;
  }

  /** Disk space of content files and LMDB's file together, as last measured. */
  get diskBytes(): number {
    this.#look();
    return this.#usage.fileBytes + this.#lastIndexBytes;
  }

  /** Excess over the budget, bytes; drafts count as files here. */
  get overBudgetBytes(): number {
    this.#look();
    const { files, small } = sharesOf(this.#cacheBytes, this.#lastIndexBytes);
    const { fileBytes, draftBytes, smallCost } = this.#usage;
    return Math.max(0, fileBytes + draftBytes - files) + Math.max(0, smallCost - small);
  }

  /** Measures the disk space of changed content files; removes those without a complete block. */
  measure(): void {
    // Before the stock-taking, blocks of earlier runs are not counted: a file that holds them would look empty.
    if (!this.#allowed) return;
    for (const id of this.#usage.takeUnmeasured(MEASURED_PER_CALL_MAX)) {
      const record = this.#sound(id);
      if (record?.kind !== 'version' || record.where === 'inline') continue;
      const diskBytes = this.#files.diskBytes(id, 'cache');
      this.#usage.measured(id, diskBytes);
      if (diskBytes === 0 || this.#usage.cachedBytes(id) > 0 || isLayered(record)) continue;
      // An interrupted range leaves a part of its last block.
      if (this.#files.isHeld(id)) this.#usage.changed(id);
      else this.#removeFile(id);
    }
  }

  /** Evicts down to the budget, a bounded piece of it per call. */
  evict(): void {
    if (!this.#allowed) return;
    const { filesOver, smallOver, reason } = this.#excess();
    if (filesOver > 0) this.#evict('file', filesOver, reason);
    // Frees no disk space, only room in LMDB's file.
    if (smallOver > 0) this.#evict('small', smallOver, 'cache-size');
    this.#reportBurst();
  }

  /** Whether `evict` has more to do, or would have if it were allowed or found something to evict. */
  get isOver(): boolean {
    const { filesOver, smallOver } = this.#excess();
    return filesOver > 0 || smallOver > 0;
  }

  #excess(): { readonly filesOver: number; readonly smallOver: number; readonly reason: EvictionBurst['reason'] } {
    this.#look();
    const { files, small } = sharesOf(this.#cacheBytes, this.#lastIndexBytes);
    const overSize = this.#usage.fileBytes - files;
    const short = this.#reserveBytes > 0 ? this.#shortBytes() : 0;
    return {
      filesOver: Math.max(overSize, short),
      smallOver: this.#usage.smallCost - small,
      reason: short > overSize ? 'cache-reserve' : 'cache-size',
    };
  }

  /** Reports a burst that is over. */
  #reportBurst(): void {
    const burst = this.#burst;
    if (burst === null) return;
    const nowMs = this.#clock.elapsedMs();
    const isOver = nowMs - burst.lastMs >= BURST_QUIET_MS || nowMs - burst.sinceMs >= BURST_MS_MAX;
    if (!isOver && burst.contents.size < BURST_CONTENTS_MAX) return;
    this.#burst = null;
    const { reason, bytes, contents } = burst;
    this.#log.info({ reason, bytes, contents: contents.size }, 'cached blocks evicted');
    this.#onBurst({ reason, bytes, contents: contents.size });
  }

  /**
   * Deletes all cached blocks of a version, in steps.
   *
   * @returns the freed bytes; null if something needs them: a draft over it, a reader, a merge of its layers, or a pin
   */
  *evictVersion(id: ContentId): Generator<void, number | null> {
    const isNeeded = (): boolean =>
      !this.#allowed || this.#copies.has(id) || this.#draftsOver.has(id) || this.#files.isHeld(id) || this.#isKept(id);
    const record = this.#sound(id);
    if (record?.kind !== 'version' || isLayered(record) || isNeeded()) return null;
    let freed = 0;
    // Without holes the first unit takes the whole file with it.
    const isOne = record.where === 'inline' || !this.#files.canPunchHoles;
    const units = isOne ? 1 : Math.ceil(record.sizeBytes / UNIT_BYTES);
    for (let first = 0; first < units; first += UNITS_PER_CALL_MAX) {
      if (first > 0) yield;
      if (isNeeded()) return null;
      const holes: Hole[] = [];
      for (let unit = first; unit < Math.min(units, first + UNITS_PER_CALL_MAX); unit++)
        freed += this.#clear({ content: id, unit, usedMs: 0 }, holes);
      // Store the map first: a block that it names must be present.
      this.#blocks.save();
      for (const { start, end } of holes) this.#files.punch(id, 'cache', start, end);
    }
    if (record.where !== 'inline' && this.#usage.cachedBytes(id) === 0) this.#removeFile(id);
    this.#checkedMs = Number.NEGATIVE_INFINITY;
    return freed;
  }

  #evict(kind: CacheKind, overBytes: number, reason: EvictionBurst['reason']): void {
    let over = overBytes;
    const nowMs = this.#clock.elapsedMs();
    const holes: Hole[] = [];
    const emptied = new Set<ContentId>();
    let units = 0;
    for (const unit of this.#usage.units(kind)) {
      if (over <= 0 || units >= UNITS_PER_CALL_MAX) break;
      const { content: id } = unit;
      if (this.#copies.has(id)) continue;
      const isInUse = this.#files.isHeld(id) && nowMs - unit.usedMs < LEASED_IDLE_MS && over <= LEASED_OVER_BYTES_MAX;
      if (this.#draftsOver.has(id) || isInUse) continue;
      if (!this.#files.canPunchHoles && this.#files.isHeld(id)) continue;
      const read = ifSound(() => ({ record: this.#store.get('content', id) }));
      // If a block of it is missing, a read would return the own ranges below it.
      if (read?.record !== undefined && isLayered(read.record)) continue;
      units++;
      if (read === undefined) {
        // Damaged: its disk space stays in use, and later calls skip it.
        this.#usage.forgetUnit(unit);
        continue;
      }
      if (this.#isKept(id)) {
        // Later calls reach it last.
        this.#usage.putBack(kind, unit);
        continue;
      }
      const freed = this.#clear(unit, holes);
      over -= freed;
      emptied.add(id);
      this.#burst ??= { reason, contents: new Set(), sinceMs: nowMs, lastMs: nowMs, bytes: 0 };
      this.#burst.lastMs = nowMs;
      this.#burst.bytes += freed;
      this.#burst.contents.add(id);
    }
    // Store the map first: a block that it names must be present.
    this.#blocks.save();
    for (const { id, start, end } of holes) this.#files.punch(id, 'cache', start, end);
    for (const id of emptied) if (this.#usage.cachedBytes(id) === 0) this.#removeFile(id);
    if (holes.length > 0) this.#checkedMs = Number.NEGATIVE_INFINITY;
    this.#log.debug(
      { kind, units, fileBytes: this.#usage.fileBytes, smallBytes: this.#usage.smallBytes },
      'blocks evicted',
    );
  }

  /** Forgets the blocks of a unit (of the whole content where holes cannot be punched); returns their bytes. */
  #clear(unit: CacheUnit, holes: Hole[]): number {
    const { content: id } = unit;
    this.#usage.forgetUnit(unit);
    const record = this.#store.get('content', id);
    if (record === undefined || record.kind !== 'version') return 0;
    if (record.where === 'inline') return this.#clearInline(id, record);
    const map = this.#blocks.map(id);
    const whole = !this.#files.canPunchHoles;
    if (whole) this.#usage.forgetUnits(id, record.sizeBytes);
    const first = whole ? 0 : unit.unit * UNIT_BLOCKS;
    const end = Math.min(
      whole ? Number.POSITIVE_INFINITY : first + UNIT_BLOCKS,
      Math.ceil(record.sizeBytes / BLOCK_BYTES),
    );
    let freed = 0;
    for (let block = first; block < end; block++) {
      if (!map.isPresent(block)) continue;
      const length = blockLength(block, record.sizeBytes);
      this.#blocks.cleared(id, block);
      freed += length;
      const start = block * BLOCK_BYTES;
      const last = holes.at(-1);
      if (last?.id === id && last.end === start) holes[holes.length - 1] = { ...last, end: start + length };
      else holes.push({ id, start, end: start + length });
    }
    this.#usage.addCached(id, -freed);
    return freed;
  }

  /** A small version, stored with its name. */
  #clearInline(id: ContentId, record: ContentRecord): number {
    try {
      this.#store.transact((tx) => {
        tx.put('content', id, { ...record, where: 'none' });
        tx.remove('inline', id);
      }, 'freeing');
    } catch (err) {
      this.#log.warn({ err, content: id }, 'small content not evicted');
      return 0;
    }
    const before = this.#usage.smallCost;
    this.#usage.setSmall(id, 0);
    return before - this.#usage.smallCost;
  }

  /** Undefined also if its row is damaged: such a content is skipped and does not block others. */
  #sound(id: ContentId): ContentRecord | undefined {
    return ifSound(() => this.#store.get('content', id));
  }

  #removeFile(id: ContentId): void {
    const record = this.#sound(id);
    if (record === undefined || record.where === 'inline' || isLayered(record) || this.#files.isHeld(id)) return;
    try {
      if (record.where === 'file')
        this.#store.transact((tx) => {
          tx.put('content', id, { ...record, where: 'none' });
          removeBlockRows(tx, id);
        }, 'freeing');
      this.#files.remove(id);
      this.#blocks.forget(id);
      this.#usage.measured(id, 0);
    } catch (err) {
      this.#log.warn({ err, content: id }, 'empty content file not removed');
    }
  }

  /** Bytes missing from the reserve. */
  #shortBytes(): number {
    this.#look();
    return this.#reserveBytes - this.#freeBytes;
  }

  /** Updates the disk's free space and the length of LMDB's file, once in a while. */
  #look(): void {
    const nowMs = this.#clock.elapsedMs();
    if (nowMs - this.#checkedMs <= ROOM_CHECK_MS) return;
    const { bavail, bsize } = statfsSync(this.#directory);
    this.#freeBytes = bavail * bsize;
    this.#lastIndexBytes = this.#indexBytes();
    this.#checkedMs = nowMs;
  }
}

/** The share of `--cache-size` for each kind of cached content, bytes. */
export interface CacheShares {
  /** Disk space of content files. */
  readonly files: number;
  /** Space of small contents within LMDB's file. */
  readonly small: number;
}

/**
 * Divides `--cache-size`, which counts content files and LMDB's file. LMDB's file holds names and small contents and never
 * shrinks. Content files get the rest, but at least half of the whole: otherwise a long list of names would leave no cache.
 * Small contents get at most half, because the growth of LMDB's file is permanently lost to content files.
 */
export function sharesOf(limitBytes: number, indexBytes: number): CacheShares {
  const half = Math.floor(limitBytes / 2);
  return { files: Math.max(limitBytes - indexBytes, half), small: half };
}

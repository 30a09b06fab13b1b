import type { ContentId } from '../base/vocabulary.ts';
import { BLOCK_BYTES } from '../base/vocabulary.ts';

/** Unit of eviction: 8 blocks, about the size of one fetch. */
export const UNIT_BLOCKS = 8;
export const UNIT_BYTES = UNIT_BLOCKS * BLOCK_BYTES;
/** Units beyond this number have strings as keys. */
const NUMBERED_UNITS = 2 ** 20;

/** Small contents live in LMDB's file, the others each in one of its own. */
export type CacheKind = 'file' | 'small';

type UnitKey = number | string;

export interface CacheUnit {
  readonly content: ContentId;
  readonly unit: number;
  /** Last use by `elapsedMs`; 0 if not used in this run. */
  usedMs: number;
}

/**
 * Disk space of drafts and clean blocks, and the LRU order of the clean ones.
 *
 * A content file is counted by the lengths of its blocks as they arrive and leave. From time to time the file system's figure corrects
 * that (`measured`): it includes parts of blocks, own ranges of unmerged versions and blocks that could not be punched.
 */
export class CacheUsage {
  /** Least recently used first. */
  readonly #units: Readonly<Record<CacheKind, Map<UnitKey, CacheUnit>>> = { file: new Map(), small: new Map() };
  readonly #cached = new Map<ContentId, number>();
  /** Disk space of a file beyond the lengths of its blocks; below 0 if the file system needs less. */
  readonly #excess = new Map<ContentId, number>();
  readonly #small = new Map<ContentId, number>();
  readonly #drafts = new Map<ContentId, number>();
  readonly #unmeasured = new Set<ContentId>();
  #fileBytes = 0;
  #smallBytes = 0;
  #smallCost = 0;
  #draftBytes = 0;

  /** Disk space of clean content files. */
  get fileBytes(): number {
    return this.#fileBytes;
  }

  /** Lengths of clean small contents. */
  get smallBytes(): number {
    return this.#smallBytes;
  }

  /** Estimated space of the clean small contents in LMDB's file. */
  get smallCost(): number {
    return this.#smallCost;
  }

  get draftBytes(): number {
    return this.#draftBytes;
  }

  /** Blocks of a clean content file arrived (or went, `bytes` below 0). */
  addCached(id: ContentId, bytes: number): void {
    this.setCached(id, Math.max(0, (this.#cached.get(id) ?? 0) + bytes));
  }

  cachedBytes(id: ContentId): number {
    return this.#cached.get(id) ?? 0;
  }

  setCached(id: ContentId, bytes: number): void {
    this.#fileBytes += bytes - (this.#cached.get(id) ?? 0);
    if (bytes > 0) this.#cached.set(id, bytes);
    else this.#cached.delete(id);
    this.#unmeasured.add(id);
  }

  /** A clean small content of `bytes` is present; 0: it was removed. */
  setSmall(id: ContentId, bytes: number): void {
    const before = this.#small.get(id) ?? 0;
    this.#smallBytes += bytes - before;
    this.#smallCost += costInIndex(bytes) - costInIndex(before);
    if (bytes > 0) this.#small.set(id, bytes);
    else this.#small.delete(id);
  }

  setDraft(id: ContentId, bytes: number): void {
    this.#draftBytes += bytes - (this.#drafts.get(id) ?? 0);
    if (bytes > 0) this.#drafts.set(id, bytes);
    else this.#drafts.delete(id);
  }

  /** Up to `count` contents whose files changed since they were measured. */
  takeUnmeasured(count: number): ContentId[] {
    const ids: ContentId[] = [];
    for (const id of this.#unmeasured) {
      if (ids.length === count) break;
      ids.push(id);
    }
    for (const id of ids) this.#unmeasured.delete(id);
    return ids;
  }

  get hasUnmeasured(): boolean {
    return this.#unmeasured.size > 0;
  }

  /** The file of a content is to be measured. */
  changed(id: ContentId): void {
    this.#unmeasured.add(id);
  }

  /** The file of a clean content takes `diskBytes`; 0: there is none. */
  measured(id: ContentId, diskBytes: number): void {
    const excess = diskBytes - (this.#cached.get(id) ?? 0);
    this.#fileBytes += excess - (this.#excess.get(id) ?? 0);
    if (excess === 0) this.#excess.delete(id);
    else this.#excess.set(id, excess);
  }

  /** The bytes from `start` to `end` are used now. */
  touch(kind: CacheKind, id: ContentId, start: number, end: number, nowMs: number): void {
    for (let unit = Math.floor(start / UNIT_BYTES); unit * UNIT_BYTES < end; unit++) this.#place(kind, id, unit, nowMs);
  }

  /** A unit present from an earlier run. */
  found(kind: CacheKind, id: ContentId, unit: number): void {
    if (!this.#units[kind].has(keyOf(id, unit))) this.#place(kind, id, unit, 0);
  }

  /** Units, least recently used first. The caller may forget the one it was handed. */
  units(kind: CacheKind): Iterable<CacheUnit> {
    return this.#units[kind].values();
  }

  /** Makes the unit the most recently used one. */
  putBack(kind: CacheKind, unit: CacheUnit): void {
    const key = keyOf(unit.content, unit.unit);
    if (this.#units[kind].delete(key)) this.#units[kind].set(key, unit);
  }

  forgetUnit({ content, unit }: CacheUnit): void {
    const key = keyOf(content, unit);
    for (const units of Object.values(this.#units)) units.delete(key);
  }

  forget(id: ContentId, sizeBytes: number): void {
    this.setCached(id, 0);
    this.measured(id, 0);
    this.#unmeasured.delete(id);
    this.setSmall(id, 0);
    this.setDraft(id, 0);
    this.forgetUnits(id, sizeBytes);
  }

  forgetUnits(id: ContentId, sizeBytes: number): void {
    const count = Math.ceil(sizeBytes / UNIT_BYTES);
    for (const units of Object.values(this.#units)) {
      if (count <= units.size) {
        for (let unit = 0; unit < count; unit++) units.delete(keyOf(id, unit));
      } else {
        for (const [key, { content }] of units) if (content === id) units.delete(key);
      }
    }
  }

  #place(kind: CacheKind, content: ContentId, unit: number, usedMs: number): void {
    const units = this.#units[kind];
    const key = keyOf(content, unit);
    const known = units.get(key);
    if (known !== undefined) {
      // Coarse on purpose: moving it at every use costs more than the precision is worth.
      if (usedMs - known.usedMs < 1000) return;
      units.delete(key);
    } else if (unit === 0) {
      // A content may move from its file into LMDB and back: it is in only one of them.
      this.#units[kind === 'file' ? 'small' : 'file'].delete(key);
    }
    units.set(key, { content, unit, usedMs });
  }
}

function keyOf(content: ContentId, unit: number): UnitKey {
  return unit < NUMBERED_UNITS ? content * NUMBERED_UNITS + unit : `${content}/${unit}`;
}

const PAGE_BYTES = 4096;
/** LMDB stores a longer value in overflow pages (approximate limit). */
const IN_LEAF_BYTES_MAX = 2000;
/** Key, header and checksum of a value. */
const ROW_BYTES = 40;
/** Leaves of a tree that was filled in any order are two thirds full. */
const LEAF_FILL = 2 / 3;

function costInIndex(bytes: number): number {
  if (bytes === 0) return 0;
  const row = bytes + ROW_BYTES;
  return row <= IN_LEAF_BYTES_MAX ? Math.ceil(row / LEAF_FILL) : Math.ceil(row / PAGE_BYTES) * PAGE_BYTES;
}

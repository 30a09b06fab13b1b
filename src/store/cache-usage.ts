import type { ContentId } from '../base/vocabulary.ts';
import { BLOCK_BYTES } from '../base/vocabulary.ts';

/** What is evicted as one piece: 8 blocks, as much as one fetch usually brings. */
export const UNIT_BLOCKS = 8;
export const UNIT_BYTES = UNIT_BLOCKS * BLOCK_BYTES;
const UNITS_PER_CONTENT = 2 ** 20;

export interface CacheUnit {
  readonly content: ContentId;
  readonly unit: number;
  /** Of the clock's elapsed time; 0 for what was not used in this run. */
  usedMs: number;
}

/** How many bytes drafts and clean blocks take, and which clean ones were used least recently. */
export class CacheUsage {
  /** Least recently used first. */
  readonly #units = new Map<number, CacheUnit>();
  readonly #cached = new Map<ContentId, number>();
  readonly #drafts = new Map<ContentId, number>();
  #cacheBytes = 0;
  #draftBytes = 0;

  get cacheBytes(): number {
    return this.#cacheBytes;
  }

  get draftBytes(): number {
    return this.#draftBytes;
  }

  /** Blocks of a clean content file arrived (or went, `bytes` below 0). */
  addCached(id: ContentId, bytes: number): void {
    const now = Math.max(0, (this.#cached.get(id) ?? 0) + bytes);
    this.setCached(id, now);
  }

  cachedBytes(id: ContentId): number {
    return this.#cached.get(id) ?? 0;
  }

  setCached(id: ContentId, bytes: number): void {
    this.#cacheBytes += bytes - (this.#cached.get(id) ?? 0);
    if (bytes > 0) this.#cached.set(id, bytes);
    else this.#cached.delete(id);
  }

  setDraft(id: ContentId, bytes: number): void {
    this.#draftBytes += bytes - (this.#drafts.get(id) ?? 0);
    if (bytes > 0) this.#drafts.set(id, bytes);
    else this.#drafts.delete(id);
  }

  /** The bytes of `extent` are used now. */
  touch(id: ContentId, start: number, end: number, nowMs: number): void {
    for (let unit = Math.floor(start / UNIT_BYTES); unit * UNIT_BYTES < end; unit++) this.#place(id, unit, nowMs);
  }

  /** Known to be here from an earlier run. */
  found(id: ContentId, unit: number): void {
    if (!this.#units.has(id * UNITS_PER_CONTENT + unit)) this.#place(id, unit, 0);
  }

  /** Units, least recently used first. The caller may forget the one it was handed. */
  units(): Iterable<CacheUnit> {
    return this.#units.values();
  }

  /** It is looked at last from now on, as if it had just been used. */
  putBack(unit: CacheUnit): void {
    const key = unit.content * UNITS_PER_CONTENT + unit.unit;
    if (this.#units.delete(key)) this.#units.set(key, unit);
  }

  forgetUnit({ content, unit }: CacheUnit): void {
    this.#units.delete(content * UNITS_PER_CONTENT + unit);
  }

  forget(id: ContentId, sizeBytes: number): void {
    this.setCached(id, 0);
    this.setDraft(id, 0);
    this.forgetUnits(id, sizeBytes);
  }

  forgetUnits(id: ContentId, sizeBytes: number): void {
    const count = Math.ceil(sizeBytes / UNIT_BYTES);
    if (count <= this.#units.size) {
      for (let unit = 0; unit < count; unit++) this.#units.delete(id * UNITS_PER_CONTENT + unit);
    } else {
      for (const [key, { content }] of this.#units) if (content === id) this.#units.delete(key);
    }
  }

  #place(content: ContentId, unit: number, usedMs: number): void {
    const key = content * UNITS_PER_CONTENT + unit;
    const known = this.#units.get(key);
    if (known !== undefined) {
      // Moving it at every use would cost more than it tells.
      if (usedMs - known.usedMs < 1000) return;
      this.#units.delete(key);
    }
    this.#units.set(key, { content, unit, usedMs });
  }
}

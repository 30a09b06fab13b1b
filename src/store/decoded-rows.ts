import { LRUCache } from 'lru-cache';

/**
 * Decoded records of one table that are read again and again. A walk over a whole tree reads each once: what was read once passes
 * through a short row of its own, so that it pushes nothing out that is in use, and is garbage while it is young (kept for longer,
 * a million of them filled the old generation of V8's heap, which is collected late).
 *
 * INVARIANT: a key is in one of both rows at most.
 */
export class DecodedRows {
  readonly #once: LRUCache<number, object>;
  readonly #again: LRUCache<number, object>;

  constructor(limits: { readonly onceMax: number; readonly againMax: number }) {
    this.#once = cacheOf(limits.onceMax);
    this.#again = cacheOf(limits.againMax);
  }

  get(key: number): object | undefined {
    const known = this.#again.get(key);
    if (known !== undefined) return known;
    const second = this.#once.get(key);
    if (second === undefined) return undefined;
    this.#once.delete(key);
    this.#again.set(key, second);
    return second;
  }

  /** For a record that was just read and is not here. */
  read(key: number, value: object): void {
    this.#once.set(key, value);
  }

  /** For a record that was just written: it is in use. */
  written(key: number, value: object): void {
    this.#once.delete(key);
    this.#again.set(key, value);
  }

  delete(key: number): void {
    this.#once.delete(key);
    this.#again.delete(key);
  }
}

/** Limited by size, each record being 1: for a number of entries `LRUCache` makes all its room at once, 3 ms for 20,000. */
function cacheOf(recordsMax: number): LRUCache<number, object> {
  return new LRUCache({ maxSize: recordsMax, sizeCalculation: () => 1 });
}

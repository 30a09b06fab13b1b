import { LRUCache } from 'lru-cache';

/**
 * A cache of decoded records of one table, in two queues: records that were read once, and records that were read again. A walk over a
 * whole tree reads each record once, so it evicts only from the short first queue. Its records become garbage early. With one longer
 * queue, a million of them filled the old generation of V8's heap, which is collected late.
 *
 * INVARIANT: a key is in at most one of the two queues.
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

  /** Adds a record that was just read from the store and is not cached. */
  read(key: number, value: object): void {
    this.#once.set(key, value);
  }

  /** Adds a record that was just written: it counts as read again. */
  written(key: number, value: object): void {
    this.#once.delete(key);
    this.#again.set(key, value);
  }

  delete(key: number): void {
    this.#once.delete(key);
    this.#again.delete(key);
  }
}

/** Limited by size, with size 1 for each record: with `max`, `LRUCache` allocates all its arrays immediately, 3 ms for 20,000. */
function cacheOf(recordsMax: number): LRUCache<number, object> {
  return new LRUCache({ maxSize: recordsMax, sizeCalculation: () => 1 });
}

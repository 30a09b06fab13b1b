/**
 * A cache of decoded records of one table, in two parts: records that were read once, and records that were read again. A walk over a
 * whole tree reads each record once, so it evicts only from the small first part. Its records become garbage early. With one larger
 * part, a million of them filled the old generation of V8's heap, which is collected late.
 *
 * INVARIANT: a key is in at most one of the two parts.
 */
export class DecodedRows {
  readonly #once: RecentRecords;
  readonly #again: RecentRecords;

  constructor(limits: { readonly onceMax: number; readonly againMax: number }) {
    this.#once = new RecentRecords(limits.onceMax);
    this.#again = new RecentRecords(limits.againMax);
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

/**
 * The records used last: at least half of `max`, at most `max`. Two generations: when the newer one is full, it becomes the older one, whose
 * records are dropped. (An LRU list is slower: a removal of files adds a record and deletes it, again and again.)
 */
class RecentRecords {
  readonly #generationMax: number;
  #newer = new Map<number, object>();
  #older = new Map<number, object>();

  constructor(max: number) {
    this.#generationMax = Math.max(1, max / 2);
  }

  get(key: number): object | undefined {
    const newer = this.#newer.get(key);
    if (newer !== undefined || this.#older.size === 0) return newer;
    const older = this.#older.get(key);
    if (older === undefined) return undefined;
    this.#older.delete(key);
    this.set(key, older);
    return older;
  }

  set(key: number, record: object): void {
    if (this.#older.size > 0) this.#older.delete(key);
    this.#newer.set(key, record);
    if (this.#newer.size < this.#generationMax) return;
    this.#older = this.#newer;
    this.#newer = new Map();
  }

  delete(key: number): void {
    if (this.#newer.size > 0) this.#newer.delete(key);
    if (this.#older.size > 0) this.#older.delete(key);
  }
}

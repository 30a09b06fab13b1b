import type { Database as Table } from 'lmdb';
import type { PendingObject, StoredBlobRow } from './rows.ts';

/**
 * Which blobs are in the object store, and every object that may exist there. An object is recorded before its first
 * byte and until it is deleted, so that an interruption leaves none unknown and the store is never listed. Copies of a
 * file share an object, which counts its references.
 *
 * All changes only within `Database.change`.
 */
export class ObjectTable {
  /** By blob name. */
  readonly #blobs: Table<StoredBlobRow, string>;
  /** Number of blobs, by key. */
  readonly #references: Table<number, string>;
  /** By key. */
  readonly #pending: Table<PendingObject, string>;

  constructor(tables: {
    blobs: Table<StoredBlobRow, string>;
    references: Table<number, string>;
    pending: Table<PendingObject, string>;
  }) {
    this.#blobs = tables.blobs;
    this.#references = tables.references;
    this.#pending = tables.pending;
  }

  stored(blob: string): StoredBlobRow | null {
    return this.#blobs.get(blob) ?? null;
  }

  /** Number of blobs in the store. */
  get size(): number {
    return this.#blobs.getCount();
  }

  begin(key: string): void {
    void this.#pending.put(key, 'arriving');
  }

  /** @throws Error if the object is no longer expected: another process took it for interrupted */
  finish(blob: string, row: StoredBlobRow): void {
    if (this.#pending.get(row.key) !== 'arriving')
      throw new Error(`the object ${row.key} is no longer expected: its move was given up`);
    void this.#pending.remove(row.key);
    void this.#references.put(row.key, 1);
    void this.#blobs.put(blob, row);
  }

  /** The object did not arrive in full, or is not needed any more. */
  abandon(key: string): void {
    if (this.#pending.get(key) === 'arriving') void this.#pending.put(key, 'broken');
  }

  /** A second blob with the same bytes. @returns whether the first one is still in the store */
  share(from: string, to: string): boolean {
    const row = this.#blobs.get(from);
    if (row === undefined) return false;
    void this.#references.put(row.key, (this.#references.get(row.key) ?? 0) + 1);
    void this.#blobs.put(to, row);
    return true;
  }

  /** The blob is deleted, and with the last one of its object the object. */
  drop(blob: string): void {
    const row = this.#blobs.get(blob);
    if (row === undefined) return;
    void this.#blobs.remove(blob);
    const references = (this.#references.get(row.key) ?? 1) - 1;
    if (references > 0) {
      void this.#references.put(row.key, references);
      return;
    }
    void this.#references.remove(row.key);
    void this.#pending.put(row.key, 'dying');
  }

  /** The object does not exist any more. */
  forget(key: string): void {
    void this.#pending.remove(key);
  }

  /** Key and state of every pending object: few, unless the store does not answer. */
  *pending(): Generator<[key: string, state: PendingObject]> {
    for (const { key, value } of this.#pending.getRange({})) yield [key, value];
  }

  /** The keys of all objects, pending ones too: for a comparison with the store. */
  *keys(): Generator<string> {
    yield* this.#references.getKeys({});
    yield* this.#pending.getKeys({});
  }
}

interface Keyed {
  readonly keyBytes: Buffer;
}

/**
 * Rows of one table with the same first member (of a whole table where keys are not tuples): found by the second member, walked
 * in key order. The order is made when someone asks, and kept up from then on: who removes a long row of rows asks again and
 * again, and sorting all of them each time took a minute of every two with 100,000 files deleted at once.
 */
export class RowGroup<Row extends Keyed> {
  readonly #rows = new Map<number | string, Row>();
  /** In key order; null until someone asks, and again after more changes than sorting anew would cost. */
  #sorted: Row[] | null = null;
  /** How often rows came into or went out of `#sorted` since someone asked. */
  #shifts = 0;

  get size(): number {
    return this.#rows.size;
  }

  get(second: number | string): Row | undefined {
    return this.#rows.get(second);
  }

  rows(): Iterable<Row> {
    return this.#rows.values();
  }

  /** @returns whether there was none with that key */
  set(second: number | string, row: Row): boolean {
    const isNew = !this.#rows.has(second);
    this.#rows.set(second, row);
    const sorted = isNew ? this.#toShift() : this.#sorted;
    if (sorted !== null) sorted.splice(firstAtOrBehind(sorted, row.keyBytes), isNew ? 0 : 1, row);
    return isNew;
  }

  delete(second: number | string): void {
    const row = this.#rows.get(second);
    if (row === undefined) return;
    this.#rows.delete(second);
    const sorted = this.#toShift();
    if (sorted !== null) sorted.splice(firstAtOrBehind(sorted, row.keyBytes), 1);
  }

  /** Rows in key order, from `start` (inclusive) on: as they are now, whatever changes later. */
  inOrder(start: Uint8Array): Row[] {
    this.#shifts = 0;
    this.#sorted ??= [...this.#rows.values()].sort(byKey);
    return this.#sorted.slice(firstAtOrBehind(this.#sorted, start));
  }

  /** What a row is about to come into or to go out of; null where the order is not kept up (any more). */
  #toShift(): Row[] | null {
    if (this.#sorted !== null && ++this.#shifts > SHIFTS_MIN + this.#sorted.length / 4) this.#sorted = null;
    return this.#sorted;
  }
}

/** So many are kept up with in any case: a few hundred rows are removed between two looks. */
const SHIFTS_MIN = 1_000;

export function byKey(a: Keyed, b: Keyed): number {
  return Buffer.compare(a.keyBytes, b.keyBytes);
}

function firstAtOrBehind(sorted: readonly Keyed[], start: Uint8Array): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (Buffer.compare((sorted[middle] as Keyed).keyBytes, start) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

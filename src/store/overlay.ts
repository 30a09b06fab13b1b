import { behindPrefix, encodePrefix } from './row-key.ts';
import type { TableName, Tables } from './tables.ts';

/** The newest state of one row: of a running change, or of a record that LMDB does not have yet. */
export interface Row {
  readonly table: TableName;
  readonly key: Tables[TableName]['key'];
  readonly keyBytes: Buffer;
  /** Undefined: removed. */
  readonly value: Tables[TableName]['value'] | undefined;
  /** Set when the record is encoded; null for a removal. */
  valueBytes: Uint8Array | null;
  /** The journal record that wrote it; 0 during the change. */
  sequence: number;
}

/** Rows that hide those of a lower level. They can be found by key and walked in key order. */
export class Overlay {
  readonly #groups = new Map<TableName, Map<number, RowGroup<Row>>>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  find<T extends TableName>(table: T, key: Tables[T]['key']): Row | undefined {
    const groups = this.#groups.get(table);
    if (groups === undefined) return undefined;
    if (typeof key === 'object') return groups.get(key[0])?.get(key[1]);
    return groups.get(0)?.get(key);
  }

  set(row: Row): void {
    const { table, key } = row;
    let groups = this.#groups.get(table);
    if (groups === undefined) {
      groups = new Map();
      this.#groups.set(table, groups);
    }
    const first = typeof key === 'object' ? key[0] : 0;
    let group = groups.get(first);
    if (group === undefined) {
      group = new RowGroup();
      groups.set(first, group);
    }
    if (group.set(typeof key === 'object' ? key[1] : key, row)) this.#count++;
  }

  /** Removes `row` if it is still the newest row of its key. @returns whether it was */
  drop(row: Row): boolean {
    const { table, key } = row;
    const first = typeof key === 'object' ? key[0] : 0;
    const second = typeof key === 'object' ? key[1] : key;
    const groups = this.#groups.get(table);
    const group = groups?.get(first);
    if (groups === undefined || group === undefined || group.get(second) !== row) return false;
    group.delete(second);
    this.#count--;
    if (group.size === 0) groups.delete(first);
    return true;
  }

  *rows(): Iterable<Row> {
    for (const groups of this.#groups.values()) for (const group of groups.values()) yield* group.rows();
  }

  /** Rows of a table in key order, from `start` (inclusive) on. With `first`, only the rows with that first member. */
  inOrder(table: TableName, first: number | undefined, start: Uint8Array): readonly Row[] {
    const groups = this.#groups.get(table);
    if (groups === undefined) return [];
    if (first !== undefined) return groups.get(first)?.inOrder(start) ?? [];
    const rows = [...groups.values()].map((group) => group.inOrder(start)).filter((group) => group.length > 0);
    // Rows with the same first member are neighbours.
    return rows.sort(([a], [b]) => byKey(a as Row, b as Row)).flat();
  }
}

/** A row on its way to a reader: `value` undefined means removed. */
export interface Found {
  readonly keyBytes: Uint8Array;
  readonly value: unknown;
}

/** Merges two sequences of rows in key order. At equal keys `upper` wins. Removed rows are left out. */
export function* merged<L extends Found>(lower: Iterable<L>, upper: readonly Row[]): Generator<L | Row> {
  let at = 0;
  for (const row of lower) {
    let hidden = false;
    for (; at < upper.length; at++) {
      const over = upper[at] as Row;
      const order = Buffer.compare(over.keyBytes, row.keyBytes);
      if (order > 0) break;
      if (order === 0) hidden = true;
      if (over.value !== undefined) yield over;
    }
    if (!hidden && row.value !== undefined) yield row;
  }
  for (; at < upper.length; at++) {
    const over = upper[at] as Row;
    if (over.value !== undefined) yield over;
  }
}

/** The key range of a table, or of the rows with one first member. */
export function rangeOf(table: TableName, first: number | undefined): { readonly start: Buffer; readonly end: Buffer } {
  const start = encodePrefix(table, first);
  return { start, end: behindPrefix(start) };
}

/** Anything with a key. */
interface Keyed {
  readonly keyBytes: Buffer;
}

/**
 * Rows of one table with the same first member, or of a whole table whose keys are not tuples. They can be found by the second member and
 * walked in key order.
 *
 * The first walk sorts the rows, and later changes keep the order. The removal of many rows walks again and again: with a sort for each
 * walk, half of the time of deleting 100,000 files was sorting.
 */
export class RowGroup<Row extends Keyed> {
  readonly #rows = new Map<number | string, Row>();
  /** In key order; null before the first walk, and after so many changes that another sort is cheaper. */
  #sorted: Row[] | null = null;
  /** Insertions into and removals from `#sorted` since the last walk. */
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

  /** @returns whether the key is new */
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

  /** The present rows in key order, from `start` (inclusive) on, as a copy. */
  inOrder(start: Uint8Array): Row[] {
    this.#shifts = 0;
    this.#sorted ??= [...this.#rows.values()].sort(byKey);
    return this.#sorted.slice(firstAtOrBehind(this.#sorted, start));
  }

  /** `#sorted`, for an insertion or a removal; null if the order is not kept (any more). */
  #toShift(): Row[] | null {
    if (this.#sorted !== null && ++this.#shifts > SHIFTS_MIN + this.#sorted.length / 4) this.#sorted = null;
    return this.#sorted;
  }
}

/** The order is kept for at least this many changes: a few hundred rows are removed between two walks. */
const SHIFTS_MIN = 1_000;

function byKey(a: Keyed, b: Keyed): number {
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

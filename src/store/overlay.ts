import { behindPrefix, encodePrefix } from './row-key.ts';
import type { TableName, Tables } from './tables.ts';

/** One row as it was last written: by a change in the making, or by one that LMDB has not taken over yet. */
export interface Row {
  readonly table: TableName;
  readonly key: Tables[TableName]['key'];
  readonly keyBytes: Buffer;
  /** Undefined: removed. */
  readonly value: Tables[TableName]['value'] | undefined;
  /** Set when the record is made; null for a removal. */
  valueBytes: Uint8Array | null;
  /** Journal record that wrote it; 0 while the change is in the making. */
  sequence: number;
}

/** Rows of one table with the same first member (of a whole table where keys are not tuples). */
interface Group {
  readonly rows: Map<number | string, Row>;
  /** In key order; null until someone asks. */
  sorted: Row[] | null;
}

/** A layer of rows over what lies below: found by key, walked in order. */
export class Overlay {
  readonly #groups = new Map<TableName, Map<number, Group>>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  find<T extends TableName>(table: T, key: Tables[T]['key']): Row | undefined {
    const groups = this.#groups.get(table);
    if (groups === undefined) return undefined;
    if (typeof key === 'object') return groups.get(key[0])?.rows.get(key[1]);
    return groups.get(0)?.rows.get(key);
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
      group = { rows: new Map(), sorted: null };
      groups.set(first, group);
    }
    const second = typeof key === 'object' ? key[1] : key;
    if (!group.rows.has(second)) this.#count++;
    group.rows.set(second, row);
    group.sorted = null;
  }

  /** Removes `row` if it is still the newest one of its key; says whether it was. */
  drop(row: Row): boolean {
    const { table, key } = row;
    const first = typeof key === 'object' ? key[0] : 0;
    const second = typeof key === 'object' ? key[1] : key;
    const groups = this.#groups.get(table);
    const group = groups?.get(first);
    if (groups === undefined || group === undefined || group.rows.get(second) !== row) return false;
    group.rows.delete(second);
    group.sorted = null;
    this.#count--;
    if (group.rows.size === 0) groups.delete(first);
    return true;
  }

  *rows(): Iterable<Row> {
    for (const groups of this.#groups.values()) for (const group of groups.values()) yield* group.rows.values();
  }

  /** Rows of a table in key order, those with first member `first` only if one is given, from `start` (inclusive) on. */
  inOrder(table: TableName, first: number | undefined, start: Uint8Array): readonly Row[] {
    const groups = this.#groups.get(table);
    if (groups === undefined) return [];
    let sorted: Row[];
    if (first === undefined) {
      sorted = [...groups.values()].flatMap((group) => [...group.rows.values()]).sort(byKey);
    } else {
      const group = groups.get(first);
      if (group === undefined) return [];
      group.sorted ??= [...group.rows.values()].sort(byKey);
      sorted = group.sorted;
    }
    const from = firstAtOrBehind(sorted, start);
    return from === 0 ? sorted : sorted.slice(from);
  }
}

/** A row on its way to a reader: `value` undefined hides the one below. */
export interface Found {
  readonly keyBytes: Uint8Array;
  readonly value: unknown;
}

/** Two rows of rows in key order as one; at equal keys `upper` counts. Rows without a value are left out. */
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

function byKey(a: Row, b: Row): number {
  return Buffer.compare(a.keyBytes, b.keyBytes);
}

function firstAtOrBehind(sorted: readonly Row[], start: Uint8Array): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (Buffer.compare((sorted[middle] as Row).keyBytes, start) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

import { Overlay, type Row } from './overlay.ts';
import type { TableName, Tables } from './tables.ts';

/**
 * The rows of one running change. Most changes write a few rows: an array of them costs less than the maps of an `Overlay`, which takes over
 * when they are many.
 */
export class ChangedRows {
  /** In the order of their first writes; empty once `#many` has them. */
  #few: Row[] = [];
  #many: Overlay | null = null;

  find<T extends TableName>(table: T, key: Tables[T]['key']): Row | undefined {
    if (this.#many !== null) return this.#many.find(table, key);
    for (const row of this.#few) if (row.table === table && isSameKey(row.key, key)) return row;
    return undefined;
  }

  set(row: Row): void {
    if (this.#many !== null) {
      this.#many.set(row);
      return;
    }
    const few = this.#few;
    const at = few.findIndex(({ table, key }) => table === row.table && isSameKey(key, row.key));
    if (at >= 0) few[at] = row;
    else if (few.push(row) > FEW_MAX) this.#grow();
  }

  rows(): Row[] {
    return this.#many === null ? this.#few : [...this.#many.rows()];
  }

  /** As `Overlay.inOrder`. */
  inOrder(table: TableName, first: number | undefined, start: Uint8Array): readonly Row[] {
    if (this.#few.length > 0) this.#grow();
    return this.#many?.inOrder(table, first, start) ?? [];
  }

  #grow(): void {
    this.#many = new Overlay();
    for (const row of this.#few) this.#many.set(row);
    this.#few = [];
  }
}

const FEW_MAX = 16;

function isSameKey(one: Row['key'], other: Row['key']): boolean {
  if (typeof one !== 'object' || typeof other !== 'object') return one === other;
  return one[0] === other[0] && one[1] === other[1];
}

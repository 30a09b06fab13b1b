import { ChangedRows } from './changed-rows.ts';
import { merged, type Row, rangeOf } from './overlay.ts';
import { behindKey, encodeKey } from './row-key.ts';
import type { FirstOf, ScannedTable, SecondOf, StoreReader, TableName, Tables, Transaction } from './tables.ts';

/** The base of a change: the store, and rows with their keys as bytes for merging. */
export interface ChangeBase extends StoreReader {
  rowsOf(table: TableName, first: number | undefined, start: Buffer, end: Buffer): Iterable<Row>;
  takeId(change: Transaction, counter: 'inode' | 'content' | 'intent'): number;
}

/** One running `transact`: an overlay over the store. It is committed or dropped as a whole. */
export class Change implements Transaction {
  readonly #base: ChangeBase;
  readonly #layer = new ChangedRows();
  readonly #effects: (() => void)[] = [];
  #ended = false;

  constructor(base: ChangeBase) {
    this.#base = base;
  }

  get<T extends TableName>(table: T, key: Tables[T]['key']): Tables[T]['value'] | undefined {
    const row = this.#layer.find(table, key);
    return row === undefined ? this.#base.get(table, key) : row.value;
  }

  *scan<T extends ScannedTable>(
    table: T,
    first: FirstOf<T>,
    after?: SecondOf<T>,
  ): Generator<readonly [SecondOf<T>, Tables[T]['value']]> {
    const range = rangeOf(table, first as number);
    const start = after === undefined ? range.start : behindKey(encodeKey(table, [first, after] as never));
    const own = this.#layer.inOrder(table, first as number, start);
    for (const row of merged(this.#base.rowsOf(table, first as number, start, range.end), own)) {
      yield [(row.key as readonly [unknown, unknown])[1] as SecondOf<T>, row.value as Tables[T]['value']];
    }
  }

  *all<T extends TableName>(
    table: T,
    after?: Tables[T]['key'],
  ): Generator<readonly [Tables[T]['key'], Tables[T]['value']]> {
    const { start, end } = rangeOf(table, undefined);
    const from = after === undefined ? start : behindKey(encodeKey(table, after));
    const own = this.#layer.inOrder(table, undefined, from);
    for (const row of merged(this.#base.rowsOf(table, undefined, from, end), own)) {
      yield [row.key, row.value as Tables[T]['value']];
    }
  }

  put<T extends TableName>(table: T, key: Tables[T]['key'], value: Tables[T]['value']): void {
    this.#set(table, key, value);
  }

  remove<T extends TableName>(table: T, key: Tables[T]['key']): void {
    this.#set(table, key, undefined);
  }

  nextId(counter: 'inode' | 'content' | 'intent'): number {
    return this.#base.takeId(this, counter);
  }

  afterCommit(effect: () => void): void {
    this.#effects.push(effect);
  }

  /** Ends the change: later writes through the transaction throw. */
  end(): { readonly rows: Row[]; readonly effects: readonly (() => void)[] } {
    this.#ended = true;
    return { rows: this.#layer.rows(), effects: this.#effects };
  }

  #set(table: TableName, key: Tables[TableName]['key'], value: Tables[TableName]['value'] | undefined): void {
    if (this.#ended) throw new Error('a transaction is used after its end');
    this.#layer.set({ table, key, keyBytes: encodeKey(table, key), value, valueBytes: null, sequence: 0 });
  }
}

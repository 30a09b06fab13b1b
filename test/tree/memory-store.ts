import { valueOfDamaged } from '../../src/store/record-codec.ts';
import type {
  FirstOf,
  ScannedTable,
  SecondOf,
  StoreWriter,
  TableName,
  Tables,
  Transaction,
} from '../../src/store/tables.ts';

/** The store's contract on plain maps: for tests of what is built on it. Nothing survives. */
export class MemoryStore implements StoreWriter {
  readonly #tables = new Map<TableName, Map<RowKey, readonly [unknown, unknown]>>();
  /** Keys by table and first member. */
  readonly #firsts = new Map<string, Set<RowKey>>();
  changes = 0;
  #inTransaction = false;
  readonly #damaged = new Set<string>();

  /** Each record is read anew from here on, as by `Store` beside a walk over a large tree. */
  forget(): void {
    const get = this.get.bind(this);
    this.get = (table, key) => structuredClone(get(table, key));
  }

  /** The disk gives another row than was written from here on, as `Store` finds it. */
  damage<T extends TableName>(table: T, key: Tables[T]['key']): void {
    this.#damaged.add(`${table} ${rowKey(key)}`);
  }

  get<T extends TableName>(table: T, key: Tables[T]['key']): Tables[T]['value'] | undefined {
    const row = this.#table(table).get(rowKey(key));
    return row === undefined ? undefined : this.#read(table, key, row[1] as Tables[T]['value']);
  }

  *scan<T extends ScannedTable>(
    table: T,
    first: FirstOf<T>,
    after?: SecondOf<T>,
  ): Iterable<readonly [SecondOf<T>, Tables[T]['value']]> {
    const rows: (readonly [SecondOf<T>, Tables[T]['value']])[] = [];
    for (const text of this.#firsts.get(`${table} ${first}`) ?? []) {
      const [key, value] = this.#table(table).get(text) as readonly [
        readonly [unknown, SecondOf<T>],
        Tables[T]['value'],
      ];
      if (after === undefined || compare(key[1], after) > 0) rows.push([key[1], value]);
    }
    yield* rows.length < 2 ? rows : rows.sort(([a], [b]) => compare(a, b));
  }

  *all<T extends TableName>(
    table: T,
    after?: Tables[T]['key'],
  ): Iterable<readonly [Tables[T]['key'], Tables[T]['value']]> {
    const rows = [...this.#table(table).values()] as (readonly [Tables[T]['key'], Tables[T]['value']])[];
    for (const [key, value] of rows) {
      if (after !== undefined && compare(key, after) <= 0) continue;
      const read = this.#read(table, key, value);
      if (read !== undefined) yield [key, read];
    }
  }

  transact<R>(change: (tx: Transaction) => R): R {
    if (this.#inTransaction) throw new Error('transactions are not nested');
    this.#inTransaction = true;
    const undo: (() => void)[] = [];
    const effects: (() => void)[] = [];
    const write = (table: TableName, key: unknown, row: readonly [unknown, unknown] | undefined) => {
      const rows = this.#table(table);
      const text = rowKey(key);
      const before = rows.get(text);
      const wasDamaged = this.#damaged.delete(`${table} ${text}`);
      undo.push(() => {
        this.#set(table, key, text, before);
        if (wasDamaged) this.#damaged.add(`${table} ${text}`);
      });
      this.#set(table, key, text, row);
    };
    const tx: Transaction = {
      get: (table, key) => this.get(table, key),
      scan: (table, first, after) => this.scan(table, first, after),
      all: (table, after) => this.all(table, after),
      put: (table, key, value) => write(table, key, [key, value]),
      remove: (table, key) => write(table, key, undefined),
      nextId: (counter) => {
        const next = Number(this.get('meta', `next-${counter}`) ?? 1);
        write('meta', `next-${counter}`, [`next-${counter}`, next + 1]);
        return next;
      },
      afterCommit: (effect) => effects.push(effect),
    };
    let result: R;
    try {
      result = change(tx);
    } catch (error) {
      for (const step of undo.reverse()) step();
      throw error;
    } finally {
      this.#inTransaction = false;
    }
    for (const effect of effects) effect();
    return result;
  }

  async sync(): Promise<void> {}

  #read<T extends TableName>(table: T, key: Tables[T]['key'], value: Tables[T]['value']): typeof value | undefined {
    return this.#damaged.size > 0 && this.#damaged.has(`${table} ${rowKey(key)}`) ? valueOfDamaged(table, key) : value;
  }

  #set(table: TableName, key: unknown, text: RowKey, row: readonly [unknown, unknown] | undefined): void {
    this.changes++;
    if (row === undefined) this.#table(table).delete(text);
    else this.#table(table).set(text, row);
    if (!Array.isArray(key)) return;
    const first = `${table} ${key[0]}`;
    const keys = this.#firsts.get(first) ?? new Set();
    this.#firsts.set(first, keys);
    if (row === undefined) keys.delete(text);
    else keys.add(text);
  }

  #table(name: TableName): Map<RowKey, readonly [unknown, unknown]> {
    let table = this.#tables.get(name);
    if (table === undefined) {
      table = new Map();
      this.#tables.set(name, table);
    }
    return table;
  }
}

/** A key as a map has it. */
type RowKey = string | number;

function rowKey(key: unknown): RowKey {
  return typeof key === 'number' || typeof key === 'string' ? key : JSON.stringify(key);
}

function compare(a: unknown, b: unknown): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b)));
}

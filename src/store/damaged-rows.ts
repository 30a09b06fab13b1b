import type { RootDatabase } from 'lmdb';
import type { Logger } from '../base/log.ts';
import { decodeValue, isSound } from './record-codec.ts';
import { behindKey, decodeKey } from './row-key.ts';
import type { TableName, Tables } from './tables.ts';

const LOGGED_MAX = 100;
const ROWS_AT_ONCE = 256;

/** A damaged row of LMDB; `table` is null if it cannot be determined. */
export interface DamagedRowName {
  readonly table: TableName | null;
  /** Table and key, for a message. */
  readonly row: string;
}

/** Decodes rows of LMDB; logs each damaged row once. */
export class DamagedRows {
  readonly #log: Logger;
  readonly #logged = new Set<string>();

  constructor(deps: { log: Logger }) {
    this.#log = deps.log;
  }

  /** As `decodeValue`. @throws DamagedRow */
  decode<T extends TableName>(
    table: T,
    key: Tables[T]['key'],
    keyBytes: Uint8Array,
    bytes: Uint8Array,
  ): Tables[T]['value'] | undefined {
    try {
      // `decodeValue` returns a substitute for these tables, without an error. They have few rows, so a second check is cheap.
      if ((table === 'dirty' || table === 'intent' || table === 'local') && !isSound(table, key, keyBytes, bytes))
        this.#logOnce(table, key, keyBytes);
      return decodeValue(table, key, keyBytes, bytes);
    } catch (err) {
      this.#logOnce(table, key, keyBytes, err);
      throw err;
    }
  }

  #logOnce(table: TableName, key: unknown, keyBytes: Uint8Array, err?: unknown): void {
    const id = Buffer.from(keyBytes).toString('hex');
    if (this.#logged.has(id) || this.#logged.size >= LOGGED_MAX) return;
    this.#logged.add(id);
    this.#log.error({ ...(err === undefined ? null : { err }), table, key }, 'a row of the store is damaged');
  }
}

/** Checks every row of a database. */
export function* findDamagedRows(database: RootDatabase<Buffer, Buffer>): Generator<DamagedRowName> {
  for (let from: Buffer = Buffer.of(0); ; ) {
    const rows = [...database.getRange({ start: from, limit: ROWS_AT_ONCE })];
    for (const { key, value } of rows) {
      const name = nameOf(key);
      if (name === null) yield { table: null, row: `of no table (${key.toString('hex', 0, 16)})` };
      else if (!isSound(name.table, name.key, key, value))
        yield { table: name.table, row: `${name.table} ${JSON.stringify(name.key)}` };
    }
    const last = rows.at(-1);
    if (last === undefined) return;
    from = behindKey(last.key);
  }
}

function nameOf(keyBytes: Uint8Array): { readonly table: TableName; readonly key: never } | null {
  try {
    return decodeKey(keyBytes);
  } catch {
    return null;
  }
}

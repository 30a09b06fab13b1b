import type { TableName, Tables } from './tables.ts';

/** Tables of short rows that one operation, or one after another, reads repeatedly. */
const TABLES = new Set<TableName>(['meta', 'name', 'resource', 'folder', 'dirty']);
/** Limit of the rows of each table. */
const ROWS_MAX = 64;

/**
 * The results of the latest reads from LMDB, also of rows that are not there: a removal reads nine rows, and two of three were read just
 * before. INVARIANT: a row that is written is forgotten; until LMDB has it, the overlay hides this cache.
 */
export class RecentReads {
  readonly #rows = new Map<TableName, Map<number | string, unknown>>();

  /** The row, or `read()`. */
  get<T extends TableName>(
    table: T,
    key: Tables[T]['key'],
    read: () => Tables[T]['value'] | undefined,
  ): Tables[T]['value'] | undefined {
    if (!TABLES.has(table)) return read();
    let rows = this.#rows.get(table);
    if (rows === undefined) {
      rows = new Map();
      this.#rows.set(table, rows);
    }
    const id = idOf(key);
    const found = rows.get(id);
    if (found !== undefined || rows.has(id)) return found as Tables[T]['value'] | undefined;
    const value = read();
    if (rows.size === ROWS_MAX) rows.clear();
    rows.set(id, value);
    return value;
  }

  delete(table: TableName, key: Tables[TableName]['key']): void {
    const rows = this.#rows.get(table);
    if (rows !== undefined && rows.size > 0) rows.delete(idOf(key));
  }
}

function idOf(key: Tables[TableName]['key']): number | string {
  return typeof key === 'object' ? `${key[0]}/${key[1]}` : key;
}

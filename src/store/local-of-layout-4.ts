import type { RootDatabase } from 'lmdb';
import type { Inode } from '../base/vocabulary.ts';
import { staysHere } from './node-table.ts';
import { DamagedRow, decodeValue, encodeValue } from './record-codec.ts';
import { behindKey, behindPrefix, decodeKey, encodeKey, encodePrefix } from './row-key.ts';

/** Up to layout 4 no table listed what stays on this machine: only a search of all nodes finds it. */

type Rows = Pick<RootDatabase<Buffer, Buffer>, 'getRange' | 'putSync'>;

const ROWS_AT_ONCE = 500;

/** Table `local`. */
export function endOfLayout4(database: Rows): void {
  for (const ino of [...localOfLayout4(database)]) {
    const key = encodeKey('local', ino);
    database.putSync(key, Buffer.from(encodeValue('local', ino, key, true)));
  }
}

/** The nodes that stay on this machine. Damaged rows are skipped. */
export function* localOfLayout4(database: Pick<Rows, 'getRange'>): Generator<Inode> {
  const first = encodePrefix('node');
  const end = behindPrefix(first);
  for (let start = first; ; ) {
    const rows = [...database.getRange({ start, end, limit: ROWS_AT_ONCE })];
    for (const { key, value } of rows) if (staysByRow(key, value)) yield decodeKey(key).key;
    const last = rows.at(-1);
    if (last === undefined) return;
    start = behindKey(last.key);
  }
}

function staysByRow(keyBytes: Buffer, value: Buffer): boolean {
  try {
    const node = decodeValue('node', decodeKey(keyBytes).key, keyBytes, value);
    return node !== undefined && staysHere(node);
  } catch (error) {
    if (error instanceof DamagedRow) return false;
    throw error;
  }
}

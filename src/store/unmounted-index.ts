import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { open, type RootDatabase } from 'lmdb';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import { staysHere } from './node-table.ts';
import { DamagedRow, decodeValue } from './record-codec.ts';
import { behindKey, behindPrefix, decodeKey, encodePrefix } from './row-key.ts';

/** Numbers of a store that no process has open. */
export interface UnmountedStore {
  /** Changes that wait for the service. */
  readonly changes: number;
  /** Files and folders that stay on this machine because of their names. */
  readonly local: number;
}

const ROWS_PER_TURN = 500;

/** Counts in the index in the directory `path`. @throws if it cannot be read */
export async function countedIn(path: string): Promise<UnmountedStore> {
  refuseUnopenable({ data: join(path, 'data.mdb'), lock: join(path, 'lock.mdb'), readOnly: true });
  const index = open<Buffer, Buffer>({
    path,
    noSubdir: false,
    encoding: 'binary',
    keyEncoding: 'binary',
    readOnly: true,
  });
  try {
    const start = encodePrefix('dirty');
    return { changes: index.getKeysCount({ start, end: behindPrefix(start) }), local: await countLocal(index) };
  } finally {
    await index.close();
  }
}

/** Reads every node, because no table lists local files. Damaged rows are skipped. */
async function countLocal(index: RootDatabase<Buffer, Buffer>): Promise<number> {
  const first = encodePrefix('node');
  const end = behindPrefix(first);
  let local = 0;
  for (let start = first; ; ) {
    const rows = [...index.getRange({ start, end, limit: ROWS_PER_TURN })];
    for (const { key, value } of rows) if (isLocal(key, value)) local++;
    const last = rows.at(-1);
    if (last === undefined) return local;
    start = behindKey(last.key);
    await nextTurn();
  }
}

function isLocal(keyBytes: Buffer, value: Buffer): boolean {
  try {
    const node = decodeValue('node', decodeKey(keyBytes).key, keyBytes, value);
    return node !== undefined && staysHere(node);
  } catch (error) {
    if (error instanceof DamagedRow) return false;
    throw error;
  }
}

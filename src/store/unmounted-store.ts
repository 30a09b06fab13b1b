import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { open, type RootDatabase } from 'lmdb';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import { staysHere } from './node-table.ts';
import { ownerOf } from './owner-lock.ts';
import { DamagedRow, decodeValue } from './record-codec.ts';
import { behindKey, behindPrefix, decodeKey, encodePrefix } from './row-key.ts';

/** Numbers of a store that no process has open. */
export interface UnmountedStore {
  /** Changes that wait for the service. */
  readonly changes: number;
  /** Files and folders that stay on this machine because of their names. */
  readonly local: number;
}

const NOTHING: UnmountedStore = { changes: 0, local: 0 };
const ROWS_PER_TURN = 500;

/**
 * Counts in the index of a store without owning it, so that a mount that starts meanwhile is not refused. Nothing is counted in a store
 * that a process has open, which reports the numbers itself, and in one that cannot be read. Changes that a killed mount left only in
 * its journal are not counted; `cfs doctor` reads everything.
 */
export async function unmountedStore(directory: string): Promise<UnmountedStore> {
  const path = join(directory, 'index');
  if (!existsSync(path) || ownerOf(directory) !== null) return NOTHING;
  try {
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
  } catch {
    return NOTHING;
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

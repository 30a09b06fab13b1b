import { join } from 'node:path';
import { open, type RootDatabase } from 'lmdb';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import { localOfLayout4 } from './local-of-layout-4.ts';
import { storedSchema } from './migration.ts';
import { behindPrefix, encodePrefix } from './row-key.ts';
import { SCHEMA_VERSION } from './schema-version.ts';
import type { TableName } from './tables.ts';

/** Numbers of a store that no process has open. */
export interface UnmountedStore {
  /** Changes that wait for the service. */
  readonly changes: number;
  /** Files and folders that stay on this machine because of their names. */
  readonly local: number;
}

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
    return { changes: rowsOf(index, 'dirty'), local: localIn(index) };
  } finally {
    await index.close();
  }
}

/** Also in a store that the next mount migrates. */
function localIn(index: RootDatabase<Buffer, Buffer>): number {
  const isOlder = (storedSchema(index) ?? SCHEMA_VERSION) < 5;
  return isOlder ? [...localOfLayout4(index)].length : rowsOf(index, 'local');
}

function rowsOf(index: RootDatabase<Buffer, Buffer>, table: TableName): number {
  const start = encodePrefix(table);
  return index.getKeysCount({ start, end: behindPrefix(start) });
}

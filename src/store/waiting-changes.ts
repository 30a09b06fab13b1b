import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { open } from 'lmdb';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import { ownerOf } from './owner-lock.ts';
import { behindPrefix, encodePrefix } from './row-key.ts';

/**
 * The number of changes that wait for the service in a store without an owner, according to its index. 0 if a process has the store open
 * (that process reports the number itself), or if the store cannot be read.
 *
 * The store is read without the owner lock, so a mount can start meanwhile. Changes that a killed mount left in the journal only are not
 * counted; `cfs doctor` counts them.
 */
export async function waitingChanges(directory: string): Promise<number> {
  const path = join(directory, 'index');
  if (!existsSync(path) || ownerOf(directory) !== null) return 0;
  const start = encodePrefix('dirty');
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
      return index.getKeysCount({ start, end: behindPrefix(start) });
    } finally {
      await index.close();
    }
  } catch {
    return 0;
  }
}

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { open } from 'lmdb';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import { ownerOf } from './owner-lock.ts';
import { behindPrefix, encodePrefix } from './row-key.ts';

/**
 * How many changes wait for the service in a store that nobody has open, as its index has them; 0 where somebody has it open, who tells it
 * himself, or where it cannot be read.
 *
 * It is looked at without being owned: a mount that begins meanwhile is not refused for it. What a killed mount had in its journal only
 * is not counted; `cfs doctor` reads all.
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

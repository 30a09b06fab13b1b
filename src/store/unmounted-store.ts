import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ownerOf } from './owner-lock.ts';
import type { UnmountedStore } from './unmounted-index.ts';

const NOTHING: UnmountedStore = { changes: 0, local: 0 };

/**
 * Counts in the index of a store without owning it, so that a mount that starts meanwhile is not refused. Nothing is counted in a store
 * that a process has open, which reports the numbers itself, and in one that cannot be read. Changes that a killed mount left only in
 * its journal are not counted; `cfs doctor` reads everything.
 */
export async function unmountedStore(directory: string): Promise<UnmountedStore> {
  const path = join(directory, 'index');
  if (!existsSync(path) || ownerOf(directory) !== null) return NOTHING;
  try {
    // Imported here: `cfs status` of a mounted account does not load LMDB.
    const { countedIn } = await import('./unmounted-index.ts');
    return await countedIn(path);
  } catch {
    return NOTHING;
  }
}

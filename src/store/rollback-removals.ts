import type { Inode } from '../base/vocabulary.ts';
import { DamagedRow } from './record-codec.ts';
import type { StoreReader, Transaction } from './tables.ts';

/** In table `meta`: the inodes as JSON. */
const KEY = 'rollback-removals';
/** The limit of removals without confirmation (`RemovalLimit`) holds back far smaller numbers already. */
export const ROLLBACK_REMOVALS_MAX = 10_000;

/** Nodes whose removal waits for the user: the service lost them together with an acknowledged version. */
export function rollbackRemovals(store: Pick<StoreReader, 'get'>): readonly Inode[] {
  try {
    return JSON.parse(String(store.get('meta', KEY) ?? '[]')) as Inode[];
  } catch (error) {
    if (error instanceof DamagedRow) return [];
    throw error;
  }
}

export function writeRollbackRemovals(tx: Transaction, inos: readonly Inode[]): void {
  tx.put('meta', KEY, JSON.stringify(inos));
}

import type { Inode } from '../base/vocabulary.ts';
import type { StoreReader, Transaction } from './tables.ts';

/** In table `meta`: the inodes, as JSON. */
const KEY = 'pins';
export const PINS_MAX = 1_000;

/** The files and folders that the user pinned. */
export function pinnedNodes(store: Pick<StoreReader, 'get'>): readonly Inode[] {
  const pins = store.get('meta', KEY);
  return pins === undefined ? [] : (JSON.parse(String(pins)) as Inode[]);
}

export function writePinnedNodes(tx: Transaction, inos: readonly Inode[]): void {
  tx.put('meta', KEY, JSON.stringify(inos));
}

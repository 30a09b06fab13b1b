import type { Inode } from '../base/vocabulary.ts';
import { soundNode } from '../store/node-table.ts';
import type { StoreReader, Transaction } from '../store/tables.ts';

/** Key in table `meta`; the value is the inodes as JSON. */
const KEY = 'local-folders';
const FOLDERS_MAX = 1_000;

/**
 * Folders deleted remotely but kept on this machine, because files in them exist nowhere else; listed by `cfs status`,
 * newest first.
 */
export function localFolders(store: StoreReader): readonly Inode[] {
  return (JSON.parse(String(store.get('meta', KEY) ?? '[]')) as Inode[]).filter((ino) => {
    const node = soundNode(store, ino);
    return node?.localOnly === true && node.local !== null;
  });
}

/** Adds folders to that list. */
export function noteLocalFolders(tx: Transaction, folders: readonly Inode[]): void {
  const known = localFolders(tx).filter((ino) => !folders.includes(ino));
  tx.put('meta', KEY, JSON.stringify([...folders, ...known].slice(0, FOLDERS_MAX)));
}

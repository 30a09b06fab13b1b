import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Inode } from '../base/vocabulary.ts';
import { LISTED_MAX, type LocalFiles } from '../control/status-model.ts';
import { isInTrash } from '../store/local-trash.ts';
import { soundNode } from '../store/node-table.ts';
import type { StoreReader } from '../store/tables.ts';
import { pathOf } from '../sync/sync-event.ts';

/** Nodes that are read before the loop yields. */
const ROWS_PER_TURN = 500;

/** The local-only files of a mount, for `cfs status`, without those that a person deleted. Damaged ones are skipped. */
export async function localFilesOf(store: StoreReader): Promise<LocalFiles> {
  const paths: string[] = [];
  let count = 0;
  let bytes = 0;
  for (let after: Inode | null = 0 as Inode; after !== null; ) {
    const from: Inode = after;
    after = null;
    let rows = 0;
    // A new iterator for each turn: an iterator of the store ends with its turn.
    for (const [ino] of store.all('local', from)) {
      const node = soundNode(store, ino);
      if (node !== undefined && !isInTrash(store, ino)) {
        count++;
        bytes += node.local?.sizeBytes ?? 0;
        if (paths.length < LISTED_MAX) paths.push(pathOf(store, ino));
      }
      if (++rows < ROWS_PER_TURN) continue;
      after = ino;
      break;
    }
    if (after !== null) await nextTurn();
  }
  return { count, bytes, paths };
}

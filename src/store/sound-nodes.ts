import type { Inode } from '../base/vocabulary.ts';
import { ifSound } from './node-table.ts';
import { DamagedRow } from './record-codec.ts';
import type { NodeRecord, StoreReader } from './tables.ts';

/**
 * Like `all('node', after)`, but continues after a damaged row: from there on it looks up each inode number that was ever allocated. An
 * inode without a readable record is returned with undefined, so that a caller that works in short turns can count it.
 */
export function* soundNodes(
  store: StoreReader,
  after: Inode,
): Generator<readonly [Inode, NodeRecord | undefined], undefined> {
  let last: number = after;
  try {
    for (const row of store.all('node', after)) {
      last = row[0];
      yield row;
    }
    return;
  } catch (error) {
    if (!(error instanceof DamagedRow)) throw error;
  }
  const end = Number(store.get('meta', 'next-inode') ?? 2);
  for (let ino = (last + 1) as Inode; ino < end; ino++) yield [ino, ifSound(() => store.get('node', ino))];
}

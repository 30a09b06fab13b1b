import type { Inode } from '../base/vocabulary.ts';
import { ifSound } from './node-table.ts';
import { DamagedRow } from './record-codec.ts';
import type { NodeRecord, StoreReader } from './tables.ts';

/**
 * As `all('node', after)`, which ends at the first row that is damaged: from there on each inode that was ever given is looked up. Those
 * without a record that can be read come with undefined, so that a caller that works in short turns can count them.
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

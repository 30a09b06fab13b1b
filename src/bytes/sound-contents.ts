import type { ContentId } from '../base/vocabulary.ts';
import { ifSound } from '../store/node-table.ts';
import { DamagedRow } from '../store/record-codec.ts';
import type { ContentRecord, StoreReader } from '../store/tables.ts';

/**
 * As `all('content')`, which ends at the first row that is damaged: from there on each id that was ever given is looked up. Those
 * without a record that can be read come with undefined, so that whoever works in short turns can count them.
 */
export function* soundContents(
  store: StoreReader,
): Generator<readonly [ContentId, ContentRecord | undefined], undefined> {
  let last = 0;
  try {
    for (const row of store.all('content')) {
      last = row[0];
      yield row;
    }
    return;
  } catch (error) {
    if (!(error instanceof DamagedRow)) throw error;
  }
  const end = Number(store.get('meta', 'next-content') ?? 1);
  for (let id = (last + 1) as ContentId; id < end; id++) yield [id, ifSound(() => store.get('content', id))];
}

import type { ContentId } from '../base/vocabulary.ts';
import { ifSound } from '../store/node-table.ts';
import { DamagedRow } from '../store/record-codec.ts';
import type { ContentRecord, StoreReader } from '../store/tables.ts';

/**
 * As `all('content')`, but continues behind a damaged row, by looking up each id that was ever assigned. Ids without a readable
 * record come with undefined, so that callers can count them towards a turn.
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

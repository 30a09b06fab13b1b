import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { countReference } from '../../src/store/node-table.ts';
import type { StoreWriter } from '../../src/store/tables.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

/** Drafts of a few bytes to which nobody refers any more, and how many rows of the table of such were read since. */
async function abandoned(count: number) {
  const directory = stores.directory();
  const inner = await stores.open(directory);
  let reads = 0;
  let scans = 0;
  const store = new Proxy<StoreWriter>(inner, {
    get(target, name: keyof StoreWriter) {
      const value = target[name];
      if (name !== 'all') return typeof value === 'function' ? value.bind(target) : value;
      return function* (table: Parameters<StoreWriter['all']>[0]) {
        scans += 1;
        for (const row of target.all(table)) {
          if (table === 'garbage') reads += 1;
          yield row;
        }
      };
    },
  });
  const options = { inlineMaxBytes: 4096, cacheBytes: 1e12 };
  const contents = new ContentStore({ store, directory, clock: systemClock, log: silentLogger, options });
  const draft = (): ContentId =>
    inner.transact((tx) => {
      const id = contents.createDraft(tx, null);
      contents.write(id, 0, Buffer.from('some'));
      contents.flush(tx, id);
      countReference(tx, id, 1);
      return id;
    });
  const leave = (id: ContentId): void => inner.transact((tx) => countReference(tx, id, -1));
  const ids = Array.from({ length: count }, draft);
  for (const id of ids) leave(id);
  const isThere = (id: ContentId): boolean => contents.record(id) !== undefined;
  return { inner, contents, draft, leave, ids, isThere, reads: () => reads, scans: () => scans };
}

test('a long row of contents that nothing refers to is gone through once, not from its beginning for each portion', async () => {
  const { inner, contents, ids, isThere, reads } = await abandoned(3_000);
  const held = ids.slice(0, 500).map((id) => contents.lease(id));
  await inner.drain();

  let portions = 1;
  while (contents.collect()) portions += 1;

  expect(portions).toBeGreaterThan(10);
  expect(ids.filter(isThere)).toEqual(ids.slice(0, 500));
  // Once for each, and once more for those that are held and for the last portion.
  expect(reads()).toBeLessThanOrEqual(3_000 + 500 + 200);
  for (const lease of held) lease.release();
  while (contents.collect());
  expect(ids.filter(isThere)).toEqual([]);
  contents.close();
});

test('what is left behind the place where a portion ended goes with the next one that finds room', async () => {
  const { contents, draft, leave, ids, isThere } = await abandoned(300);
  const lease = contents.lease(ids[0] as ContentId);
  const last = draft();
  expect(contents.collect()).toBe(true);
  lease.release();
  leave(last);

  expect(contents.collect()).toBe(false);

  expect([...ids, last].filter(isThere)).toEqual([]);
  contents.close();
});

test('an idle store is not read by the collection, and a change or the release of a lease makes it read again', async () => {
  const { contents, draft, leave, ids, isThere, scans } = await abandoned(3);
  const lease = contents.lease(ids[0] as ContentId);
  contents.collect();
  contents.collect();
  const before = scans();
  for (let tick = 0; tick < 10; tick++) expect(contents.collect()).toBe(false);
  expect(scans()).toBe(before);

  lease.release();
  contents.collect();
  expect(ids.filter(isThere)).toEqual([]);

  contents.collect();
  const last = draft();
  leave(last);
  contents.collect();
  expect(isThere(last)).toBe(false);
  contents.close();
});

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { waitingChanges } from '../../src/store/waiting-changes.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

test('what waits in a store that nobody has open is counted, without owning it', async () => {
  const directory = stores.directory();
  expect(await waitingChanges(join(directory, 'store'))).toBe(0);
  expect(existsSync(join(directory, 'store'))).toBe(false);

  const store = await stores.open(directory);
  store.transact((tx) => {
    for (const ino of [5, 6, 7] as Inode[]) tx.put('dirty', ino, { sinceMs: 1, parked: null });
  });
  store.transact((tx) => tx.remove('dirty', 6 as Inode));
  await store.settle();
  expect(await waitingChanges(directory)).toBe(0); // its owner tells
  await store.close();
  expect(await waitingChanges(directory)).toBe(2);
  const again = await stores.open(directory);
  expect([...again.all('dirty')].map(([ino]) => ino)).toEqual([5, 7]);
});

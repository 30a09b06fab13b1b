import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { unmountedStore } from '../../src/store/unmounted-store.ts';
import { sampleNode } from './sample-records.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const NOTHING = { changes: 0, local: 0 };

test('what waits in a store that nobody has open is counted, without owning it', async () => {
  const directory = stores.directory();
  expect(await unmountedStore(join(directory, 'store'))).toEqual(NOTHING);
  expect(existsSync(join(directory, 'store'))).toBe(false);

  const store = await stores.open(directory);
  store.transact((tx) => {
    for (const ino of [5, 6, 7] as Inode[]) tx.put('dirty', ino, { sinceMs: 1, parked: null });
  });
  store.transact((tx) => tx.remove('dirty', 6 as Inode));
  await store.drain();
  expect(await unmountedStore(directory)).toEqual(NOTHING); // its owner counts them
  await store.close();
  expect(await unmountedStore(directory)).toEqual({ changes: 2, local: 0 });
  const again = await stores.open(directory);
  expect([...again.all('dirty')].map(([ino]) => ino)).toEqual([5, 7]);
});

test('files that stay on this machine are counted among other nodes; a FIFO is none', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  store.transact((tx) => {
    for (let ino = 2; ino < 1_200; ino++) {
      const node = sampleNode(ino, { localOnly: ino % 400 === 0 });
      writeNode(tx, undefined, node, 1);
    }
    writeNode(tx, undefined, sampleNode(2_000, { kind: 'fifo', localOnly: true }), 1);
  });
  await store.drain();
  await store.close();

  expect((await unmountedStore(directory)).local).toBe(2);
});

/** LMDB's own open of such a file ends the process. */
test.each([
  ['was begun and not written', (bytes: Buffer) => bytes.subarray(0, 0)],
  ['is cut short', (bytes: Buffer) => bytes.subarray(0, 4096)],
  ['is empty of sense', (bytes: Buffer) => Buffer.alloc(bytes.length, 0xa5)],
])('nothing is counted in an index that %s; whoever opens it hears of damage', async (_what, damaged) => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  store.transact((tx) => tx.put('dirty', 5 as Inode, { sinceMs: 1, parked: null }));
  await store.close();
  const index = join(directory, 'index/data.mdb');
  const bytes = damaged(readFileSync(index));
  writeFileSync(index, bytes);

  expect(await unmountedStore(directory)).toEqual(NOTHING);
  if (bytes.length === 0) return; // it is made anew
  // More than once: who was refused does not own the store.
  for (const _ of [1, 2]) await expect(stores.open(directory)).rejects.toThrow('data.mdb is damaged');
});

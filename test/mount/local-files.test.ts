import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { localFilesOf } from '../../src/mount/local-files.ts';
import { setTrashRoot } from '../../src/store/local-trash.ts';
import { removeNode, writeNode } from '../../src/store/node-table.ts';
import type { NodeRecord, StoreReader } from '../../src/store/tables.ts';
import { sampleLocal, sampleNode } from '../store/sample-records.ts';
import { TemporaryStores } from '../store/temporary-store.ts';

const stores = new TemporaryStores();
const ROOT = sampleNode(1, { kind: 'folder', local: sampleLocal(1, '') });

const file = (ino: number, changes: Partial<NodeRecord> = {}): NodeRecord =>
  sampleNode(ino, { local: sampleLocal(1, `file ${ino}`, { sizeBytes: 10 }), ...changes });

/** A store that refuses to search its nodes. */
function unsearchable(store: StoreReader): StoreReader {
  return {
    get: (table, key) => store.get(table, key),
    scan: (table, first, after) => store.scan(table, first, after),
    all: (table, after) => {
      if (table === 'node') throw new Error('all nodes are searched');
      return store.all(table, after);
    },
  };
}

test('local-only files are counted and named without a search of the nodes', async () => {
  const store = await stores.open();
  store.transact((tx) => {
    writeNode(tx, undefined, ROOT, 1);
    for (let ino = 10; ino < 2_000; ino++) writeNode(tx, undefined, file(ino, { localOnly: ino % 2 === 0 }), 1);
    writeNode(tx, undefined, file(2_000, { kind: 'fifo', localOnly: true }), 1);
  });

  const { count, bytes, paths } = await localFilesOf(unsearchable(store));

  expect({ count, bytes }).toEqual({ count: 995, bytes: 9_950 });
  expect(paths.slice(0, 2)).toEqual(['file 10', 'file 12']);
});

test('a file that is pushed from now on, is removed, or lies in the local trash is no local-only file any more', async () => {
  const store = await stores.open();
  const [pushed, removed, deleted, stays] = [10, 11, 12, 13].map((ino) => file(ino, { localOnly: true })) as [
    ...[NodeRecord, NodeRecord, NodeRecord, NodeRecord],
  ];
  const trash = 20 as Inode;
  store.transact((tx) => {
    writeNode(tx, undefined, ROOT, 1);
    for (const node of [pushed, removed, deleted, stays]) writeNode(tx, undefined, node, 1);
    const local = sampleLocal(trash, '.Trash');
    writeNode(tx, undefined, sampleNode(trash, { kind: 'folder', localOnly: true, local }), 1);
    setTrashRoot(tx, 1000, trash);
  });
  expect((await localFilesOf(store)).count).toBe(4);

  store.transact((tx) => {
    writeNode(tx, pushed, { ...pushed, localOnly: false }, 2);
    removeNode(tx, removed, 2);
    writeNode(tx, deleted, { ...deleted, local: sampleLocal(trash, 'deleted') }, 2);
  });

  expect((await localFilesOf(store)).paths).toEqual(['file 13']);
  expect([...store.all('local')].map(([ino]) => ino)).toEqual([12, 13]);
});

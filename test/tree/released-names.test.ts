import { expect, test } from 'vitest';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { LOCAL_NAMES } from '../../src/tree/names.ts';
import { releaseNames } from '../../src/tree/released-names.ts';
import { sampleLocal, sampleNode } from '../store/sample-records.ts';
import { makeTree } from './tree-fixture.ts';

/** [S-names-8] */
test('files that were local-only by a pattern of an earlier run and match none now are pushed, once; the others stay local-only', () => {
  const { store } = makeTree();
  const add = (parent: Inode, name: string, kind: 'file' | 'folder' = 'file'): Inode =>
    store.transact((tx) => {
      const ino = tx.nextId('inode') as Inode;
      writeNode(tx, undefined, { ...sampleNode(ino), kind, localOnly: true, local: sampleLocal(parent, name) }, 0);
      return ino;
    });
  const macro = add(ROOT_INODE, 'macro.swp');
  const folder = add(ROOT_INODE, 'folder.swp', 'folder');
  const inside = add(folder, 'inside');
  const stays = [
    add(folder, '.DS_Store'),
    add(ROOT_INODE, '.macro.swp'),
    add(add(ROOT_INODE, '._d', 'folder'), 'x.swp'),
  ];
  // Of no pattern: another reason keeps it here.
  stays.push(add(ROOT_INODE, 'kept', 'folder'));

  expect(releaseNames(store, LOCAL_NAMES, 1)).toEqual([macro, folder, inside]);

  for (const ino of [macro, folder, inside]) expect(store.get('dirty', ino)).toBeDefined();
  for (const ino of stays) expect(store.get('node', ino)?.localOnly).toBe(true);
  expect(releaseNames(store, LOCAL_NAMES, 1)).toEqual([]);
  const part = add(ROOT_INODE, 'film.part');
  expect(releaseNames(store, [...LOCAL_NAMES, '*.part'], 1)).toEqual([]);
  expect(releaseNames(store, LOCAL_NAMES, 1)).toEqual([part]);
});

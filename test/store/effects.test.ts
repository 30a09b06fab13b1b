import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

test('what is to happen after a commit happens, whatever one of it throws: the record is there by then', async () => {
  const store = await stores.open();
  const happened: string[] = [];

  const change = (): void =>
    store.transact((tx) => {
      tx.put('folder', 7 as Inode, { listedMs: 1 });
      tx.afterCommit(() => happened.push('first'));
      tx.afterCommit(() => {
        throw new Error('the disk does not let a file go');
      });
      tx.afterCommit(() => {
        throw new Error('another one');
      });
      tx.afterCommit(() => happened.push('last'));
    });

  expect(change).toThrow('the disk does not let a file go');
  expect(happened).toEqual(['first', 'last']);
  expect(store.get('folder', 7 as Inode)).toEqual({ listedMs: 1 });
});

test('nothing of it happens when the change itself throws', async () => {
  const store = await stores.open();
  const happened: string[] = [];

  expect(() =>
    store.transact((tx) => {
      tx.put('folder', 7 as Inode, { listedMs: 1 });
      tx.afterCommit(() => happened.push('after'));
      throw new Error('no');
    }),
  ).toThrow('no');

  expect(happened).toEqual([]);
  expect(store.get('folder', 7 as Inode)).toBeUndefined();
});

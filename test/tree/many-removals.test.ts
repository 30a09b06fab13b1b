import { expect, test } from 'vitest';
import { type Inode, ROOT_INODE, timespecOfMs } from '../../src/base/vocabulary.ts';
import type { TableName, Transaction } from '../../src/store/tables.ts';
import { checkStore, type Fixture, file, folder, makeTree, merge, ROOT_URL } from './tree-fixture.ts';

const FILES = 5;

/** A listed folder with files that the service has. @returns its inode */
function withFolder(fixture: Fixture): Inode {
  const listed = folder('dir', 'dir');
  merge(fixture, ROOT_INODE, [listed]);
  const ino = fixture.tree.child(ROOT_INODE, 'dir')?.ino as Inode;
  merge(
    fixture,
    ino,
    Array.from({ length: FILES }, (_, n) => file(`${n}`, `f${n}`)),
  );
  return ino;
}

/** Notes the reads and writes of changes from here on, as `get node 1`. */
function noted({ store }: Fixture): string[] {
  const calls: string[] = [];
  const transact = store.transact.bind(store);
  store.transact = (change, kind) =>
    transact((tx) => {
      const get: Transaction['get'] = (table: TableName, key: unknown) => {
        calls.push(`get ${table} ${key}`);
        return tx.get(table, key as never) as never;
      };
      const put: Transaction['put'] = (table: TableName, key: unknown, value: unknown) => {
        calls.push(`put ${table} ${key}`);
        tx.put(table, key as never, value as never);
      };
      return change({ ...tx, get, put });
    }, kind);
  return calls;
}

test('removals in one millisecond write the times of their folder once', () => {
  const fixture = makeTree();
  const dir = withFolder(fixture);
  const calls = noted(fixture);
  fixture.clock.advance(1_000);

  for (let n = 0; n < FILES - 1; n++) fixture.tree.remove(dir, `f${n}`, 'file');
  expect(calls.filter((call) => call === `put node ${dir}`)).toHaveLength(1);

  fixture.clock.advance(1);
  fixture.tree.remove(dir, `f${FILES - 1}`, 'file');
  expect(calls.filter((call) => call === `put node ${dir}`)).toHaveLength(2);
  const { mtime, ctime } = fixture.tree.node(dir)?.local ?? {};
  expect([mtime, ctime]).toEqual(Array(2).fill(timespecOfMs(fixture.clock.nowMs())));
  checkStore(fixture.store);
});

test('the removal of an unchanged file reads neither its row of resources nor one of dirty nodes', () => {
  const fixture = makeTree();
  const dir = withFolder(fixture);
  const calls = noted(fixture);

  fixture.tree.remove(dir, 'f0', 'file');

  expect(calls).toContain(`get name ${dir},f0`);
  expect(calls.filter((call) => /^get (resource|dirty)/.test(call))).toEqual([]);
  checkStore(fixture.store);
});

test('a file that is changed, removed and no longer on the service leaves no row', () => {
  const fixture = makeTree();
  const dir = withFolder(fixture);
  const { tree, store } = fixture;
  const { ino } = tree.child(dir, 'f0') ?? {};
  tree.rename(dir, 'f0', dir, 'renamed', 'replace');
  expect(store.get('dirty', ino as Inode)).toBeDefined();

  tree.rename(dir, 'renamed', dir, 'f0', 'replace');
  expect(store.get('dirty', ino as Inode)).toBeUndefined();
  checkStore(store);

  tree.remove(dir, 'f0', 'file');
  expect(store.get('dirty', ino as Inode)).toBeDefined();
  expect(store.get('resource', tree.node(ino as Inode)?.remote?.resource ?? ROOT_URL)).toBe(ino);
  checkStore(store);
});

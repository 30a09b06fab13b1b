import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { REMOVED_ROWS_BYTES, RemovedRows } from '../../src/kernel/removed-rows.ts';

const [ONE, OTHER] = [2 ** 40 + 1, 7] as Inode[] as [Inode, Inode];
const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const successorOf = (region: ArrayBuffer): RemovedRows => new RemovedRows(region, 0, true);

test('a successor finds the latest state of each node without a name, and no dropped one', () => {
  const region = new ArrayBuffer(REMOVED_ROWS_BYTES);
  const rows = new RemovedRows(region, 0, false);
  rows.lost(ONE, bytesOf('first'));
  rows.lost(OTHER, bytesOf('other'));
  rows.lost(ONE, bytesOf('second'));
  rows.dropped(OTHER);

  expect(successorOf(region).nameless()).toEqual([{ ino: ONE, node: bytesOf('second') }]);
  for (let i = 0; i < 5000; i++) rows.lost(ONE, bytesOf(`state ${i}`));
  expect(successorOf(region).nameless()).toEqual([{ ino: ONE, node: bytesOf('state 4999') }]);
});

test('of two states of a node the later one counts, whatever row it has', () => {
  const region = new ArrayBuffer(REMOVED_ROWS_BYTES);
  const rows = new RemovedRows(region, 0, false);
  rows.lost(OTHER, bytesOf('other'));
  rows.lost(ONE, bytesOf('first'));
  rows.dropped(OTHER);
  const before = new Uint8Array(region.slice(0));
  rows.lost(ONE, bytesOf('second')); // in the row of the other one
  // The process dies before it frees the row of the first state: the version of a row is its first number.
  const row = 8 * 8 + 4096;
  new Uint8Array(region).set(before.subarray(row, row + 8), row);

  expect(successorOf(region).nameless()).toEqual([{ ino: ONE, node: bytesOf('second') }]);
});

test('a state of a node that SIGKILL cut short leaves the former one', () => {
  const region = new ArrayBuffer(REMOVED_ROWS_BYTES);
  const rows = new RemovedRows(region, 0, false);
  rows.lost(ONE, bytesOf('first'));
  const dies = new Proxy(bytesOf('second'), {
    get: (target, key) => {
      if (key === '3') throw new Error('the process dies here');
      return Reflect.get(target, key);
    },
  });
  expect(() => rows.lost(ONE, dies)).toThrow('the process dies here');

  expect(successorOf(region).nameless()).toEqual([{ ino: ONE, node: bytesOf('first') }]);
});

test('a node that is too long, or one too many, has no row, and no former state either', () => {
  const region = new ArrayBuffer(REMOVED_ROWS_BYTES);
  const rows = new RemovedRows(region, 0, false);
  rows.lost(ONE, bytesOf('short'));
  rows.lost(ONE, new Uint8Array(5000));
  expect(successorOf(region).nameless()).toEqual([]);
  for (let i = 1; i <= 2000; i++) rows.lost(i as Inode, bytesOf('node'));
  expect(successorOf(region).nameless()).toHaveLength(1024);
});

test('a successor finds the latest entries that left open folders, oldest first', () => {
  const region = new ArrayBuffer(REMOVED_ROWS_BYTES);
  const rows = new RemovedRows(region, 0, false);
  for (let i = 1; i <= 8200; i++) rows.leaves(OTHER, i as Inode, `näme ${i}`);

  const left = [...successorOf(region).left()];
  expect(left).toHaveLength(8192);
  expect(left[0]).toEqual({ folder: OTHER, entry: 9, name: 'näme 9', order: 8 });
  expect(left.at(-1)?.name).toBe('näme 8200');
});

import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { RecentReads } from '../../src/store/recent-reads.ts';

const name = (text: string): readonly [Inode, string] => [1 as Inode, text];

test('a row is read once, also if it is not there', () => {
  const recent = new RecentReads();
  let reads = 0;
  const read = (): undefined => {
    reads += 1;
  };

  expect([recent.get('name', name('a'), read), recent.get('name', name('a'), read)]).toEqual([undefined, undefined]);
  expect(reads).toBe(1);
  recent.get('dirty', 1 as Inode, read);
  expect(reads).toBe(2);
});

test('a row that was written is read again, and the others are not', () => {
  const recent = new RecentReads();
  recent.get('name', name('a'), () => 2 as Inode);
  recent.get('name', name('b'), () => 3 as Inode);

  recent.delete('name', name('a'));

  expect(recent.get('name', name('a'), () => 4 as Inode)).toBe(4);
  expect(recent.get('name', name('b'), () => 5 as Inode)).toBe(3);
});

test('rows with bytes are not kept', () => {
  const recent = new RecentReads();
  recent.get('inline', 1 as never, () => new Uint8Array([1]));

  expect(recent.get('inline', 1 as never, () => new Uint8Array([2]))).toEqual(new Uint8Array([2]));
});

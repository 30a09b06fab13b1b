import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { KernelCache, UNCHANGED_MAX } from '../../src/fs/kernel-cache.ts';
import type { OpenFiles } from '../../src/fs/open-files.ts';
import { RecentInodes } from '../../src/fs/recent-inodes.ts';
import type { TreeInvalidation } from '../../src/tree/tree.ts';

/** The kernel's memory of ours where nothing is open: what it may keep, and that we do not remember everything that ever changed. */

const BYTES = { content: null, sizeBytes: 1, mtime: { sec: 1, nsec: 0 } };

function cache(): KernelCache {
  const files = { detach: () => null, hasDetached: () => false } as unknown as OpenFiles;
  return new KernelCache({
    files,
    view: () => {
      throw new Error('nobody asks');
    },
    localOf: () => null,
    clock: { elapsedMs: () => 0 },
  });
}

function inodes(from: number, count: number): Inode[] {
  return Array.from({ length: count }, (_, at) => (from + at) as Inode);
}

const changedBytes = (ino: Inode): TreeInvalidation => ({ kind: 'inode', ino, was: BYTES });
const changedEntry = (parent: Inode): TreeInvalidation => ({ kind: 'entry', parent, name: 'new' });

test.each([
  { what: 'bytes', changed: changedBytes },
  { what: 'an entry', changed: changedEntry },
])(
  'what the kernel has of an inode is kept until $what of it changed elsewhere, and again from the next open on',
  ({ changed }) => {
    const kernel = cache();
    const [ino] = inodes(7, 1) as [Inode];
    kernel.mayKeep(ino); // the first time: there is nothing to keep
    expect(kernel.mayKeep(ino)).toBe(true);

    kernel.changed([changed(ino)]);
    expect(kernel.mayKeep(ino)).toBe(false);
    expect(kernel.mayKeep(ino)).toBe(true);
  },
);

test('any number of remote changes drops the pages of changed files and keeps those in use', () => {
  const kernel = cache();
  const [changed, used] = inodes(1, 2) as [Inode, Inode];
  for (const ino of [changed, used]) kernel.mayKeep(ino);
  kernel.changed([changedBytes(changed)]);
  kernel.changed(inodes(1_000, 2 * UNCHANGED_MAX).map(changedBytes));
  kernel.changed(inodes(1_000, 2 * UNCHANGED_MAX).map(changedEntry));

  expect(kernel.mayKeep(used)).toBe(true);
  expect(kernel.mayKeep(changed)).toBe(false);
});

test('beyond the limit, the inodes with the oldest open are revalidated again', () => {
  const kernel = cache();
  const [used, first, ...others] = inodes(1, 3 * UNCHANGED_MAX) as [Inode, Inode, ...Inode[]];
  kernel.mayKeep(used);
  kernel.mayKeep(first);
  for (const ino of others) {
    kernel.mayKeep(ino);
    if (ino % 1_000 === 0) kernel.mayKeep(used);
  }

  expect(kernel.mayKeep(used)).toBe(true);
  for (const ino of others.slice(-UNCHANGED_MAX / 2)) if (!kernel.mayKeep(ino)) throw new Error(`${ino} is forgotten`);
  expect(kernel.mayKeep(first)).toBe(false);
});

test('at least so many inodes are remembered, at most twice as many', () => {
  const recent = new RecentInodes(10);
  for (const ino of inodes(1, 1_000)) {
    recent.add(ino);
    expect(recent.size).toBeLessThan(20);
    for (let back = 0; back < Math.min(ino, 10); back++) expect(recent.has((ino - back) as Inode)).toBe(true);
  }
  expect(recent.has(980 as Inode)).toBe(false);
  expect(recent.delete(995 as Inode)).toBe(true);
  expect(recent.delete(995 as Inode)).toBe(false);
});

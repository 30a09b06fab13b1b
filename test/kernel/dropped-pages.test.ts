import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { DroppedPages } from '../../src/kernel/dropped-pages.ts';
import { ManualClock } from './manual-clock.ts';

const FILE = 7 as Inode;
const OTHER = 8 as Inode;
const PAGE = 4096;

function pages() {
  const clock = new ManualClock();
  return { clock, dropped: new DroppedPages({ clock }) };
}

test('pages that were dropped and read before a write arrives are dropped once more', () => {
  const { dropped } = pages();
  dropped.dropped(FILE);
  dropped.read(FILE, PAGE, 2 * PAGE);
  expect(dropped.written(FILE, 3 * PAGE - 1, 12)).toEqual({ start: 2 * PAGE, end: 4 * PAGE });
  expect(dropped.written(FILE, 3 * PAGE, 12)).toBeNull(); // began after the reply to the former one
});

test.each([
  ['of pages that were not read', FILE, 3 * PAGE],
  ['to another file', OTHER, PAGE],
])('a write %s does no harm', (_what, ino, offset) => {
  const { dropped } = pages();
  dropped.dropped(FILE);
  dropped.read(FILE, PAGE, 2 * PAGE);
  expect(dropped.written(ino, offset, 12)).toBeNull();
});

test('a read before the pages were dropped, or of pages that were not dropped, does no harm', () => {
  const { dropped } = pages();
  dropped.read(FILE, 0, PAGE);
  expect(dropped.written(FILE, 0, 12)).toBeNull();
  dropped.read(FILE, 0, PAGE);
  dropped.dropped(FILE);
  expect(dropped.written(FILE, 0, 12)).toBeNull();
});

test('after a while nothing is remembered', () => {
  const { clock, dropped } = pages();
  dropped.dropped(FILE);
  clock.advance(600);
  dropped.dropped(OTHER);
  expect(dropped.isEmpty).toBe(false);
  clock.advance(600);
  dropped.read(OTHER, 0, PAGE);
  expect(dropped.written(OTHER, 0, 12)).not.toBeNull();
  clock.advance(600);
  expect(dropped.written(OTHER, 0, 12)).toBeNull();
  expect(dropped.isEmpty).toBe(true);
});

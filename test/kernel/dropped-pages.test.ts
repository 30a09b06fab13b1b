import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { DroppedPages } from '../../src/kernel/dropped-pages.ts';
import { ManualClock } from './manual-clock.ts';

const FILE = 7 as Inode;
const OTHER = 8 as Inode;
const PAGE = 4096;

/** Both files are open for writing. */
function pages() {
  const clock = new ManualClock();
  const dropped = new DroppedPages({ clock });
  for (const file of [FILE, OTHER]) dropped.openedToWrite(file);
  return { clock, dropped };
}

test('pages that were dropped and read before a write arrives are dropped once more', () => {
  const { dropped } = pages();
  dropped.dropped(FILE);
  dropped.read(FILE, PAGE, 2 * PAGE);
  expect(dropped.written(FILE, 3 * PAGE - 1, 12)).toEqual([{ start: 2 * PAGE, end: 3 * PAGE }]);
  expect(dropped.written(FILE, 3 * PAGE - 1, 12)).toEqual([]); // began after the reply to the former one
});

test('each part that was read is dropped, and not what is between them', () => {
  const { dropped } = pages();
  dropped.dropped(FILE);
  for (const page of [0, 1, 4, 9]) dropped.read(FILE, page * PAGE, PAGE);
  expect(dropped.written(FILE, PAGE, 8 * PAGE)).toEqual([
    { start: PAGE, end: 2 * PAGE },
    { start: 4 * PAGE, end: 5 * PAGE },
  ]);
  for (let page = 0; page < 100; page += 2) dropped.read(FILE, page * PAGE, PAGE);
  expect(dropped.written(FILE, 98 * PAGE, PAGE)).toEqual([{ start: 98 * PAGE, end: 99 * PAGE }]);
});

test.each([
  ['of pages that were not read', FILE, 3 * PAGE],
  ['to another file', OTHER, PAGE],
])('a write %s does no harm', (_what, ino, offset) => {
  const { dropped } = pages();
  dropped.dropped(FILE);
  dropped.read(FILE, PAGE, 2 * PAGE);
  expect(dropped.written(ino, offset, 12)).toEqual([]);
});

test('a read before the pages were dropped, or of pages that were not dropped, does no harm', () => {
  const { dropped } = pages();
  dropped.read(FILE, 0, PAGE);
  expect(dropped.written(FILE, 0, 12)).toEqual([]);
  dropped.read(FILE, 0, PAGE);
  dropped.dropped(FILE);
  expect(dropped.written(FILE, 0, 12)).toEqual([]);
});

test('pages that are dropped while nobody can write are forgotten', () => {
  const { dropped } = pages();
  dropped.openedToWrite(FILE);
  dropped.closedByWriter(FILE);
  dropped.dropped(FILE);
  expect(dropped.isEmpty).toBe(false);
  dropped.closedByWriter(FILE);
  dropped.dropped(FILE);
  expect(dropped.isEmpty).toBe(true);
});

test('after a while nothing is remembered', () => {
  const { clock, dropped } = pages();
  dropped.dropped(FILE);
  clock.advance(6_000);
  dropped.dropped(OTHER);
  expect(dropped.isEmpty).toBe(false);
  clock.advance(6_000);
  dropped.read(OTHER, 0, PAGE);
  expect(dropped.written(OTHER, 0, 12)).toEqual([{ start: 0, end: PAGE }]);
  clock.advance(6_000);
  expect(dropped.written(OTHER, 0, 12)).toEqual([]);
  expect(dropped.isEmpty).toBe(true);
});

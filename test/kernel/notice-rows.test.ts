import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { NOTICE_ROWS_BYTES, type Notice, NoticeRows } from '../../src/kernel/notice-rows.ts';

const START = 4096;
const ROWS = 4096;
const regionOf = (): ArrayBuffer => new ArrayBuffer(START + NOTICE_ROWS_BYTES);
const about = (name: string): Notice => ({
  ...{ kind: 'entry', ino: (2 ** 40 + 7) as Inode, child: 0 as Inode, name, offset: -1, length: 2 ** 41 },
});
/** As the addon does when the notification is written. */
const written = (region: ArrayBuffer, row: number): void => {
  new Float64Array(region, row, 1)[0] = 0;
};

test('a successor finds the notices that were not written, as they were, in order', () => {
  const region = regionOf();
  const rows = new NoticeRows(region, START);
  const names = ['a', 'é'.repeat(127), 'x'.repeat(255), 'd'];
  const places = names.map((name) => rows.note(about(name)));
  written(region, places[0] as number);
  rows.note(about('in the place of the first'));

  const found = new NoticeRows(region, START).inherited(0);

  expect(found.map(({ row: _, ...notice }) => notice)).toEqual(
    [...names.slice(1), 'in the place of the first'].map(about),
  );
  for (const { row } of found) written(region, row);
  expect(new NoticeRows(region, START).inherited(0)).toEqual([]);
});

test('a notice about a record that the journal does not have is none', () => {
  const region = regionOf();
  const rows = new NoticeRows(region, START);
  rows.note(about('recorded'), 17);
  rows.note(about('not recorded'), 18);

  expect(new NoticeRows(region, START).inherited(17).map(({ name }) => name)).toEqual(['recorded']);
  // The next record gets the number.
  expect(new NoticeRows(region, START).inherited(18).map(({ name }) => name)).toEqual(['recorded']);
});

test('a notice without a free row has none, and one that was written makes room for the next', () => {
  const region = regionOf();
  const rows = new NoticeRows(region, START);
  const places = Array.from({ length: ROWS }, (_, i) => rows.note(about(`n${i}`)));
  expect(new Set(places).size).toBe(ROWS);
  expect(rows.note(about('one too many'))).toBe(0);
  rows.drop(0);

  for (const row of places) written(region, row);

  expect(places).toContain(rows.note(about('next')));
});

import { expect, test } from 'vitest';
import type { UnflushedDraft } from '../../src/base/draft-record.ts';
import type { ContentId, Extent, Inode } from '../../src/base/vocabulary.ts';
import { DRAFT_ROWS_BYTES, DraftRows } from '../../src/kernel/draft-rows.ts';

const [CONTENT, OTHER] = [2 ** 40 + 5, 6] as ContentId[] as [ContentId, ContentId];
const WRITING = {
  mtime: { sec: 1_700_000_000, nsec: 5 },
  ctime: { sec: 1_700_000_001, nsec: 999_999_999 },
  wasEmptied: true,
  isJustEmptied: false,
};

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

const draftOf = (given: Partial<UnflushedDraft>): UnflushedDraft => ({
  ...{ content: CONTENT, ino: 9 as Inode, sizeBytes: 100, baseBytes: 40, extents: [0, 3, 10, 13] },
  ...{ memory: bytesOf('abc.......def'), writing: WRITING, ...given },
});

const change = (rows: DraftRows, draft: UnflushedDraft, changed: Extent | null): boolean =>
  rows.changed(draft.content, draft.ino, draft, draft.writing, changed);

/** The process dies; its successor finds the same memory. */
const successorOf = (region: ArrayBuffer, lastRecord: number): DraftRows => {
  const rows = new DraftRows(region, 0, true);
  rows.judge(lastRecord);
  return rows;
};

test('a successor finds the latest state of each draft with its bytes', () => {
  const region = new ArrayBuffer(DRAFT_ROWS_BYTES);
  const rows = new DraftRows(region, 0, false);
  change(rows, draftOf({}), { start: 0, end: 13 });
  change(rows, draftOf({ content: OTHER, memory: null, extents: [2 ** 41, 2 ** 41 + 1] }), null);
  const latest = draftOf({ memory: bytesOf('abX.......def'), sizeBytes: 13 });
  change(rows, latest, { start: 2, end: 3 });

  expect(successorOf(region, 0).inherited()).toEqual([
    latest,
    draftOf({ content: OTHER, memory: null, extents: [2 ** 41, 2 ** 41 + 1] }),
  ]);
});

test('a state that SIGKILL cut short is not the one that a successor finds', () => {
  const region = new ArrayBuffer(DRAFT_ROWS_BYTES);
  const rows = new DraftRows(region, 0, false);
  change(rows, draftOf({}), { start: 0, end: 13 });
  const dies = { ...draftOf({ sizeBytes: 1 }) };
  Object.defineProperty(dies, 'extents', {
    value: new Proxy([0, 3, 5, 7], {
      get: (target, key) => {
        if (key === '2') throw new Error('the process dies here');
        return Reflect.get(target, key);
      },
    }),
  });
  expect(() => change(rows, dies, null)).toThrow('the process dies here');

  expect(successorOf(region, 0).inherited()).toEqual([draftOf({})]);
});

test('changes that a journal record stored are not made again, and those whose record was not written are', () => {
  const region = new ArrayBuffer(DRAFT_ROWS_BYTES);
  const rows = new DraftRows(region, 0, false);
  change(rows, draftOf({}), { start: 0, end: 13 });
  change(rows, draftOf({ content: OTHER }), { start: 0, end: 13 });
  rows.storing(CONTENT);
  rows.writing(7);

  // The process dies before or after the record.
  const copy = region.slice(0);
  expect(successorOf(copy, 6).inherited()).toHaveLength(2);
  expect(successorOf(region, 7).inherited()).toEqual([draftOf({ content: OTHER })]);
});

test('a record that the disk refused stores nothing, nor does one after a transaction that failed before its record', () => {
  const region = new ArrayBuffer(DRAFT_ROWS_BYTES);
  const rows = new DraftRows(region, 0, false);
  change(rows, draftOf({}), { start: 0, end: 13 });
  rows.storing(CONTENT);
  rows.writing(7);
  rows.refused();
  rows.writing(7);
  rows.storing(CONTENT);
  rows.begin(); // the next request
  rows.writing(8);

  expect(successorOf(region, 8).inherited()).toHaveLength(1);
});

test('an append is made once: its request does nothing after it has changed the draft, and only then', () => {
  const region = new ArrayBuffer(DRAFT_ROWS_BYTES);
  const rows = new DraftRows(region, 0, false);
  expect(rows.appends(10, CONTENT)).toBe(true);
  change(rows, draftOf({}), { start: 0, end: 13 });
  expect(rows.appends(12, CONTENT)).toBe(true);
  change(rows, draftOf({ content: OTHER }), { start: 0, end: 13 });
  expect(rows.appends(14, OTHER)).toBe(true);

  const successor = successorOf(region, 0);
  expect(successor.appends(10, CONTENT)).toBe(false);
  expect(successor.appends(12, CONTENT)).toBe(true);
  change(successor, draftOf({ sizeBytes: 300 }), null);
  successor.dropped(CONTENT);

  const third = successorOf(region, 0);
  expect(third.appends(10, CONTENT)).toBe(false);
  expect(third.appends(12, CONTENT)).toBe(false);
  expect(third.appends(14, OTHER)).toBe(true);
});

test('a draft with too many extents, or one too many, is not kept, and its row is complete once it fits again', () => {
  const region = new ArrayBuffer(DRAFT_ROWS_BYTES);
  const rows = new DraftRows(region, 0, false);
  const extents = Array.from({ length: 10_000 }, (_, i) => i * 3);
  expect(change(rows, draftOf({}), { start: 0, end: 13 })).toBe(true);
  expect(change(rows, draftOf({ memory: bytesOf('ABC.......DEF'), extents }), { start: 0, end: 13 })).toBe(false);
  const latest = draftOf({ memory: bytesOf('ABC.......DEF'), sizeBytes: 14 });
  expect(change(rows, latest, null)).toBe(true);
  expect(successorOf(region.slice(0), 0).inherited()).toEqual([latest]);

  const kept = Array.from({ length: 2000 }, (_, i) => change(rows, draftOf({ content: (i + 10) as ContentId }), null));
  expect(kept.indexOf(false)).toBe(1023);
  rows.dropped(CONTENT);
  expect(change(rows, draftOf({ content: OTHER }), null)).toBe(true);
});

test('as many rows are used as drafts have changes at a time', () => {
  const region = new ArrayBuffer(DRAFT_ROWS_BYTES);
  const rows = new DraftRows(region, 0, false);
  for (let i = 1; i <= 5000; i++) {
    change(rows, draftOf({ content: i as ContentId, memory: null }), null);
    rows.dropped((i - 1) as ContentId);
  }

  expect(successorOf(region, 0).inherited()).toEqual([draftOf({ content: 5000 as ContentId, memory: null })]);
});

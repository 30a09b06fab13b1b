import { expect, test } from 'vitest';
import type { VersionUrl } from '../../src/base/vocabulary.ts';
import { decisionOf, parseTime } from '../../src/cli/commands/restore-at.ts';

const version = (name: string, lastModifiedMs: number | null) => ({
  name,
  version: { url: name as VersionUrl, sizeBytes: 1, complete: true, lastModifiedMs, mediaType: null },
});

/** [S-history-4] */
test.each([
  ['2026-11-20T13:05Z', '2026-11-20T13:05:00.000Z'],
  ['2026-11-20T13.05.11Z', '2026-11-20T13:05:11.999Z'],
  ['2026-11-20 13:05:11Z', '2026-11-20T13:05:11.999Z'],
])('the time %s is %s', (text, iso) => expect(new Date(parseTime(text)).toISOString()).toBe(iso));

/** [S-history-4] */
test('a day is its first moment, in local time', () => {
  expect(parseTime('2026-11-20')).toBe(new Date(2026, 10, 20).getTime());
});

test.each(['monday', '2026', '2026-13-40', '2026-11-20T25:00', ''])('%j is no time', (text) =>
  expect(() => parseTime(text)).toThrow(RangeError),
);

/** [S-history-4] */
test('the newest version of that time is restored, unless the file still has it', () => {
  const versions = [version('c', 30), version('b', 20), version('x', null), version('a', 10)];
  expect(decisionOf(versions, 25, false)).toEqual({ type: 'restore', name: 'b' });
  expect(decisionOf(versions, 30, false)).toEqual({ type: 'same' });
  expect(decisionOf(versions, 30, true)).toEqual({ type: 'restore', name: 'c' });
  expect(decisionOf(versions, 9, false)).toEqual({ type: 'none' });
  expect(decisionOf([], 9, false)).toEqual({ type: 'none' });
});

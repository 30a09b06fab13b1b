import { expect, test } from 'vitest';
import { requestedRange } from '../../src/server/byte-range.ts';

const SIZE_BYTES = 10;

test.each([
  ['bytes=2-4', 2, 5],
  ['bytes=2-2', 2, 3],
  ['bytes=8-', 8, 10],
  ['bytes=8-10', 8, 10],
  ['bytes=-3', 7, 10],
  ['bytes=-11', 0, 10],
  [' Bytes = 2 - 4 ', 2, 5],
  ['bytes=2-9223372036854775807', 2, 10],
  ['bytes=2-18446744073709551615', 2, 10],
  ['bytes=-18446744073709551615', 0, 10],
  [`bytes=2-${'9'.repeat(1_000)}`, 2, 10],
])('%s is a range', (header, start, end) => {
  expect(requestedRange(header, SIZE_BYTES)).toEqual({ start, end });
});

test.each([undefined, '', 'lines=1-2', 'bytes', 'bytes=0-1,4-5'])('%s means everything', (header) => {
  expect(requestedRange(header, SIZE_BYTES)).toBeNull();
});

test.each([
  'bytes=',
  'bytes=-',
  'bytes=-0',
  'bytes=5-2',
  'bytes=10-',
  'bytes=1 2-3',
  'bytes=a-b',
  'bytes=1--2',
  'bytes=2',
])('%s is refused', (header) => {
  expect(() => requestedRange(header, SIZE_BYTES)).toThrow(
    expect.objectContaining({ status: 416, headers: { 'Content-Range': 'bytes */10' } }),
  );
});

// Taken apart in every way that there is, so many take minutes.
test('blanks without end are taken apart in no time', () => {
  const blanks = ' '.repeat(2 ** 19);

  expect(requestedRange(`bytes=${blanks}2-4`, SIZE_BYTES)).toEqual({ start: 2, end: 5 });
  expect(() => requestedRange(`bytes=${blanks}x`, SIZE_BYTES)).toThrow('Range not satisfiable');
});

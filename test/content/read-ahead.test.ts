import { describe, expect, test } from 'vitest';
import type { Extent } from '../../src/base/vocabulary.ts';
import { ReadAhead } from '../../src/content/read-ahead.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const SIZE = 1024 * MIB;

/** Feeds reads of equal length at `starts`, and gives what was asked for ahead in all. */
function run(
  readAhead: ReadAhead,
  starts: readonly number[],
  length = 128 * KIB,
  paceBytes = 4 * MIB,
): { asked: Extent[]; bytes: number } {
  const asked: Extent[] = [];
  for (const start of starts)
    asked.push(...(readAhead.afterRead({ start, end: start + length }, SIZE, true, paceBytes) ?? []));
  return { asked, bytes: asked.reduce((sum, { start, end }) => sum + end - start, 0) };
}

const rowOf = (count: number, from: number, step: number): number[] =>
  Array.from({ length: count }, (_, index) => from + index * step);

/** How much of the reads after the first few was asked for before they came. */
function coverage(readAhead: ReadAhead, starts: readonly number[], length = 128 * KIB): number {
  const asked: Extent[] = [];
  let covered = 0;
  for (const start of starts) {
    if (asked.some((extent) => extent.start <= start && start + length <= extent.end)) covered++;
    asked.push(...(readAhead.afterRead({ start, end: start + length }, SIZE, true) ?? []));
  }
  return covered / starts.length;
}

test('a file read from its start is asked for ahead, in growing steps, never twice', () => {
  const { asked } = run(new ReadAhead(), rowOf(400, 0, 128 * KIB), 128 * KIB, 16 * MIB);

  for (let at = 1; at < asked.length; at++) expect(asked[at]?.start).toBe(asked[at - 1]?.end);
  const lengths = asked.map(({ start, end }) => end - start);
  expect(Math.max(...lengths)).toBeGreaterThanOrEqual(4 * MIB);
  expect(Math.max(...lengths)).toBeLessThanOrEqual(32 * MIB);
});

test.each([
  ['forwards', rowOf(800, 0, 64 * KIB)],
  ['backwards', rowOf(800, 900 * MIB, -64 * KIB)],
])('a fast line brings at most 8 MiB and twice what its reader consumed %s', (_name, starts) => {
  const readAhead = new ReadAhead();
  let askedBytes = 0;
  for (const [index, start] of starts.entries()) {
    const ahead = readAhead.afterRead({ start, end: start + 64 * KIB }, SIZE, true, 32 * MIB) ?? [];
    for (const extent of ahead) askedBytes += extent.end - extent.start;
    const consumedBytes = (index + 1) * 64 * KIB;
    // A first window was asked for before two reads had shown that it goes backwards.
    expect(askedBytes).toBeLessThanOrEqual(2 * consumedBytes + 8 * MIB + MIB / 2);
  }
});

test('a window is at most what the cache leaves to it', () => {
  const readAhead = new ReadAhead(5 * MIB);
  for (const start of rowOf(800, 0, 64 * KIB)) {
    const ahead = readAhead.afterRead({ start, end: start + 64 * KIB }, SIZE, true, 32 * MIB) ?? [];
    for (const extent of ahead) expect(extent.end - start).toBeLessThanOrEqual(6 * MIB);
  }
});

test('read-ahead windows stay short on a slow connection and grow on a fast one', () => {
  const askedAt = (paceBytes: number): Extent[] => {
    const readAhead = new ReadAhead();
    const starts = rowOf(800, 0, 128 * KIB);
    return starts.flatMap(
      (start) => readAhead.afterRead({ start, end: start + 128 * KIB }, SIZE, true, paceBytes) ?? [],
    );
  };
  const [slow, fast] = [askedAt(100 * KIB), askedAt(16 * MIB)];

  // Never further ahead of the last read than a dozen requests of the least length.
  expect(slow.at(-1)?.end).toBeLessThanOrEqual(800 * 128 * KIB + 12 * MIB);
  expect(Math.max(...slow.map(({ start, end }) => end - start))).toBe(MIB);
  const long = fast.filter(({ end }) => end > 64 * MIB);
  expect(long.length).toBeGreaterThan(4);
  expect(Math.min(...long.map(({ start, end }) => end - start))).toBeGreaterThanOrEqual(4 * MIB);
});

test('a reader who never has to wait gets no longer windows', () => {
  const readAhead = new ReadAhead();
  const asked: Extent[] = [];
  for (const start of rowOf(400, 0, 128 * KIB))
    asked.push(...(readAhead.afterRead({ start, end: start + 128 * KIB }, SIZE, false) ?? []));

  expect(Math.max(...asked.map(({ start, end }) => end - start))).toBe(MIB);
  expect((asked.at(-1)?.end ?? 0) - 400 * 128 * KIB).toBeLessThanOrEqual(8 * MIB);
});

test('a file that is read from its start keeps every connection busy at once; other places and slow lines begin with less', () => {
  const first = (start: number, paceBytes: number | null): readonly Extent[] => {
    const readAhead = new ReadAhead();
    readAhead.afterRead({ start, end: start + 256 * KIB }, SIZE, true, paceBytes);
    return readAhead.afterRead({ start: start + 256 * KIB, end: start + 512 * KIB }, SIZE, true, paceBytes) ?? [];
  };
  const begun = (paceBytes: number | null): readonly Extent[] =>
    new ReadAhead().afterRead({ start: 0, end: 256 * KIB }, SIZE, true, paceBytes) ?? [];

  for (const paceBytes of [null, 16 * MIB]) {
    expect(begun(paceBytes)).toHaveLength(8);
    expect(begun(paceBytes).at(-1)?.end).toBeLessThanOrEqual(9 * MIB);
  }
  expect(begun(MIB)).toEqual([{ start: 256 * KIB, end: 768 * KIB }]);
  expect(first(500 * MIB, 16 * MIB)).toHaveLength(1);
});

describe('what goes on is there before it is read', () => {
  test.each([
    ['forwards', rowOf(200, 0, 128 * KIB)],
    ['forwards from the middle', rowOf(200, 500 * MIB, 128 * KIB)],
    ['backwards', rowOf(200, 600 * MIB, -128 * KIB)],
    ['a little out of order', rowOf(200, 0, 128 * KIB).map((_, index, all) => all[index ^ 1] as number)],
    ['two streams in turn', rowOf(100, 0, 128 * KIB).flatMap((start) => [start, start + 700 * MIB])],
    [
      'three streams in turn',
      rowOf(70, 0, 128 * KIB).flatMap((start) => [start, start + 300 * MIB, start + 700 * MIB]),
    ],
    ['jumps of equal length', rowOf(200, 0, 3 * MIB)],
    ['jumps of equal length backwards', rowOf(200, 900 * MIB, -3 * MIB)],
  ])('%s', (_name, starts) => {
    expect(coverage(new ReadAhead(), starts)).toBeGreaterThan(0.85);
  });
});

test('random reads ask for nothing ahead', () => {
  let state = 12345;
  const random = (): number => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return 4096 * Math.floor((state / 2147483648) * (SIZE / 4096 - 1));
  };
  const starts = Array.from({ length: 200 }, random).filter((start) => start > 0);

  expect(run(new ReadAhead(), starts, 4096).bytes).toBeLessThan(2 * MIB);
});

test('a random read that falls near an earlier one is no stream yet', () => {
  let state = 4711;
  const near = Array.from({ length: 200 }, () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return 500 * MIB + 4096 * Math.floor((state / 2147483648) * 128 * 256);
  });

  expect(run(new ReadAhead(), near, 4096).bytes).toBeLessThan(2 * MIB);
});

test.each([-120, -64, -16, 16, 120])('a short read %i KiB beside an earlier one is no stream yet', (besideKib) => {
  const readAhead = new ReadAhead();
  const earlier = 500 * MIB;

  expect(run(readAhead, [earlier, earlier + 4096 + besideKib * KIB], 4096).asked).toEqual([]);
});

test('nothing beyond the end, or before the start, is asked for', () => {
  const size = 3 * MIB + 10;
  for (const starts of [rowOf(25, 0, 128 * KIB), rowOf(25, 3 * MIB - 128 * KIB, -128 * KIB), rowOf(4, 0, 700 * KIB)]) {
    const readAhead = new ReadAhead();
    for (const start of starts) {
      for (const extent of readAhead.afterRead({ start, end: Math.min(start + 128 * KIB, size) }, size, true) ?? []) {
        expect(extent.start).toBeGreaterThanOrEqual(0);
        expect(extent.end).toBeLessThanOrEqual(size);
        expect(extent.start).toBeLessThan(extent.end);
      }
    }
  }
});

test('a read that goes on nowhere says so', () => {
  const readAhead = new ReadAhead();
  run(readAhead, rowOf(10, 0, 128 * KIB));

  expect(readAhead.afterRead({ start: 500 * MIB, end: 500 * MIB + 4096 }, SIZE, true)).toBeNull();
});

describe('who reads only what stands at the beginning gets no more', () => {
  // What the kernel makes of reads of 4, 16 and 64 KiB with its own read-ahead of 128 KiB, or of 1 MiB.
  test.each([
    ['one read of 64 KiB', [128]],
    ['small reads', [16, 32, 64, 128]],
    ['small reads, long read-ahead of the kernel', [16, 64, 128]],
  ])('%s', (_name, lengths) => {
    const readAhead = new ReadAhead();
    let at = 0;
    for (const length of lengths) {
      const extent = { start: at, end: at + length * KIB };
      expect(readAhead.afterRead(extent, SIZE, true)).toEqual([]);
      at = extent.end;
    }
  });

  test('a reader that continues gets read-ahead with its next read', () => {
    const small = new ReadAhead();
    expect(coverage(small, rowOf(400, 0, 32 * KIB), 32 * KIB)).toBeGreaterThan(0.9);
    const long = new ReadAhead();
    expect(long.afterRead({ start: 0, end: 128 * KIB }, SIZE, true)).toEqual([]);
    expect(long.afterRead({ start: 128 * KIB, end: 256 * KIB }, SIZE, true)).not.toEqual([]);
    expect(new ReadAhead().afterRead({ start: 0, end: 256 * KIB }, SIZE, true)).not.toEqual([]);
  });
});

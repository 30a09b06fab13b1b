import type { Extent } from '../base/vocabulary.ts';

/**
 * Sets of byte ranges as flat sorted arrays, [start, end, start, end, …], neither empty nor touching. Functions that
 * change an array change it in place. Appending behind the last range, the common case, costs no search.
 */
export type FlatExtents = number[];

/** Index of the first range that ends behind `offset` (the row's length when there is none). */
export function indexBehind(extents: readonly number[], offset: number): number {
  let low = 0;
  let high = extents.length / 2;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((extents[middle * 2 + 1] as number) <= offset) low = middle + 1;
    else high = middle;
  }
  return low * 2;
}

export function addExtent(extents: FlatExtents, start: number, end: number): void {
  if (start >= end) return;
  const lastEnd = extents.at(-1);
  if (lastEnd === undefined || start > lastEnd) {
    extents.push(start, end);
    return;
  }
  // Ranges that overlap or touch the new one become part of it.
  const from = indexBehind(extents, start - 1);
  let to = from;
  let newStart = start;
  let newEnd = end;
  while (to < extents.length && (extents[to] as number) <= end) {
    newStart = Math.min(newStart, extents[to] as number);
    newEnd = Math.max(newEnd, extents[to + 1] as number);
    to += 2;
  }
  if (to - from === 2) {
    extents[from] = newStart;
    extents[from + 1] = newEnd;
  } else {
    extents.splice(from, to - from, newStart, newEnd);
  }
}

export function removeExtent(extents: FlatExtents, start: number, end: number): void {
  if (start >= end) return;
  const from = indexBehind(extents, start);
  let to = from;
  const left: number[] = [];
  while (to < extents.length && (extents[to] as number) < end) {
    const s = extents[to] as number;
    const e = extents[to + 1] as number;
    if (s < start) left.push(s, start);
    if (e > end) left.push(end, e);
    to += 2;
  }
  if (to > from) extents.splice(from, to - from, ...left);
}

export function coversExtent(extents: readonly number[], start: number, end: number): boolean {
  if (start >= end) return true;
  const at = indexBehind(extents, start);
  return at < extents.length && (extents[at] as number) <= start && (extents[at + 1] as number) >= end;
}

/** How many bytes the ranges hold together. */
export function bytesOf(extents: readonly number[]): number {
  let bytes = 0;
  for (let at = 0; at < extents.length; at += 2) bytes += (extents[at + 1] as number) - (extents[at] as number);
  return bytes;
}

/** The part of `extent` within [0, sizeBytes). */
export function clip(extent: Extent, sizeBytes: number): Extent {
  const start = Math.min(Math.max(extent.start, 0), sizeBytes);
  return { start, end: Math.max(start, Math.min(extent.end, sizeBytes)) };
}

/** The blocks that `extent` touches, as bytes, cut at `sizeBytes`. */
export function alignOut(extent: Extent, blockBytes: number, sizeBytes: number): Extent {
  return {
    start: extent.start - (extent.start % blockBytes),
    end: Math.min(Math.ceil(extent.end / blockBytes) * blockBytes, sizeBytes),
  };
}

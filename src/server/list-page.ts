import type { ListingOrder } from '../protocol/endpoints.ts';
import type { ResourceRow } from './rows.ts';

/** One page of a list, and whether more entries follow. */
export interface Page<T> {
  readonly entries: readonly T[];
  readonly start: number;
  readonly hasMore: boolean;
}

export function page<T>(all: readonly T[], start: number, max: number): Page<T> {
  return { entries: all.slice(start, start + max), start, hasMore: all.length - start > max };
}

/** A page of named entries; with very long names it has fewer, so that each response stays below some MiB. */
export function namedPage<T extends { readonly name: string }>(all: readonly T[], start: number, max: number): Page<T> {
  let [end, nameChars] = [start, 0];
  for (; end < Math.min(start + max, all.length) && nameChars <= PAGE_NAME_CHARS_MAX; end += 1)
    nameChars += (all[end] as T).name.length;
  return { entries: all.slice(start, end), start, hasMore: all.length > end };
}

export const PAGE_NAME_CHARS_MAX = 256 * 1024;

/** Index of the last entry; of an empty page `start`. ASSUMED (docs/service.md 5.2) */
export function endOf(page: Page<unknown>): number {
  return page.start + Math.max(0, page.entries.length - 1);
}

/** Ascending; entries without a size or date, and equal ones, keep the order of creation (docs/service.md 5.3). */
export function sorted(rows: readonly ResourceRow[], order: ListingOrder): ResourceRow[] {
  const keys = new Map(rows.map((row) => [row, keyOf(row, order)]));
  return [...rows].sort((a, b) => {
    const left = keys.get(a) as string | number;
    const right = keys.get(b) as string | number;
    if (left === right) return a.seq - b.seq;
    return left < right ? -1 : 1;
  });
}

function keyOf(row: ResourceRow, order: ListingOrder): string | number {
  switch (order) {
    case 'name':
      return row.name;
    case 'extension':
      return row.kind === 'folder' ? '' : extensionOf(row.name);
    case 'size':
      return row.kind === 'folder' ? 0 : (row.newest?.sizeBytes ?? -1);
    case 'last_modified':
      return row.kind === 'folder' ? 0 : (row.newest?.lastModifiedMs ?? 0);
    default:
      return order satisfies never;
  }
}

/** The text after the last dot, in lower case; empty without a dot, or if the name only begins with one. */
export function extensionOf(name: string): string {
  const dot = name.lastIndexOf('.');
  return dot <= 0 ? '' : name.slice(dot + 1).toLowerCase();
}

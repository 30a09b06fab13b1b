import type { Row } from './overlay.ts';
import type { Tables } from './tables.ts';

/** A removed node: only its push reads it again. A program that removes thousands would replace all other nodes in the cache. */
export function isTombstone({ table, value }: Row): boolean {
  return table === 'node' && (value as Tables['node']['value']).local === null;
}

/** The highest inode with a record among the rows: inodes count upwards, so that a new one is the highest. 0 without any. */
export function newestNode(rows: readonly Row[]): number {
  let newest = 0;
  for (const { table, key } of rows) if (table === 'node') newest = Math.max(newest, key as number);
  return newest;
}

export function* namesIn(rows: readonly Row[]): Generator<Tables['name']['key']> {
  for (const { table, key } of rows) if (table === 'name') yield key as Tables['name']['key'];
}

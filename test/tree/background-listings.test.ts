import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import {
  BACKGROUND_LISTINGS_MAX,
  BACKGROUND_WAITING_MAX,
  BackgroundListings,
} from '../../src/tree/background-listings.ts';

function begin() {
  const listed: Inode[] = [];
  const ends: (() => void)[] = [];
  const due = { isDue: (_folder: Inode) => true };
  const listings = new BackgroundListings({
    isDue: (folder) => due.isDue(folder),
    list: (folder) => {
      listed.push(folder);
      return new Promise((resolve) => ends.push(resolve));
    },
  });
  const endAll = async (): Promise<void> => {
    for (let end = ends.shift(); end !== undefined; end = ends.shift()) {
      end();
      await Promise.resolve();
      await Promise.resolve();
    }
  };
  return { listings, listed, endAll, due };
}

test('the folders used least recently are dropped above the limit, and listed at their next use', async () => {
  const { listings, listed, endAll } = begin();
  const all = Array.from({ length: BACKGROUND_LISTINGS_MAX + BACKGROUND_WAITING_MAX + 2 }, (_, n) => (n + 2) as Inode);
  for (const folder of all) listings.add(folder);
  expect(listed).toEqual(all.slice(0, BACKGROUND_LISTINGS_MAX));
  await endAll();

  const dropped = all.filter((folder) => !listed.includes(folder));
  expect(dropped).toEqual(all.slice(BACKGROUND_LISTINGS_MAX, BACKGROUND_LISTINGS_MAX + 2));
  for (const folder of dropped) listings.add(folder);
  await endAll();
  expect(listed).toHaveLength(all.length);
});

test('a folder that waits is listed once, and not at all if it was listed meanwhile', async () => {
  const { listings, listed, endAll, due } = begin();
  for (let folder = 2; folder < 12; folder++) for (let use = 0; use < 3; use++) listings.add(folder as Inode);
  due.isDue = (folder) => folder !== 10;
  await endAll();

  expect(new Set(listed).size).toBe(9);
  expect(listed.filter((folder) => folder === 11)).toHaveLength(1);
  expect(listed).not.toContain(10);
});

import { expect, test } from 'vitest';
import { LISTING_PAGES_MAX, type RemoteEntry } from '../../src/base/resources.ts';
import { listPages } from '../../src/tree/listing-pages.ts';
import { file, ROOT_URL } from './tree-fixture.ts';

const never = new AbortController().signal;

/** Answers each page with what `pageAt` says, and counts. */
function told(pageAt: (start: number) => { readonly entries: readonly RemoteEntry[]; readonly hasMore: boolean }) {
  const asked: number[] = [];
  return {
    asked,
    listPage: async (_folder: unknown, start: number) => {
      asked.push(start);
      return { ...pageAt(start), serverTimeMs: 1_000 + asked.length };
    },
    resource: async () => null,
  };
}

test('pages are put together: each address once, what was said last counts, the first clock', async () => {
  const pages = [
    [file('1', 'a'), file('2', 'b')],
    [file('2', 'renamed'), file('3', 'c')],
  ];
  const listing = told((start) => ({ entries: pages[start / 2] ?? [], hasMore: start === 0 }));

  const { entries, serverTimeMs } = await listPages(listing, ROOT_URL, never);

  expect(entries.map(({ name }) => name)).toEqual(['a', 'renamed', 'c']);
  expect(serverTimeMs).toBe(1_001);
  expect(listing.asked).toEqual([0, 2]);
});

test('an empty page is the end, whatever it says', async () => {
  const listing = told(() => ({ entries: [], hasMore: true }));

  expect((await listPages(listing, ROOT_URL, never)).entries).toEqual([]);
});

test.each([
  ['ignores start', () => [file('1', 'a'), file('2', 'b')]],
  ['goes round in a circle', (start: number) => [file(`${start % 8}`, 'a'), file(`${(start + 1) % 8}`, 'b')]],
])('a service that %s does not keep us for ever, and none of it is believed', async (_how, pageAt) => {
  const listing = told((start) => ({ entries: pageAt(start), hasMore: true }));

  await expect(listPages(listing, ROOT_URL, never)).rejects.toMatchObject({ name: 'ProtocolError' });
  expect(listing.asked.length).toBeLessThan(10);
});

test('an endless listing is abandoned before memory is short', async () => {
  const entry = file('', 'a');
  const page = Array.from({ length: 20_000 }, () => entry);
  const listing = told((start) => ({
    entries: page.map((each, n) => ({ ...each, url: `u${start + n}` as typeof each.url })),
    hasMore: true,
  }));

  await expect(listPages(listing, ROOT_URL, never)).rejects.toMatchObject({ name: 'ProtocolError' });
  expect(listing.asked.length).toBeLessThan(100);
});

test('a service that has one more entry on each page is given up after as many requests as a listing may need', async () => {
  const page = (start: number) => [file(`${start}`, 'a')];
  const endless = told((start) => ({ entries: page(start), hasMore: true }));
  await expect(listPages(endless, ROOT_URL, never)).rejects.toMatchObject({ name: 'ProtocolError' });
  expect(endless.asked).toHaveLength(LISTING_PAGES_MAX);

  const long = told((start) => ({ entries: page(start), hasMore: start < LISTING_PAGES_MAX - 1 }));
  expect((await listPages(long, ROOT_URL, never)).entries).toHaveLength(LISTING_PAGES_MAX);
});

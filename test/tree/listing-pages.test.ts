import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { LISTING_PAGES_MAX, type RemoteEntry } from '../../src/base/resources.ts';
import { listPages } from '../../src/tree/listing-pages.ts';
import { SeededRandom } from '../store/seeded-random.ts';
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

describe('a listing that a program waits for', () => {
  const PAGE = 100;
  const entriesOf = (count: number) => Array.from({ length: count }, (_, n) => file(`${n}`, `name ${n}`));
  const awaited = { isAwaited: true };

  /** A folder in pages of 100. `held`: requests wait until they are let go, and `before` runs ahead of the answer. */
  function paged(all: () => readonly RemoteEntry[], pageEntries = PAGE) {
    const asked: number[] = [];
    let underWay = 0;
    const listing = {
      asked,
      mostUnderWay: 0,
      before: async (_start: number) => {},
      listPage: async (_folder: unknown, start: number) => {
        asked.push(start);
        underWay += 1;
        listing.mostUnderWay = Math.max(listing.mostUnderWay, underWay);
        await nextTurn();
        await listing.before(start);
        underWay -= 1;
        const entries = all().slice(start, start + pageEntries);
        return { entries, hasMore: start + pageEntries < all().length, serverTimeMs: null };
      },
      resource: async () => null,
    };
    return listing;
  }

  test.each([99, 100, 101, 199, 200, 201, 1_000, 1_090, 1_091, 1_092])(
    '%i entries are all listed with at most three requests more than pages, several under way',
    async (count) => {
      const all = entriesOf(count);
      const listing = paged(() => all);

      const { entries } = await listPages(listing, ROOT_URL, never, awaited);

      expect(entries).toEqual(all);
      expect(listing.asked.length).toBeLessThanOrEqual(Math.ceil(count / PAGE) + 3);
      expect(listing.mostUnderWay).toBeLessThanOrEqual(7);
      if (count <= PAGE) expect(listing.asked).toEqual([0]);
      if (count >= 1_000) expect(listing.mostUnderWay).toBeGreaterThan(3);
    },
  );

  test('no folder of up to forty pages costs more than two requests for pages that do not exist', async () => {
    for (let pages = 1; pages <= 40; pages++) {
      for (const count of [pages * (PAGE - 1), pages * (PAGE - 1) + 1, pages * (PAGE - 1) + 2]) {
        const all = entriesOf(count);
        const listing = paged(() => all);

        expect((await listPages(listing, ROOT_URL, never, awaited)).entries).toEqual(all);
        expect(listing.asked.filter((start) => start >= count).length, `${count} entries`).toBeLessThanOrEqual(2);
        expect(new Set(listing.asked).size).toBe(listing.asked.length);
      }
    }
  });

  test('twenty pages take at most six times as long as one', async () => {
    const all = entriesOf(2_000);
    const listing = paged(() => all);
    let time = 0;
    let waiting: (() => void)[] = [];
    listing.before = () => new Promise<void>((resolve) => waiting.push(resolve));
    const { signal } = new AbortController();
    let isListed = false;
    const listed = listPages(listing, ROOT_URL, signal, awaited).then(() => {
      isListed = true;
    });
    for (; !isListed && time < 100; time++) {
      const answered = waiting;
      waiting = [];
      for (const answer of answered) answer();
      for (let turn = 0; turn < 10; turn++) await nextTurn();
    }
    await listed;

    expect(time - 1).toBeLessThanOrEqual(6);
  });

  test('large pages are requested in their order, two at a time: each takes the service long, and the first is needed first', async () => {
    const all = entriesOf(30_000);
    const listing = paged(() => all, 4_000);

    expect((await listPages(listing, ROOT_URL, never, awaited)).entries).toEqual(all);
    expect(listing.asked).toEqual([0, 3_999, 7_998, 11_997, 15_996, 19_995, 23_994, 27_993, 31_992]);
    expect(listing.mostUnderWay).toBe(2);
  });

  test('a listing for which nobody waits has one request under way', async () => {
    const all = entriesOf(1_000);
    const listing = paged(() => all);

    expect((await listPages(listing, ROOT_URL, never)).entries).toEqual(all);
    expect(listing.mostUnderWay).toBe(1);
    expect(listing.asked).toHaveLength(10);
  });

  test.each([
    // More than the repeated entry makes up for.
    ['a deletion of three entries', (start: number) => start === 396, (all: RemoteEntry[]) => all.splice(50, 3)],
    [
      'a deletion of the last entry of a page',
      (start: number) => start === 396,
      (all: RemoteEntry[]) => all.splice(396, 1),
    ],
    [
      'three new first entries before an earlier page is answered',
      (start: number) => start === 99,
      (all: RemoteEntry[]) => all.unshift(...[1, 2, 3].map((n) => file(`new-${n}`, 'new'))),
    ],
    ['a deletion of all later entries', (start: number) => start === 396, (all: RemoteEntry[]) => all.splice(300)],
    // Page 7 is requested before pages 2 and 4 to 6.
    [
      'a deletion of two entries before a later page that was answered first',
      (start: number) => start === 198,
      (all: RemoteEntry[]) => all.splice(250, 2),
    ],
    [
      'a deletion of an entry that a later page begins with',
      (start: number) => start === 594,
      (all: RemoteEntry[]) => all.splice(693, 1),
    ],
  ])('%s hides no other entry', async (_what, isMoment, change) => {
    const all = entriesOf(1_000);
    const listing = paged(() => all);
    let isChanged = false;
    listing.before = async (start) => {
      if (isChanged || !isMoment(start)) return;
      // The pages behind it are answered first.
      for (let turn = 0; turn < 10; turn++) await nextTurn();
      isChanged = true;
      change(all);
    };

    const urls = new Set((await listPages(listing, ROOT_URL, never, awaited)).entries.map(({ url }) => url));

    expect(isChanged).toBe(true);
    for (const { url, name } of all) if (name !== 'new') expect(urls).toContain(url);
  });

  test('a change at any moment, with the pages answered in any order, hides no entry that stays', async () => {
    for (let seed = 1; seed <= 200; seed++) {
      const random = new SeededRandom(seed);
      const all = entriesOf(500 + random.below(1_500));
      const stays = new Set(all.map(({ url }) => url));
      const listing = paged(() => all);
      let answersLeft = random.below(20);
      listing.before = async () => {
        for (let turn = random.below(6); turn > 0; turn--) await nextTurn();
        answersLeft -= 1;
        if (answersLeft !== 0) return;
        // Fewer than a page: the page before the difference is listed again, and no other.
        for (let count = random.below(20); count > 0; count--)
          for (const { url } of all.splice(random.below(all.length), 1)) stays.delete(url);
        for (let count = random.below(20); count > 0; count--)
          all.splice(random.below(2) === 0 ? 0 : all.length, 0, file(`new-${count}`, 'new'));
      };

      const { entries } = await listPages(listing, ROOT_URL, never, awaited);

      const urls = new Set(entries.map(({ url }) => url));
      expect(
        [...stays].filter((url) => !urls.has(url)),
        `seed ${seed}`,
      ).toEqual([]);
    }
  });

  test('pages that get shorter are followed one by one', async () => {
    const all = entriesOf(1_000);
    const listing = paged(() => all);
    const { listPage } = listing;
    listing.listPage = async (folder, start) => {
      const page = await listPage(folder, start);
      return start < 300 ? page : { ...page, entries: page.entries.slice(0, 60), hasMore: start + 60 < all.length };
    };

    expect((await listPages(listing, ROOT_URL, never, awaited)).entries).toEqual(all);
  });

  test('a missing hasMore and a first empty page end the listing', async () => {
    const all = entriesOf(298);
    const listing = paged(() => all);
    const { listPage } = listing;
    listing.listPage = async (folder, start) => {
      const page = await listPage(folder, start);
      return { ...page, hasMore: page.entries.length > 0 };
    };

    expect((await listPages(listing, ROOT_URL, never, awaited)).entries).toEqual(all);
  });

  test('a service that holds one page back gets no more than eleven requests for later ones', async () => {
    const listing = paged(() => entriesOf(100_000));
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    listing.before = async (start) => {
      if (start === 99) await held;
    };
    const listed = listPages(listing, ROOT_URL, AbortSignal.timeout(60_000), awaited);
    for (let turn = 0; turn < 50; turn++) await nextTurn();
    expect(listing.asked.slice(0, 2)).toEqual([0, 99]);
    expect(listing.asked).toHaveLength(2 + 11);
    listing.before = async () => {
      throw new Error('enough');
    };
    release();
    await expect(listed).rejects.toThrow('enough');
  });

  test('a failure of a page beyond the end does no harm, a failure of a page does', async () => {
    const all = entriesOf(250);
    const listing = paged(() => all);
    listing.before = async (start) => {
      if (start >= 297) throw new Error('beyond');
    };
    expect((await listPages(listing, ROOT_URL, never, awaited)).entries).toEqual(all);

    listing.before = async (start) => {
      if (start === 198) throw new Error('in it');
    };
    await expect(listPages(listing, ROOT_URL, never, awaited)).rejects.toThrow('in it');
  });

  test('a service that ignores start is given up', async () => {
    const page = entriesOf(PAGE);
    const listing = told(() => ({ entries: page, hasMore: true }));

    await expect(listPages(listing, ROOT_URL, never, awaited)).rejects.toMatchObject({ name: 'ProtocolError' });
    expect(listing.asked.length).toBeLessThan(10);
  });
});

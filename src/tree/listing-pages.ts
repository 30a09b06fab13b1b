import { ProtocolError } from '../base/errors.ts';
import { LISTING_PAGES_MAX, type ListingPage, type RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import type { RemoteListing } from './remote-listing.ts';

/** The collected pages of a listing. */
export interface ListedEntries {
  /** In the order of the service, each URL once: the last occurrence wins. Without those of pages that `onPage` took. */
  readonly entries: readonly RemoteEntry[];
  /** The service's clock at the first response; null without a Date header. */
  readonly serverTimeMs: number | null;
}

/** Takes a page: its entries are not kept. */
export type OnPage = (page: ListingPage) => Promise<void>;

/** Ten times the promised folder size, and within memory limits: protects against an endless listing. */
const ENTRIES_MAX = 1_000_000;
/**
 * Limit of consecutive pages without a new entry. A change can cause one; a service that ignores `start` always does.
 */
const STALE_PAGES_MAX = 3;
/** Limit of requests under way: one connection for documents stays free. */
const PAGES_AT_ONCE = 7;
/** Limit of pages that are under way or wait for an earlier one. */
const PAGES_AHEAD_MAX = 12;
/** The same of their entries, except for two pages: large ones take the service longer than the way, and the first is needed first. */
const ENTRIES_AHEAD_MAX = 6000;
/** Limit of requests for pages that turn out not to exist. */
const PAGES_BEYOND_MAX = 2;
/** Smaller first pages are followed one by one: the repeated entry would cost too much. */
const ENTRIES_SIDE_BY_SIDE_MIN = 100;

/**
 * All pages of a folder. A concurrent change can hide an entry; missing entries are probed.
 *
 * With `isAwaited`, pages after the first are requested side by side at the offsets that the length of the first page
 * gives. The service numbers entries anew for each request, so each of these pages begins with the last entry of the
 * page before. Remaining entries keep their order, so none of them is hidden between two such pages, whichever was
 * requested first. If a page begins with another entry, the page before is requested again, and the rest one by one. So
 * is the rest behind a page of another length.
 *
 * @param options.isAwaited a program waits for the listing; other listings leave the connections to those
 * @param options.onPage called in the order of the pages for each page that another one follows, while later ones are under
 * way; the listing waits for it
 * @throws ProtocolError for a listing that does not end · errors of `RemoteListing.listPage` and of `onPage`
 */
export async function listPages(
  listing: RemoteListing,
  folder: ResourceUrl,
  signal: AbortSignal,
  options: { readonly isAwaited?: boolean; readonly onPage?: OnPage } = {},
): Promise<ListedEntries> {
  const collected = new CollectedPages(folder, options.onPage ?? null);
  const ask = (start: number) => listing.listPage(folder, start, signal);
  const first = await ask(0);
  let start: number | null = collected.add(first) ? first.entries.length : null;
  if (start !== null && options.isAwaited && start >= ENTRIES_SIDE_BY_SIDE_MIN)
    start = await collectSideBySide(collected, first, ask);
  while (start !== null) {
    const asked = ask(start);
    asked.catch(() => {}); // the error is thrown below
    await collected.passOn();
    const page = await asked;
    start = collected.add(page) ? start + page.entries.length : null;
  }
  return collected;
}

/** @returns the offset from which the rest is to be requested; null at the end of the listing */
async function collectSideBySide(
  collected: CollectedPages,
  first: ListingPage,
  ask: (start: number) => Promise<ListingPage>,
): Promise<number | null> {
  const fullEntries = first.entries.length;
  const stepEntries = fullEntries - 1;
  const ahead = new PagesAhead((index) => ask(index * stepEntries), first);
  let before = first;
  for (let index = 1; ; index++) {
    await collected.passOn();
    const page = await ahead.take(index);
    if (!isContinued(before, page)) {
      ahead.stop();
      // Entries have moved, perhaps into the page before.
      return (index - 1) * stepEntries;
    }
    if (!collected.add(page)) return null;
    if (page.entries.length !== fullEntries) return index * stepEntries + page.entries.length;
    before = page;
  }
}

/** Whether `page` begins with the last entry of the page before. */
function isContinued(before: ListingPage, page: ListingPage): boolean {
  return page.entries[0]?.url === before.entries.at(-1)?.url;
}

/**
 * Requests pages by index, from 1 on, some ahead of the one that is taken. Pages that are not taken are dropped.
 *
 * No response contains the number of pages. A full page proves that all earlier ones exist, and the next one. So some
 * pages are requested from far behind the last one that is known to exist: each such page makes many requests possible
 * that are not useless. (With requests for the next two pages only, three were under way at a time.)
 */
class PagesAhead {
  readonly #ask: (index: number) => Promise<ListingPage>;
  readonly #fullEntries: number;
  readonly #aheadMax: number;
  /** INVARIANT: bounded, so that a service that holds one page back cannot fill the memory with later ones. */
  readonly #asked = new Map<number, Promise<ListingPage>>();
  /** Answers that are compared with those of later pages. */
  readonly #answers = new Map<number, ListingPage>();
  #underWay = 0;
  /** The last page that was taken. */
  #taken = 0;
  /** The last page that is known to exist. */
  #existing = 1;
  /** This page and later ones are not requested ahead: they do not exist, or begin at another offset. */
  #end = Number.POSITIVE_INFINITY;
  /** Pages that were requested behind `#existing` and are not known to exist. */
  readonly #beyond = new Set<number>();
  #isStopped = false;

  constructor(ask: (index: number) => Promise<ListingPage>, first: ListingPage) {
    this.#ask = ask;
    this.#fullEntries = first.entries.length;
    this.#aheadMax = Math.max(2, Math.min(PAGES_AHEAD_MAX, Math.floor(ENTRIES_AHEAD_MAX / this.#fullEntries)));
    this.#answers.set(0, first);
    this.#fill();
  }

  /** Takes the pages in order. @throws errors of the request */
  async take(index: number): Promise<ListingPage> {
    const page = await (this.#asked.get(index) ?? this.#start(index));
    this.#asked.delete(index);
    this.#answers.delete(index - 1);
    this.#taken = index;
    this.#fill();
    return page;
  }

  stop(): void {
    this.#isStopped = true;
  }

  #fill(): void {
    while (!this.#isStopped && this.#underWay < PAGES_AT_ONCE && this.#asked.size < this.#aheadMax) {
      const index = this.#next();
      if (index >= this.#end) return;
      if (index > this.#existing) this.#beyond.add(index);
      void this.#start(index);
    }
  }

  /** The first page that is known to exist, then one far behind all others; infinite if there is none. */
  #next(): number {
    for (let index = this.#taken + 1; index <= this.#existing; index++) if (!this.#asked.has(index)) return index;
    if (this.#beyond.size >= PAGES_BEYOND_MAX) return Number.POSITIVE_INFINITY;
    let last = this.#existing;
    for (const index of this.#beyond) if (index < this.#end) last = Math.max(last, index);
    const step = Math.min(last + 1, Math.ceil((this.#end - last) / 2), this.#taken + this.#aheadMax - last);
    return step > 0 ? last + step : Number.POSITIVE_INFINITY;
  }

  #start(index: number): Promise<ListingPage> {
    const page = this.#ask(index);
    this.#asked.set(index, page);
    this.#underWay += 1;
    page.then(
      (answer) => this.#answered(index, answer),
      () => this.#answered(index, null), // the error belongs to the page that is taken
    );
    return page;
  }

  #answered(index: number, page: ListingPage | null): void {
    this.#underWay -= 1;
    const isThere = page !== null && page.entries.length > 0;
    const isFull = isThere && page.hasMore && page.entries.length === this.#fullEntries;
    if (!isFull) this.#end = Math.min(this.#end, isThere ? index + 1 : index);
    if (isThere) {
      this.#existing = Math.max(this.#existing, isFull ? index + 1 : index);
      this.#answers.set(index, page);
      for (const at of [index, index + 1]) if (this.#isTorn(at)) this.#end = Math.min(this.#end, at);
    }
    for (const each of this.#beyond) if (each <= this.#existing) this.#beyond.delete(each);
    this.#fill();
  }

  /** Whether entries have moved between the requests for this page and the one before. */
  #isTorn(index: number): boolean {
    const before = this.#answers.get(index - 1);
    const page = this.#answers.get(index);
    return before !== undefined && page !== undefined && !isContinued(before, page);
  }
}

/** The pages in the order of their offsets. */
class CollectedPages implements ListedEntries {
  readonly #folder: ResourceUrl;
  readonly #onPage: OnPage | null;
  /** Without the entries that `onPage` took: those of a long listing fill the memory. */
  readonly #byUrl = new Map<ResourceUrl, RemoteEntry>();
  /** The URLs of all entries. */
  readonly #known = new Set<ResourceUrl>();
  /** Added, and not passed on yet. */
  #last: ListingPage | null = null;
  #serverTimeMs: number | null = null;
  #pages = 0;
  #stalePages = 0;

  constructor(folder: ResourceUrl, onPage: OnPage | null) {
    this.#folder = folder;
    this.#onPage = onPage;
  }

  get entries(): readonly RemoteEntry[] {
    return [...this.#byUrl.values()];
  }

  get serverTimeMs(): number | null {
    return this.#serverTimeMs;
  }

  /** @returns whether another page follows. @throws ProtocolError for a listing that does not end */
  add(page: ListingPage): boolean {
    this.#serverTimeMs ??= page.serverTimeMs;
    const before = this.#known.size;
    for (const entry of page.entries) {
      this.#known.add(entry.url);
      this.#byUrl.set(entry.url, entry);
    }
    this.#last = page;
    this.#pages += 1;
    this.#stalePages = this.#known.size === before ? this.#stalePages + 1 : 0;
    if (!page.hasMore || page.entries.length === 0) return false;
    // Limit the pages too: with one new entry per page, the entry limit would allow a million requests.
    if (this.#stalePages === STALE_PAGES_MAX || this.#pages === LISTING_PAGES_MAX || this.#known.size > ENTRIES_MAX) {
      throw new ProtocolError(`${this.#folder}: the listing does not end`);
    }
    return true;
  }

  /** Passes on the page that was added last: another one follows. @throws errors of `onPage` */
  async passOn(): Promise<void> {
    const page = this.#last;
    if (this.#onPage === null || page === null) return;
    this.#last = null;
    this.#byUrl.clear();
    await this.#onPage(page);
  }
}

import { ProtocolError } from '../base/errors.ts';
import { LISTING_PAGES_MAX, type ListingPage, type RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import { formatListingQuery, type ListingQuery } from '../protocol/endpoints.ts';
import { decodeCollectionContents } from '../protocol/messages.ts';
import type { Requests } from './requests.ts';
import { entriesOf } from './resource-mapping.ts';

/**
 * Listings come in pages, numbered anew at each request (docs/service.md 5.2), so pages are asked for one after another.
 *
 * The next page starts at `start` + the entries that arrived: `end` is counted in two ways and never read, and a service may
 * give fewer than asked for. Where `hasMore` is left out nothing was said about the end: then it is the first empty page.
 */
export type PageQuery = Pick<Partial<ListingQuery>, 'type' | 'order' | 'max'>;

interface ListingRequest {
  readonly folder: ResourceUrl;
  readonly query?: PageQuery;
  readonly signal: AbortSignal | undefined;
}

/** What the interface gives by default (4.5), said so that every server gives the same. */
const PAGE_ENTRIES = 500;
/** Pages in a row that bring nothing new: under change one may, but a service that ignores `start` always does. */
const STALE_PAGES_MAX = 3;
/** Of the whole listing, while it changes under us. */
const READS_MAX = 3;

export async function listPage(
  requests: Requests,
  { folder, start, query, signal }: ListingRequest & { readonly start: number },
): Promise<ListingPage> {
  const url = `${folder}/contents${formatListingQuery({ max: PAGE_ENTRIES, ...query, start })}`;
  return await requests.send({ method: 'GET', url, repetition: 'always', signal }, async ({ answer }) => {
    const document = await decodeCollectionContents(answer);
    const entries = entriesOf(document);
    // An empty page is the end, whatever it says: there is nowhere to go on from.
    const hasMore = entries.length > 0 && (document.hasMore ?? true);
    return { entries, hasMore, serverTimeMs: answer.serverTimeMs };
  });
}

/**
 * All entries, each once; exact while nothing changes.
 *
 * Under change an entry can slip between two pages: one before it goes, it moves up into the page that we have read already.
 * So every page begins with the last entry of the one before: if that one is not there, everything is read again, up to
 * `READS_MAX` times. Whoever asks what became of a lost request must not miss its file, or it would be made twice.
 *
 * @throws ProtocolError for a listing that never ends
 */
export async function listAll(requests: Requests, request: ListingRequest): Promise<readonly RemoteEntry[]> {
  for (let read = 1; ; read++) {
    const { entries, isExact } = await readOnce(requests, request);
    if (isExact || read === READS_MAX) return entries;
  }
}

async function readOnce(
  requests: Requests,
  request: ListingRequest,
): Promise<{ readonly entries: readonly RemoteEntry[]; readonly isExact: boolean }> {
  const entries = new Map<ResourceUrl, RemoteEntry>();
  let isExact = true;
  let last: RemoteEntry | undefined;
  let stale = 0;
  for (let start = 0, pages = 1; ; pages++) {
    const overlap = last === undefined ? 0 : 1;
    const query = { max: PAGE_ENTRIES + overlap, ...request.query };
    const page = await listPage(requests, { ...request, query, start: start - overlap });
    if (last !== undefined && page.entries[0]?.url !== last.url) isExact = false;
    const before = entries.size;
    // What changed its place is listed once; the later word counts.
    for (const entry of page.entries) entries.set(entry.url, entry);
    const fresh = page.entries.length - overlap;
    if (!page.hasMore || fresh <= 0) return { entries: [...entries.values()], isExact };
    stale = entries.size === before ? stale + 1 : 0;
    if (stale === STALE_PAGES_MAX || pages === LISTING_PAGES_MAX) {
      throw new ProtocolError(`${request.folder}: a listing without end`);
    }
    start += fresh;
    // A service that gives one entry at a time would give the same one for ever.
    last = page.entries.length > 1 ? page.entries.at(-1) : undefined;
  }
}

import { ProtocolError } from '../../base/errors.ts';
import { LISTING_PAGES_MAX, type ListingPage, type RemoteEntry } from '../../base/resources.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import { formatListingQuery, type ListingQuery } from '../../protocol/endpoints.ts';
import { decodeCollectionContents } from '../../protocol/messages.ts';
import type { Requests } from './requests.ts';
import { entriesOf } from './resource-mapping.ts';
import { GZIP_ACCEPTED, uncoded } from './uncoded.ts';

/**
 * Listings are paged, and every request numbers the entries anew (docs/service.md 5.2). So pages are requested one after
 * another.
 *
 * The next page starts at `start` + the number of entries received. `end` is ambiguous and never read, and a service
 * may send fewer entries than requested. If `hasMore` is missing, the listing ends with the first empty page.
 */
export type PageQuery = Pick<Partial<ListingQuery>, 'type' | 'order' | 'max'>;

interface ListingRequest {
  readonly folder: ResourceUrl;
  readonly query?: PageQuery;
  readonly signal: AbortSignal | undefined;
}

/** The default page size (docs/service.md 5.2), sent explicitly so that all servers use the same. */
const PAGE_ENTRIES = 500;
/**
 * Limit of consecutive pages without a new entry. A change can cause one; a service that ignores `start` always does.
 */
const STALE_PAGES_MAX = 3;
/** Attempts to read the whole listing while it changes. */
const READS_MAX = 3;

export async function listPage(
  requests: Requests,
  { folder, start, query, signal }: ListingRequest & { readonly start: number },
): Promise<ListingPage> {
  const url = `${folder}/contents${formatListingQuery({ max: PAGE_ENTRIES, ...query, start })}`;
  // A page repeats its element names and the beginnings of its URLs for each entry: gzip leaves a ninth.
  const asked = { method: 'GET', url, repetition: 'always', headers: GZIP_ACCEPTED, signal } as const;
  return await requests.send(asked, async ({ answer }) => {
    const document = await decodeCollectionContents(uncoded(answer));
    const entries = entriesOf(document);
    // An empty page is the end, even with hasMore: the next page would have the same `start`.
    const hasMore = entries.length > 0 && (document.hasMore ?? true);
    return { entries, hasMore, serverTimeMs: answer.serverTimeMs };
  });
}

/**
 * All entries, each once; exact if the folder does not change meanwhile.
 *
 * Under change an entry can slip between two pages: if an earlier entry is removed, it moves into the page already
 * read. So every page begins with the last entry of the previous one. If that entry is not there, the whole listing is
 * read again, up to `READS_MAX` times. Recovery of a lost request depends on this: a file missed here would be created
 * twice.
 *
 * @throws ProtocolError for a listing that does not end
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
    // An entry that changed its position counts once; the later occurrence wins.
    for (const entry of page.entries) entries.set(entry.url, entry);
    const fresh = page.entries.length - overlap;
    if (!page.hasMore || fresh <= 0) return { entries: [...entries.values()], isExact };
    stale = entries.size === before ? stale + 1 : 0;
    if (stale === STALE_PAGES_MAX || pages === LISTING_PAGES_MAX) {
      throw new ProtocolError(`${request.folder}: the listing does not end`);
    }
    start += fresh;
    // A service that sends one entry per page would send the same one permanently.
    last = page.entries.length > 1 ? page.entries.at(-1) : undefined;
  }
}

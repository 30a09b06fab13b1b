import { ProtocolError } from '../base/errors.ts';
import type { ListingPage, RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import { formatListingQuery, type ListingQuery } from '../protocol/endpoints.ts';
import { decodeCollectionContents } from '../protocol/messages.ts';
import type { Requests } from './requests.ts';
import { entriesOf } from './resource-mapping.ts';

/**
 * Listings come in pages, numbered anew at each request (wire-facts 4.2), so pages are asked for one after another.
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
/** Two million entries in one folder, or a service that never says no. */
const PAGES_MAX = 4_000;
/** Pages in a row that bring nothing new: under change one may, but a service that ignores `start` always does. */
const STALE_PAGES_MAX = 3;

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

/** All entries, each once. @throws ProtocolError for a listing that never ends */
export async function listAll(requests: Requests, request: ListingRequest): Promise<readonly RemoteEntry[]> {
  const entries = new Map<ResourceUrl, RemoteEntry>();
  let stale = 0;
  for (let start = 0, pages = 0; ; pages++) {
    const page = await listPage(requests, { ...request, start });
    const before = entries.size;
    // Between two pages an entry may have moved from one to the other; the later word counts.
    for (const entry of page.entries) entries.set(entry.url, entry);
    if (!page.hasMore) return [...entries.values()];
    stale = entries.size === before ? stale + 1 : 0;
    if (stale === STALE_PAGES_MAX || pages === PAGES_MAX) {
      throw new ProtocolError(`${request.folder}: a listing without end`);
    }
    start += page.entries.length;
  }
}

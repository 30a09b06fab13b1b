import { ProtocolError } from '../base/errors.ts';
import { LISTING_PAGES_MAX, type RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import type { RemoteListing } from './remote-listing.ts';

/** What a listing told, page by page. */
export interface ListedEntries {
  /** In the order of the service, each address once: what was said of it last counts. */
  readonly entries: readonly RemoteEntry[];
  /** The service's clock when it answered first; null when not told. */
  readonly serverTimeMs: number | null;
}

/** Ten times what we promise to bear, and what fits into memory: who tells more never ends. */
const ENTRIES_MAX = 1_000_000;
/** Pages in a row that bring nothing new: under change one may, but a service that ignores `start` always does. */
const STALE_PAGES_MAX = 3;

/**
 * All pages of a folder, one after another. Under change an entry may have slipped by: its absence is asked about.
 *
 * @throws ProtocolError for a listing without end · what `RemoteListing.listPage` throws
 */
export async function listPages(
  listing: RemoteListing,
  folder: ResourceUrl,
  signal: AbortSignal,
): Promise<ListedEntries> {
  const entries = new Map<ResourceUrl, RemoteEntry>();
  let serverTimeMs: number | null = null;
  let stale = 0;
  for (let start = 0, pages = 1, more = true; more; pages++) {
    const page = await listing.listPage(folder, start, signal);
    serverTimeMs ??= page.serverTimeMs;
    const before = entries.size;
    for (const entry of page.entries) entries.set(entry.url, entry);
    start += page.entries.length;
    more = page.hasMore && page.entries.length > 0;
    stale = entries.size === before ? stale + 1 : 0;
    // A page may bring one new entry: what fits into memory would be a million requests.
    if (more && (stale === STALE_PAGES_MAX || pages === LISTING_PAGES_MAX || entries.size > ENTRIES_MAX)) {
      throw new ProtocolError(`${folder}: a listing without end`);
    }
  }
  return { entries: [...entries.values()], serverTimeMs };
}

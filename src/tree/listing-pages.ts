import { ProtocolError } from '../base/errors.ts';
import { LISTING_PAGES_MAX, type RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import type { RemoteListing } from './remote-listing.ts';

/** The collected pages of a listing. */
export interface ListedEntries {
  /** In the order of the service, each URL once: the last occurrence wins. */
  readonly entries: readonly RemoteEntry[];
  /** The service's clock at the first response; null without a Date header. */
  readonly serverTimeMs: number | null;
}

/** Ten times the promised folder size, and within memory limits: protects against an endless listing. */
const ENTRIES_MAX = 1_000_000;
/**
 * Limit of consecutive pages without a new entry. A change can cause one; a service that ignores `start` always does.
 */
const STALE_PAGES_MAX = 3;

/**
 * All pages of a folder, requested one after another. A concurrent change can hide an entry; missing entries are
 * probed.
 *
 * @throws ProtocolError for a listing that does not end · errors of `RemoteListing.listPage`
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
    // Limit the pages too: with one new entry per page, the entry limit would allow a million requests.
    if (more && (stale === STALE_PAGES_MAX || pages === LISTING_PAGES_MAX || entries.size > ENTRIES_MAX)) {
      throw new ProtocolError(`${folder}: the listing does not end`);
    }
  }
  return { entries: [...entries.values()], serverTimeMs };
}

import { ProtocolError } from '../../base/errors.ts';
import type { RemoteVersion } from '../../base/resources.ts';
import type { ResourceUrl, VersionUrl } from '../../base/vocabulary.ts';
import { decodeFileVersions } from '../../protocol/messages.ts';
import { readDocument } from './answer-reading.ts';
import type { Requests } from './requests.ts';
import { versionsOf } from './resource-mapping.ts';

/** The versions of a file, newest first, in pages if the service uses them. */

interface HistoryRequest {
  readonly file: ResourceUrl;
  readonly signal: AbortSignal | undefined;
}

/** Limit for one file; the service keeps a handful (docs/service.md 13.7). */
const VERSIONS_MAX = 100_000;

export async function wholeHistory(requests: Requests, request: HistoryRequest): Promise<readonly RemoteVersion[]> {
  const versions = new Map<VersionUrl, RemoteVersion>();
  for await (const page of pagesOf(requests, request)) for (const version of page) versions.set(version.url, version);
  return [...versions.values()];
}

/**
 * The newest complete version that `isWanted`; null for none. Older pages are not requested: a file that is saved often
 * has thousands.
 */
export async function firstComplete(
  requests: Requests,
  request: HistoryRequest,
  isWanted: (version: RemoteVersion) => boolean = () => true,
): Promise<RemoteVersion | null> {
  for await (const page of pagesOf(requests, request)) {
    const found = page.find((version) => version.complete && isWanted(version));
    if (found !== undefined) return found;
  }
  return null;
}

/** @throws ProtocolError for a history that never ends */
async function* pagesOf(
  requests: Requests,
  { file, signal }: HistoryRequest,
): AsyncGenerator<readonly RemoteVersion[], void, undefined> {
  const known = new Set<VersionUrl>();
  for (let start = 0; ; ) {
    const url = `${file}/version${start === 0 ? '' : `?start=${start}`}`;
    const document = await readDocument(requests, { url, decode: decodeFileVersions, signal });
    const page = versionsOf(document);
    const before = known.size;
    for (const version of page) known.add(version.url);
    yield page;
    // A missing hasMore means no: no paged history was ever observed (docs/service.md 13.7), and a service may not know
    // `start` here.
    if (document.hasMore !== true || known.size === before) return;
    if (known.size > VERSIONS_MAX) throw new ProtocolError(`${file}: the version history does not end`);
    start += page.length;
  }
}

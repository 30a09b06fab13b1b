import { ProtocolError } from '../../base/errors.ts';
import type { NewestVersion, RemoteVersion } from '../../base/resources.ts';
import type { ResourceUrl, VersionUrl } from '../../base/vocabulary.ts';
import { decodeFileVersions } from '../../protocol/messages.ts';
import { readDocument } from './answer-reading.ts';
import type { Requests } from './requests.ts';
import { versionsOf } from './resource-mapping.ts';

/** Limit for one file; the service keeps a handful (docs/service.md 13.7). */
const VERSIONS_MAX = 100_000;

/** The histories of an account's files, newest version first, in pages if the service uses them. */
export class VersionHistories {
  readonly #requests: Requests;
  /** Whether the service keeps old versions: it showed two complete ones of a file. */
  #keepsOld = false;

  constructor(requests: Requests) {
    this.#requests = requests;
  }

  async whole(file: ResourceUrl, signal: AbortSignal | undefined): Promise<readonly RemoteVersion[]> {
    const versions = new Map<VersionUrl, RemoteVersion>();
    for await (const { page } of this.#pages(file, signal))
      for (const version of page) versions.set(version.url, version);
    return [...versions.values()];
  }

  /** The newest complete version; null for none. Older pages are not requested: a file that is saved often has thousands. */
  async newest(file: ResourceUrl, signal: AbortSignal | undefined): Promise<NewestVersion | null> {
    for await (const { page, isAll } of this.#pages(file, signal)) {
      const [version, ...older] = page.filter(({ complete }) => complete);
      if (version !== undefined) return { ...version, isFirst: isAll && older.length === 0 && this.#keepsOld };
    }
    return null;
  }

  /** The newest complete version of that length; null for none. Older pages are not requested. */
  async newestOfLength(
    file: ResourceUrl,
    sizeBytes: number,
    signal: AbortSignal | undefined,
  ): Promise<RemoteVersion | null> {
    for await (const { page } of this.#pages(file, signal)) {
      const found = page.find((version) => version.complete && version.sizeBytes === sizeBytes);
      if (found !== undefined) return found;
    }
    return null;
  }

  /** @throws ProtocolError for a history that never ends */
  async *#pages(
    file: ResourceUrl,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<{ readonly page: readonly RemoteVersion[]; readonly isAll: boolean }, void, undefined> {
    const known = new Set<VersionUrl>();
    for (let start = 0; ; ) {
      const url = `${file}/version${start === 0 ? '' : `?start=${start}`}`;
      const document = await readDocument(this.#requests, { url, decode: decodeFileVersions, signal });
      const page = versionsOf(document);
      this.#keepsOld ||= page.filter(({ complete }) => complete).length > 1;
      const before = known.size;
      for (const version of page) known.add(version.url);
      // A missing hasMore means no: no paged history was ever observed (docs/service.md 13.7), and a service may not know
      // `start` here.
      const isLast = document.hasMore !== true || known.size === before;
      yield { page, isAll: isLast && start === 0 };
      if (isLast) return;
      if (known.size > VERSIONS_MAX) throw new ProtocolError(`${file}: the version history does not end`);
      start += page.length;
    }
  }
}

import type { Clock } from '../base/clock.ts';
import type { RemoteVersion } from '../base/resources.ts';
import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import type { RequestRetry } from '../content/request-retry.ts';
import type { VersionHistory } from '../content/version-source.ts';
import { isSameServiceTime } from '../store/service-time.ts';
import type { RemoteFacet } from '../store/tables.ts';

/** One complete version of a file, under its name in `.versions/`. */
export interface NamedVersion {
  readonly name: string;
  readonly version: RemoteVersion;
}

interface Known {
  readonly remote: RemoteFacet;
  readonly askedMs: number;
  readonly versions: Promise<readonly NamedVersion[]>;
}

/** How long a history stays fresh: a listing of it and the lookups after it share one request. */
const BELIEVED_MS = 5_000;
const HISTORIES_MAX = 512;

/** Short-lived cache of file histories. Concurrent callers share one request per file. */
export class FileHistory {
  readonly #source: VersionHistory;
  readonly #retry: RequestRetry;
  readonly #clock: Clock;
  /** Least recently requested first. */
  readonly #known = new Map<Inode, Known>();

  constructor(deps: { source: VersionHistory; retry: RequestRetry; clock: Clock }) {
    this.#source = deps.source;
    this.#retry = deps.retry;
    this.#clock = deps.clock;
  }

  /**
   * A file's complete versions, newest first.
   *
   * @throws (rejects) FsError ETIMEDOUT the service cannot be reached · ApiError
   */
  versions(ino: Inode, remote: RemoteFacet): Promise<readonly NamedVersion[]> {
    const known = this.#known.get(ino);
    if (known !== undefined && isSame(known.remote, remote) && this.#clock.elapsedMs() - known.askedMs < BELIEVED_MS)
      return known.versions;
    const versions = this.#ask(remote.resource);
    this.#known.delete(ino);
    this.#known.set(ino, { remote, askedMs: this.#clock.elapsedMs(), versions });
    const freshFromMs = this.#clock.elapsedMs() - BELIEVED_MS;
    for (const [oldest, { askedMs }] of this.#known) {
      if (this.#known.size <= HISTORIES_MAX && askedMs > freshFromMs) break;
      this.#known.delete(oldest);
    }
    versions.catch(() => {
      if (this.#known.get(ino)?.versions === versions) this.#known.delete(ino);
    });
    return versions;
  }

  /** Number of cached histories; expired ones are dropped at the next request. */
  get remembered(): number {
    return this.#known.size;
  }

  async #ask(resource: ResourceUrl): Promise<readonly NamedVersion[]> {
    const versions = await this.#retry.ask((signal) => this.#source.versions(resource, signal));
    return named(versions.filter(({ complete }) => complete));
  }
}

/**
 * Names versions by the time they were saved, on the service's clock, in UTC: `2026-11-20T13.05.11Z` (colons would not survive a copy to
 * other file systems). Within one second the oldest version has this name, the next ones `…11Z-2`, `…11Z-3`.
 *
 * @param versions newest first, as the service lists them; the result has the same order
 */
export function named(versions: readonly RemoteVersion[]): readonly NamedVersion[] {
  const seen = new Map<string, number>();
  const result: NamedVersion[] = [];
  for (const version of [...versions].reverse()) {
    const time = version.lastModifiedMs === null ? UNKNOWN_TIME : secondOf(version.lastModifiedMs);
    const nth = (seen.get(time) ?? 0) + 1;
    seen.set(time, nth);
    result.push({ name: nth === 1 ? time : `${time}-${nth}`, version });
  }
  return result.reverse();
}

const UNKNOWN_TIME = 'time-unknown';

function secondOf(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19).replaceAll(':', '.')}Z`;
}

/** Whether the remote facet is unchanged: a version that was pushed from here shows immediately. */
function isSame(one: RemoteFacet, other: RemoteFacet): boolean {
  return (
    one.resource === other.resource &&
    one.content === other.content &&
    one.sizeBytes === other.sizeBytes &&
    isSameServiceTime(one.modified, other.modified)
  );
}

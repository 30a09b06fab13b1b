import type { FetchedRange, FetchTarget, RemoteVersion, WrittenExtent } from '../base/resources.ts';
import type { Extent, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';

/** What reading needs from the service. Satisfied by `transfer/` across the threads, by fakes in tests. */
export interface VersionSource {
  /** The newest complete version of a file; null when the file has none, or is gone. */
  newestVersion(file: ResourceUrl, signal: AbortSignal): Promise<RemoteVersion | null>;

  /** The newest complete version that has so many bytes; null where the history has none (any more). */
  versionOfLength(file: ResourceUrl, sizeBytes: number, signal: AbortSignal): Promise<RemoteVersion | null>;

  /**
   * Fetches `extent` of a version whose length is known to be `sizeBytes`. Checked before it is believed: status,
   * Content-Range, exact length. Into a file: the bytes are written at their own offset before this resolves, and
   * `written` hears how much of it is there so far (block by block or in longer steps, from the start on; of all of it when this resolves),
   * and the same once more while bytes come of which none is there yet.
   *
   * @throws ApiError 404 when the version is gone · ProtocolError for an answer that does not fit · TransportError
   */
  readVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    target: FetchTarget,
    written: (there: WrittenExtent) => void,
    signal: AbortSignal,
  ): Promise<FetchedRange>;
}

/** What is asked about a file's past. Satisfied by `transfer/` across the threads. */
export interface VersionHistory {
  /**
   * A file's versions, newest first, complete and incomplete ones.
   *
   * @throws ApiError 404 when the file is gone · TransportError
   */
  versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]>;
}

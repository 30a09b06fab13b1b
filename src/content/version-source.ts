import type {
  FetchedRange,
  FetchTarget,
  NewestBytes,
  NewestVersion,
  RemoteVersion,
  WrittenExtent,
} from '../base/resources.ts';
import type { Extent, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';

/** The service's operations that reading needs. Implemented by `transfer/` across the threads, by fakes in tests. */
export interface VersionSource {
  /** The newest complete version of a file; null if the file has none or does not exist. */
  newestVersion(file: ResourceUrl, signal: AbortSignal): Promise<NewestVersion | null>;

  /** The newest complete version of `sizeBytes` bytes; null if the history has none. */
  versionOfLength(file: ResourceUrl, sizeBytes: number, signal: AbortSignal): Promise<RemoteVersion | null>;

  /**
   * Bytes of the newest version, expected to have `sizeBytes` bytes, in memory. Null: the service does not name the version that it sent,
   * or the answer does not fit. Absent: as if it was always null.
   */
  readNewest?(file: ResourceUrl, extent: Extent, sizeBytes: number, signal: AbortSignal): Promise<NewestBytes | null>;

  /**
   * Fetches `extent` of a version whose length is known to be `sizeBytes`. The status, Content-Range and exact length of the
   * response are checked. Into a file: the bytes are written at their own offset before this resolves. `written` receives the progress
   * from the start on, in steps of a block or more, and all of it before this resolves; it repeats the last value while received bytes are
   * not yet written.
   *
   * @throws ApiError 404 when the version no longer exists · ProtocolError for an invalid response · TransportError
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

/** Queries about a file's history. Implemented by `transfer/` across the threads. */
export interface VersionHistory {
  /**
   * A file's versions, newest first, complete and incomplete ones.
   *
   * @throws ApiError 404 when the file does not exist · TransportError
   */
  versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]>;
}

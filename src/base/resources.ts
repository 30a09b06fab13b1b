import type { ResourceUrl, VersionUrl } from './vocabulary.ts';

/**
 * Remote resources as plain objects: the form in which `remote/` passes them on. No code above uses XML or HTTP, no
 * code below uses inodes. Plain data only: these objects cross the port between the two threads.
 */

export interface RemoteFolder {
  readonly kind: 'folder';
  readonly url: ResourceUrl;
  /** displayName of the service; any text, including `/`, `.` and the empty text. */
  readonly name: string;
  /** Special role of the folder when the whole account is shown; absent for the user's own folders. */
  readonly place?: FolderPlace;
}

/**
 * `made`: a synthetic folder of this program, in which nothing is created or removed. `shared`: the top folder of
 * another user's share, with write permission; `read-only`: without it.
 */
export type FolderPlace = 'made' | 'shared' | 'read-only';

export interface RemoteFile {
  readonly kind: 'file';
  readonly url: ResourceUrl;
  readonly name: string;
  /** Length of the newest complete version; null without one (the service sends -1). */
  readonly sizeBytes: number | null;
  /** By the service's clock, milliseconds since the epoch; null if absent. */
  readonly lastModifiedMs: number | null;
  readonly mediaType: string | null;
  /** False for a file without data: it is shown as empty and never fetched. */
  readonly presentOnServer: boolean;
}

export type RemoteEntry = RemoteFolder | RemoteFile;

/** A folder or file requested by its own URL, with its present parent. */
export type RemoteResource = RemoteEntry & {
  /** URL of the parent folder; null for a top-level folder. */
  readonly parent: ResourceUrl | null;
  /** Whether anyone can read the file under a public link; absent if the service does not say. */
  readonly isPublic?: boolean;
};

/** Bytes of the newest version of a file, with the name that the service gave this version. */
export interface NewestBytes {
  readonly version: VersionUrl;
  readonly bytes: Uint8Array;
}

/**
 * Limit of pages of one listing: two million entries at the requested page size. Protects against a listing that does
 * not end.
 */
export const LISTING_PAGES_MAX = 4_000;

/** One page of a folder's listing. */
export interface ListingPage {
  readonly entries: readonly RemoteEntry[];
  /** Whether another page follows, from `start + entries.length` on. */
  readonly hasMore: boolean;
  /** The service's clock at the response (its Date header), milliseconds since the epoch; null without one. */
  readonly serverTimeMs: number | null;
}

export interface RemoteVersion {
  readonly url: VersionUrl;
  /** Length of a complete version; for an incomplete one, the bytes stored so far. */
  readonly sizeBytes: number;
  readonly complete: boolean;
  readonly lastModifiedMs: number | null;
  readonly mediaType: string | null;
}

/** The newest complete version of a file. */
export interface NewestVersion extends RemoteVersion {
  /**
   * Whether the file never had another complete version: its history shows no other, and the service is known to keep old ones, since
   * it showed some of another file. False if either is not known.
   */
  readonly isFirst: boolean;
}

/** The stored part of a version's data. */
export interface UploadProgress {
  readonly complete: boolean;
  readonly receivedBytes: number;
}

/** A piece of a request body: bytes in memory, a range of a local file, or zeros. */
export type BodyPiece =
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'file'; readonly path: string; readonly offset: number; readonly length: number }
  | { readonly kind: 'zeros'; readonly length: number };

/**
 * Target of a fetch: returned (small contents), or written to a file at the offsets of the version. Fetches with
 * `isAhead` are speculative; requested ones have priority.
 */
export type FetchTarget = ({ readonly kind: 'memory' } | { readonly kind: 'file'; readonly path: string }) & {
  readonly isAhead?: boolean;
};

/** crc32 of consecutive blocks from `first` on; a version's last block may be shorter. */
export interface BlockChecksums {
  readonly first: number;
  readonly values: readonly number[];
}

/**
 * Progress of a fetch: the extent in its file, from the start on, with the checksums of newly completed blocks, if
 * computed. Repeated while bytes arrive that are not in the file yet, or go to memory.
 */
export interface WrittenExtent {
  readonly start: number;
  readonly end: number;
  readonly checksums?: BlockChecksums;
}

/**
 * Result of a fetch. `extent` may exceed the request: if a service ignores Range and sends everything, all of it is
 * kept. `bytes` is set for the memory target only.
 */
export interface FetchedRange {
  readonly extent: { readonly start: number; readonly end: number };
  readonly bytes: Uint8Array | null;
  /** The service sent more than was requested: short requests cost as much as long ones. */
  readonly isLonger?: boolean;
}

import type { ResourceUrl, VersionUrl } from './vocabulary.ts';

/**
 * What the service has, as plain objects: the form in which `remote/` hands it to everybody else. No XML and no HTTP above
 * this line, no inode below it. Plain data only: these objects cross the port between the two threads.
 */

export interface RemoteFolder {
  readonly kind: 'folder';
  readonly url: ResourceUrl;
  /** displayName as the service has it; anything, also `/`, `.` or an empty text. */
  readonly name: string;
  /** What is particular about it where the whole account is shown; left out for a folder of the user's own. */
  readonly place?: FolderPlace;
}

/**
 * `made`: no folder of the service, but made to show what the account has; nothing is made or removed in it. `shared`: the top of a
 * folder that somebody else shares, with leave to change what is in it; `read-only`: without.
 */
export type FolderPlace = 'made' | 'shared' | 'read-only';

export interface RemoteFile {
  readonly kind: 'file';
  readonly url: ResourceUrl;
  readonly name: string;
  /** Bytes of the newest complete version; null while none was ever filled in (the service says -1). */
  readonly sizeBytes: number | null;
  /** The service's clock, milliseconds since the epoch; null where it was left out. */
  readonly lastModifiedMs: number | null;
  readonly mediaType: string | null;
  /** False for a file that was created but never filled: it is shown as empty and never fetched. */
  readonly presentOnServer: boolean;
}

export type RemoteEntry = RemoteFolder | RemoteFile;

/** A folder or file asked for by its own URL: also says where it is now. */
export type RemoteResource = RemoteEntry & {
  /** URL of the folder it lies in; null for a top-level folder. */
  readonly parent: ResourceUrl | null;
};

/** Pages of one listing: two million entries as we ask for them, or a service that never says no. */
export const LISTING_PAGES_MAX = 4_000;

/** One page of a folder's listing. */
export interface ListingPage {
  readonly entries: readonly RemoteEntry[];
  /** Whether another page is to be asked for, from `start + entries.length` on. */
  readonly hasMore: boolean;
  /** The service's clock when it answered (its Date header), milliseconds since the epoch; null where it sent none. */
  readonly serverTimeMs: number | null;
}

export interface RemoteVersion {
  readonly url: VersionUrl;
  /** Bytes of a complete version; of an incomplete one, how many the service holds so far. */
  readonly sizeBytes: number;
  readonly complete: boolean;
  readonly lastModifiedMs: number | null;
  readonly mediaType: string | null;
}

/** What the service holds of a version's data. */
export interface UploadProgress {
  readonly complete: boolean;
  readonly receivedBytes: number;
}

/** A piece of a body to be sent: bytes at hand, a range of a local file, or zeros. */
export type BodyPiece =
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  | { readonly kind: 'file'; readonly path: string; readonly offset: number; readonly length: number }
  | { readonly kind: 'zeros'; readonly length: number };

/**
 * Where fetched bytes go: handed back (small contents), or written into a file at the same offset as in the version. Nobody
 * waits for what `isAhead`: what somebody waits for goes first.
 */
export type FetchTarget = ({ readonly kind: 'memory' } | { readonly kind: 'file'; readonly path: string }) & {
  readonly isAhead?: boolean;
};

/** crc32 of the bytes of blocks that follow each other, from block `first` on; of a version's last block, of what it has. */
export interface BlockMarks {
  readonly first: number;
  readonly marks: readonly number[];
}

/**
 * What of a fetch is in its file by now, from its start on, and the marks of the blocks that are new in it, where they were computed. Told
 * again while bytes come of which none is in the file yet, or that go into memory.
 */
export interface WrittenExtent {
  readonly start: number;
  readonly end: number;
  readonly marks?: BlockMarks;
}

/**
 * What a fetch brought. `extent` may reach further than what was asked for: a service that ignores Range sends everything,
 * and all of it is kept. `bytes` is there for the memory target only.
 */
export interface FetchedRange {
  readonly extent: { readonly start: number; readonly end: number };
  readonly bytes: Uint8Array | null;
}

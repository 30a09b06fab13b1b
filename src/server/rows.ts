/** The rows of the server's state. */

/** Above every sequence number, as the end of a range. */
export const SEQ_END = Number.MAX_SAFE_INTEGER;
/** Sorts after every text in the server's keys, which are ASCII. */
export const TEXT_END = '\uffff';
/** The parent of the top-level folders. */
export const TOP = 'folders';

/** Per user: a mount uses one of each. Rows of tokens use the reserve of the disk, so their number is limited. */
export const REFRESH_TOKENS_MAX = 256;
/** Uses within this time are one. */
export const USED_STEP_MS = 60_000;
export const ACCESS_TOKENS_MAX = 1000;

export type TokenKind = 'access' | 'refresh';

export interface PasswordHash {
  readonly salt: Uint8Array;
  readonly hash: Uint8Array;
  /** scrypt's N; r is 8 and p is 1. */
  readonly cost: number;
}

export interface UserRow {
  readonly uid: string;
  readonly email: string;
  readonly nickname: string;
  readonly password: PasswordHash;
  readonly quotaBytes: number;
  readonly createdMs: number;
  /** How often the user was signed out everywhere; absent for never. */
  readonly signOuts?: number;
  /** Hashes of the networks from which the user signed in, the last one first. */
  readonly networks?: readonly string[];
}

/** What an account stores. */
export interface HoldingRow {
  /** Files and folders. */
  readonly entries: number;
  /** Incomplete versions. */
  readonly unfinished: number;
  /** Bytes of all versions, and an estimate for all rows. */
  readonly bytes: number;
}

export interface ApplicationRow {
  /** `/sc/<uid>/<n>_<n>` */
  readonly id: string;
  readonly name: string;
  readonly enabled: boolean;
}

export interface KeyPairRow {
  readonly accessKeyId: string;
  readonly uid: string;
  readonly secretHash: Uint8Array;
  readonly createdMs: number;
}

export interface RefreshTokenRow {
  readonly uid: string;
  readonly application: string;
  readonly createdMs: number;
  /** When an access token was last issued for it; undefined: never, or by an earlier program. */
  readonly usedMs?: number;
}

export interface AccessTokenRow {
  readonly uid: string;
  /** Hash of its refresh token, whose revocation ends it; null for a token issued for a password. */
  readonly refreshToken: string | null;
  readonly expiresMs: number;
}

interface NamedRow {
  readonly uid: string;
  readonly local: string;
  readonly seq: number;
  readonly name: string;
  /** Local id of the parent folder (which may no longer exist), or TOP. */
  readonly parent: string;
  readonly createdMs: number;
}

export interface FolderRow extends NamedRow {
  readonly kind: 'folder';
  /** `system` and `sync` folders are top-level and cannot be moved; system folders cannot be deleted either. */
  readonly role: 'system' | 'sync' | 'plain';
  /** The workspace that a sync folder belongs to. */
  readonly workspace?: string;
}

/** The current state of a file: its newest complete version. */
export interface NewestVersion {
  readonly seq: number;
  readonly sizeBytes: number;
  readonly lastModifiedMs: number;
  readonly blob: string;
}

export interface FileRow extends NamedRow {
  readonly kind: 'file';
  readonly mediaType: string;
  /** Token of its public link. */
  readonly publicLink: string | null;
  /** Null for a file without data. */
  readonly newest: NewestVersion | null;
}

export type ResourceRow = FolderRow | FileRow;

export interface VersionRow {
  readonly uid: string;
  readonly file: string;
  readonly seq: number;
  readonly version: string;
  readonly createdMs: number;
  readonly lastModifiedMs: number;
  readonly mediaType: string;
  readonly complete: boolean;
  /**
   * Length of a complete version. For an incomplete one, the number of bytes known to be synced; its blob may be
   * longer.
   */
  readonly sizeBytes: number;
  readonly blob: string;
  /** Hexadecimal; set for a complete version, shortly after its completion. */
  readonly sha256: string | null;
}

export interface WorkspaceRow {
  readonly uid: string;
  readonly local: string;
  readonly name: string;
  readonly iconId: string;
  readonly createdMs: number;
}

export interface ShareRow {
  readonly writeAllowed: boolean;
  readonly createdMs: number;
}

/** A blob in the object store. */
export interface StoredBlobRow {
  readonly key: string;
  readonly sizeBytes: number;
  readonly etag: string;
}

/**
 * An object that no blob refers to: `arriving` before its first byte, `dying` after its last reference, `broken` if it
 * did not arrive in full.
 */
export type PendingObject = 'arriving' | 'dying' | 'broken';

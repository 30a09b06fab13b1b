import type {
  AccessTokenRow,
  ApplicationRow,
  KeyPairRow,
  RefreshTokenRow,
  ResourceRow,
  ShareRow,
  UserRow,
  VersionRow,
  WorkspaceRow,
} from './rows.ts';

/** The rows of an installation by kind. Everything that a response contains is made of them. */
export interface InstallationRows {
  readonly users: UserRow;
  readonly applications: ApplicationRow;
  readonly keyPairs: KeyPairRow;
  readonly refreshTokens: RefreshTokenRow & { readonly hash: string };
  readonly accessTokens: AccessTokenRow & { readonly hash: string };
  readonly resources: ResourceRow;
  readonly workspaces: WorkspaceRow;
  readonly shares: ShareRow & { readonly receiver: string; readonly owner: string; readonly folder: string };
  readonly versions: VersionRow;
}

export type RowKind = keyof InstallationRows;
export type Key = readonly (string | number)[];

/** The key of each kind, which both back ends sort by. A kind follows those that its rows refer to. */
export const KEYS: { readonly [K in RowKind]: (row: InstallationRows[K]) => Key } = {
  users: ({ uid }) => [uid],
  applications: ({ id }) => [id],
  keyPairs: ({ accessKeyId }) => [accessKeyId],
  refreshTokens: ({ hash }) => [hash],
  accessTokens: ({ hash }) => [hash],
  resources: ({ uid, local }) => [uid, local],
  workspaces: ({ uid, local }) => [uid, local],
  shares: ({ receiver, owner, folder }) => [receiver, owner, folder],
  versions: ({ uid, file, seq }) => [uid, file, seq],
};

/** The numbers that the next account and the next entry or version get. */
export interface NextNumbers {
  readonly uid: number;
  readonly entry: number;
}

/** All data of a service that does not run, for a copy or a check. */
export interface Installation {
  /** For messages, without secrets. */
  readonly name: string;
  /** Stays equal while a copy is interrupted and continued. */
  readonly identity: string;
  /** The origin of all URLs; null before the first start of a server. */
  origin(): Promise<string | null>;
  nextNumbers(): Promise<NextNumbers>;
  /** The identity of the installation from which an interrupted copy came; null for complete data. */
  unfinishedCopyOf(): Promise<string | null>;
  /** In pieces, in the order of their keys. */
  rows<K extends RowKind>(kind: K): AsyncIterable<readonly InstallationRows[K][]>;
  /** Bytes that are stored of a version; null if it has none. */
  storedBytes(version: VersionRow): Promise<number | null>;
  /** The first `sizeBytes` bytes of a version. A chunk is valid until the next one is requested. */
  read(version: VersionRow, sizeBytes: number): AsyncIterable<Uint8Array>;
  close(): Promise<void>;
}

/** The bytes of a version, stored for `addVersions`. */
export interface StoredVersion {
  /** With the name of the new blob. */
  readonly row: VersionRow;
  /** Of few bytes: stored with the row. */
  readonly bytes: Uint8Array | null;
  /** Objects of this length in this order. */
  readonly parts: readonly { readonly key: string; readonly etag: string; readonly sizeBytes: number }[];
}

/** A new installation, which no server uses until the copy is complete. */
export interface CopyTarget extends Installation {
  /**
   * Begins a copy, or continues it.
   * @throws UsageError if there are other data; StorageError if the object store cannot be used
   */
  begin(source: string, origin: string): Promise<void>;
  /** Those that are there stay as they are. */
  add<K extends Exclude<RowKind, 'versions'>>(kind: K, rows: readonly InstallationRows[K][]): Promise<void>;
  /** Those of `rows` that are there, with their bytes. */
  knownVersions(rows: readonly VersionRow[]): Promise<ReadonlySet<VersionRow>>;
  /** Stores bytes. Those without a row are collected as after any interrupted upload. */
  store(version: VersionRow, chunks: AsyncIterable<Uint8Array>): Promise<StoredVersion>;
  /** In one change. */
  addVersions(versions: readonly StoredVersion[]): Promise<void>;
  /** From now on a server may start. */
  finish(next: NextNumbers): Promise<void>;
}

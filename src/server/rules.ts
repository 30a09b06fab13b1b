import type { ListingQuery, ResourceId } from '../protocol/endpoints.ts';
import type { AppAuthorizationDocument, AuthRequestDocument, TokenAuthRequestDocument } from '../protocol/messages.ts';
import type { Caller, IssuedToken, Session } from './accounts.ts';
import type { BlobBytes } from './blobs.ts';
import type { Exchange } from './exchange.ts';
import type { Page } from './list-page.ts';
import type { ObjectBytes } from './object-store.ts';
import type { Need, Relocation } from './repository.ts';
import type { FileRow, FolderRow, ResourceRow, ShareRow, UserRow, VersionRow, WorkspaceRow } from './rows.ts';
import type { Sender } from './sign-in.ts';

/**
 * The rules of the service, as handlers see them: each method is one rule, checked and executed as one step. All are
 * asynchronous, so that the state may be elsewhere. Every method throws Refusal as the rule says (docs/service.md).
 */
export interface Rules {
  readonly accounts: AccountRules;
  readonly repository: RepositoryRules;
  readonly collections: CollectionRules;
  readonly histories: HistoryRules;
  readonly uploads: UploadRules;
  readonly blobs: BlobRules;
}

/** Sign-in and tokens (docs/service.md 3 and 4.1). */
export interface AccountRules {
  createRefreshToken(request: AppAuthorizationDocument, sender: Sender): Promise<IssuedToken>;
  createAccessToken(request: TokenAuthRequestDocument, refreshSecret: string | null): Promise<IssuedToken>;
  createAccessTokenByPassword(request: AuthRequestDocument, sender: Sender): Promise<IssuedToken>;
  /** Null if the token is unknown, expired or revoked. */
  session(secret: string): Promise<Session | null>;
  /**
   * The session of a token that was valid before, and may have ended since: only for rules that check it in their own step. Null if
   * `session` costs less, or is the only way to know.
   */
  remembered(secret: string): Session | null;
  expire(session: Session): Promise<void>;
  user(uid: string): Promise<{ readonly row: UserRow; readonly usageBytes: number }>;
}

/** Folders, files and their names (docs/service.md 5, 6 and 9.2). */
export interface RepositoryRules {
  /** Upper limit of entries on one page. */
  readonly pageMax: number;
  folder(caller: string, id: ResourceId): Promise<FolderRow>;
  file(caller: string, id: ResourceId, need?: Need): Promise<FileRow>;
  /** A folder, and what the caller sees of its surroundings. */
  shownFolder(caller: string, id: ResourceId): Promise<ShownFolder>;
  list(caller: string, id: ResourceId, query: ListingQuery): Promise<Page<ResourceRow>>;
  listTop(uid: string, query: ListingQuery): Promise<Page<FolderRow>>;
  createFolder(caller: Caller, parent: ResourceId, name: string): Promise<ResourceId>;
  createSyncFolder(uid: string, name: string): Promise<void>;
  createFile(caller: Caller, parent: ResourceId, name: string, mediaType: string): Promise<ResourceId>;
  /** A new file with the newest version of `source`. */
  copyFile(caller: Caller, parent: ResourceId, source: ResourceId, name: string): Promise<ResourceId>;
  updateFolder(caller: string, id: ResourceId, change: Relocation): Promise<void>;
  updateFile(caller: string, id: ResourceId, change: FileChange): Promise<FileRow>;
  deleteFolder(caller: string, id: ResourceId): Promise<void>;
  /** With all versions and their bytes. */
  deleteFile(caller: string, id: ResourceId): Promise<void>;
  /** Whether a download may continue: a deletion does not end it, a withdrawn share or sign-in does. */
  mayReadOn(session: Session, id: ResourceId): Promise<boolean>;
}

export interface ShownFolder {
  readonly row: FolderRow;
  /** Null for an own folder that is not shared. */
  readonly sharing: { readonly writeAllowed: boolean } | null;
  readonly showsParent: boolean;
}

export interface FileChange extends Relocation {
  readonly mediaType?: string | undefined;
  readonly publicLink?: boolean | undefined;
}

/** Derived collections, shares and contacts (docs/service.md 8 and 9). */
export interface CollectionRules {
  linkedFile(token: string): Promise<FileRow | null>;
  linkedFiles(uid: string): Promise<readonly FileRow[]>;
  albums(uid: string): Promise<readonly FolderRow[]>;
  album(caller: string, id: ResourceId): Promise<FolderRow>;
  workspaces(uid: string): Promise<readonly WorkspaceRow[]>;
  workspace(caller: string, id: ResourceId): Promise<WorkspaceRow>;
  renameWorkspace(caller: string, id: ResourceId, name: string | undefined): Promise<void>;
  workspaceFolders(caller: string, id: ResourceId): Promise<readonly FolderRow[]>;
  receivedShares(caller: string): Promise<readonly ReceivedShare[]>;
  receivedShare(caller: string, id: ResourceId): Promise<ReceivedShare>;
  contact(caller: string, uid: string): Promise<UserRow>;
}

export interface ReceivedShare {
  readonly folder: FolderRow;
  readonly share: ShareRow;
}

/** Versions (docs/service.md 7). */
export interface HistoryRules {
  list(file: FileRow, start: number, max: number): Promise<Page<VersionRow>>;
  version(file: FileRow, version: string): Promise<VersionRow>;
  /** A version without data yet. */
  create(caller: string, id: ResourceId): Promise<VersionRow>;
}

/** Upload sessions: one sender per version, who may continue where the last one stopped (docs/service.md 6.1, 7.4). */
export interface UploadRules {
  /** Bytes stored of an incomplete version, including those of an active upload. */
  storedBytes(version: VersionRow): Promise<number>;
  /** The body becomes a version of the file, in one step. Checks the access token before it reads the body. */
  replaceData(session: Session, id: ResourceId, exchange: Exchange): Promise<void>;
  append(session: Session, file: FileRow, version: VersionRow, offset: number, exchange: Exchange): Promise<VersionRow>;
}

/** The bytes of complete versions. */
export interface BlobRules {
  /** Null if there is no such blob. */
  sizeBytes(name: string): Promise<number | null>;
  /** Bytes `[start, end)`. A chunk is valid until the next one is requested. */
  read(name: string, start: number, end: number): BlobBytes | Promise<ObjectBytes>;
  /** A path, or bytes, for callers with their own reader: of data elsewhere at most the first `bytesMax`. */
  source(name: string, bytesMax: number): Promise<string | Uint8Array>;
}

/** Result of `addKeyPair`: the private key is shown only once. */
export interface KeyPair {
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
}

export interface UserSummary {
  readonly userId: string;
  readonly email: string;
  readonly nickname: string;
  readonly quotaBytes: number;
  readonly usageBytes: number;
  readonly keyPairs: readonly string[];
}

/** The operator's functions. Every mistake is a UsageError of one sentence. */
export interface AdministrationRules {
  addUser(
    email: string,
    password: string,
    options?: { nickname?: string; quotaBytes?: number; scryptCost?: number },
  ): Promise<{ userId: string }>;
  setPassword(email: string, password: string): Promise<void>;
  removeUser(email: string): Promise<void>;
  /** Whether there is such a user. @throws UsageError */
  checkUser(email: string): Promise<void>;
  setQuota(email: string, quotaBytes: number): Promise<void>;
  users(): Promise<UserSummary[]>;
  addApplication(name: string, options?: { owner?: string }): Promise<string>;
  setApplicationEnabled(id: string, enabled: boolean): Promise<void>;
  applications(): Promise<{ id: string; name: string; enabled: boolean }[]>;
  addKeyPair(email: string): Promise<KeyPair>;
  revokeKeyPair(accessKeyId: string): Promise<void>;
  revokeTokens(email: string): Promise<number>;
  share(owner: string, folder: string, receiver: string, options: { writeAllowed: boolean }): Promise<void>;
  unshare(owner: string, folder: string, receiver: string): Promise<void>;
  addWorkspace(email: string, name: string, options?: { syncFolders?: readonly string[] }): Promise<string>;
}

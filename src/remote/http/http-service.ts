import { ApiError, ProtocolError, SignInError, TransportError } from '../../base/errors.ts';
import type { Logger } from '../../base/log.ts';
import type {
  ListingPage,
  NewestBytes,
  NewestVersion,
  RemoteEntry,
  RemoteResource,
  RemoteVersion,
  UploadProgress,
} from '../../base/resources.ts';
import type { Extent, NodeKind, ResourceUrl, VersionUrl } from '../../base/vocabulary.ts';
import { shapeOf } from '../../protocol/endpoints.ts';
import {
  decodeAlbum,
  decodeFile,
  decodeFileVersion,
  decodeFolder,
  decodeUser,
  decodeWorkspace,
  encodeFileCopy,
  encodeFileUpdate,
  encodeFolderUpdate,
  encodeNewFile,
  encodeNewFolder,
  encodeSyncFolder,
} from '../../protocol/messages.ts';
import type { DecodeDocument } from '../../protocol/xml.ts';
import type {
  ApplicationKeys,
  Copies,
  Credentials,
  DirectDownloads,
  IncomingData,
  Landing,
  Pictures,
  PublicLinks,
  RemoteService,
  RequestBody,
  Trash,
  Uploads,
  WholeAccount,
} from '../contract.ts';
import { AccessToken } from './access-token.ts';
import type { AccountUser } from './account.ts';
import { AccountService } from './account-service.ts';
import { AccountTree } from './account-tree.ts';
import {
  DOCUMENT_BYTES_MAX,
  discarded,
  located,
  locationOf,
  nullWhenGone,
  readAddressed,
  readDocument,
} from './answer-reading.ts';
import { VersionHistories } from './history.ts';
import { listAll, listPage, type PageQuery } from './listing.ts';
import { Requests, type ServiceRequest } from './requests.ts';
import { fileOf, progressOf, userOf } from './resource-mapping.ts';
import { createRefreshToken, isRefusedByService, issueAccessToken } from './tokens.ts';
import { Transport, type TransportOptions } from './transport.ts';
import { bringVersionData, newestVersionData, openVersionData } from './version-data.ts';

export interface HttpServiceOptions extends TransportOptions {
  readonly keys: ApplicationKeys;
  /** URL of the refresh token; null before the first sign-in. */
  readonly refreshToken: string | null;
  readonly log: Logger;
  /** Called once when the service refuses the refresh token. */
  readonly onSignInRequired?: (error: SignInError) => void;
  /** Called when the service accepts that refresh token, or another one, again. */
  readonly onSignedIn?: () => void;
}

/** The service of docs/service.md over HTTP and XML, with all capabilities. For automatic retries see `requests.ts`. */
export class HttpService implements RemoteService, Uploads, Trash, Copies, DirectDownloads {
  readonly uploads: Uploads = this;
  readonly trash: Trash = this;
  readonly copies: Copies = this;
  readonly downloads: DirectDownloads = this;
  readonly links: PublicLinks;
  readonly pictures: Pictures;
  readonly wholeAccount: WholeAccount;
  /** Workspaces, albums, shares, contacts, public links. */
  readonly account: AccountService;
  readonly #base: string;
  #keys: ApplicationKeys;
  readonly #transport: Transport;
  readonly #token: AccessToken;
  readonly #requests: Requests;
  readonly #histories: VersionHistories;
  /** Whether the service may name the version whose bytes it sends; false once it has not. */
  #namesVersions = true;
  #refreshToken: string | null;
  #user: AccountUser | null = null;

  constructor(options: HttpServiceOptions) {
    this.#transport = new Transport(options);
    this.#base = options.baseUrl.replace(/\/+$/, '');
    this.#keys = options.keys;
    this.#refreshToken = options.refreshToken;
    this.#token = new AccessToken({
      issue: (signal) => this.#issueToken(signal),
      isFromService: (refusal, signal) => isRefusedByService(this.#requests, this.#base, refusal, signal),
      clock: options.clock,
      onSignInRequired: (error) => {
        options.log.error({ err: error }, 'sign in again: run cfs login URL');
        options.onSignInRequired?.(error);
      },
      onSignedIn: () => options.onSignedIn?.(),
    });
    this.#requests = new Requests({
      transport: this.#transport,
      token: this.#token,
      clock: options.clock,
      log: options.log,
    });
    this.#histories = new VersionHistories(this.#requests);
    this.account = new AccountService({ requests: this.#requests, user: (signal) => this.user(signal) });
    this.links = this.account;
    this.pictures = this.account;
    this.wholeAccount = {
      top: async (signal) => (await this.user(signal)).syncFolders,
      view: (shownName) => new AccountTree({ service: this, baseUrl: this.#base, shownName }),
    };
  }

  /** Requests since the start. */
  get requestCounts(): { readonly sent: number; readonly repeated: number } {
    return this.#requests.counts;
  }

  get signInRequired(): boolean {
    return this.#token.signInRequired;
  }

  /**
   * Signs in with a password and uses the resulting refresh token from then on.
   * @returns the refresh token's URL, for storage; the password is not kept
   * @throws SignInError if the service refuses
   */
  async signIn(credentials: Credentials, signal?: AbortSignal): Promise<string> {
    const token = await createRefreshToken(this.#requests, this.#base, { ...credentials, ...this.#keys }, signal);
    this.useSignIn(this.#keys, token);
    return token;
  }

  /** Switches to the keys and refresh token of a new `cfs login`. */
  useSignIn(keys: ApplicationKeys, refreshToken: string): void {
    this.#keys = keys;
    this.#refreshToken = refreshToken;
    this.#user = null;
    this.#token.reset();
  }

  async close(): Promise<void> {
    this.#token.close();
    await this.#transport.close();
  }

  /** The user of the token; requested on every call, because the quota in it changes. */
  async user(signal?: AbortSignal): Promise<AccountUser> {
    const { user: url } = await this.#token.current(signal);
    this.#user = userOf(await this.#document(url, decodeUser, signal), url);
    return this.#user;
  }

  // --- looking (RemoteListing) ---

  /** One page of a folder, or of another container: the user's sync folders, a workspace, an album. See `listing.ts`. */
  async listPage(
    folder: ResourceUrl,
    start: number,
    signal?: AbortSignal,
    query: PageQuery = {},
  ): Promise<ListingPage> {
    return await listPage(this.#requests, { folder, start, query, signal });
  }

  /**
   * All entries of a folder, each once. Exact if the folder does not change meanwhile; otherwise an entry may be
   * missed.
   */
  async list(folder: ResourceUrl, signal?: AbortSignal): Promise<readonly RemoteEntry[]> {
    return await listAll(this.#requests, { folder, signal });
  }

  /**
   * The current state of the resource, under its new URL if the service moved it; null if the service says that it does
   * not exist.
   */
  async resource(url: ResourceUrl, kind: NodeKind, signal?: AbortSignal): Promise<RemoteResource | null> {
    return await nullWhenGone(async () => {
      if (kind !== 'folder') {
        const { document, address } = await readAddressed(this.#requests, { url, decode: decodeFile, signal });
        const parent = (document.parent ?? null) as ResourceUrl | null;
        const isPublic = document.publicLink?.enabled ?? false;
        return { ...fileOf(address as ResourceUrl, document), parent, isPublic };
      }
      const shape = shapeOf(this.#base, url)?.kind;
      if (shape === 'userCollection') {
        // The container has no representation of its own: it exists as long as its user does.
        await this.user(signal);
        return { kind: 'folder', url, name: '', parent: null };
      }
      if (shape === 'workspace' || shape === 'album') {
        const decode = shape === 'workspace' ? decodeWorkspace : decodeAlbum;
        const collection: { readonly displayName: string } = await this.#document(
          url,
          decode as DecodeDocument<{ readonly displayName: string }>,
          signal,
        );
        return { kind: 'folder', url, name: collection.displayName, parent: null };
      }
      const { document, address } = await readAddressed(this.#requests, { url, decode: decodeFolder, signal });
      const parent = (document.parent ?? null) as ResourceUrl | null;
      return { kind: 'folder', url: address as ResourceUrl, name: document.displayName, parent };
    });
  }

  // --- reading (VersionSource) ---

  /** A file's versions, newest first, complete and incomplete ones. */
  async versions(file: ResourceUrl, signal?: AbortSignal): Promise<readonly RemoteVersion[]> {
    return await this.#histories.whole(file, signal);
  }

  /** The newest complete version; null if the file has none or does not exist. */
  async newestVersion(file: ResourceUrl, signal?: AbortSignal): Promise<NewestVersion | null> {
    return await nullWhenGone(() => this.#histories.newest(file, signal));
  }

  /** The newest complete version of that length; null when the file has none. */
  async versionOfLength(file: ResourceUrl, sizeBytes: number, signal?: AbortSignal): Promise<RemoteVersion | null> {
    return await this.#histories.newestOfLength(file, sizeBytes, signal);
  }

  /** As `RemoteReading.readNewest`. After one answer that does not name its version no further one is requested. */
  async readNewest(
    file: ResourceUrl,
    extent: Extent,
    sizeBytes: number,
    signal?: AbortSignal,
  ): Promise<NewestBytes | null> {
    if (!this.#namesVersions) return null;
    const newest = await newestVersionData(this.#requests, { url: `${file}/data`, extent, sizeBytes, signal });
    if (newest === null) this.#namesVersions = false;
    return newest;
  }

  /** Bytes of a version whose length is known to be `sizeBytes`; for the validation see `version-data.ts`. */
  async readVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    signal?: AbortSignal,
  ): Promise<IncomingData> {
    return await openVersionData(this.#requests, { url: `${version}/data`, extent, sizeBytes, signal });
  }

  /** As `readVersion`, into a file; see `bringVersionData`. */
  async bringVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    landing: Landing,
    signal: AbortSignal,
  ): Promise<number> {
    const request = { url: `${version}/data`, extent, sizeBytes, signal };
    return await bringVersionData(this.#requests, request, landing);
  }

  // --- changing names (RemoteChanges) ---

  /** Not retried automatically: after a TransportError, list the parent before trying again. */
  async createFolder(parent: ResourceUrl, name: string, signal?: AbortSignal): Promise<ResourceUrl> {
    const isTop = shapeOf(this.#base, parent)?.kind === 'userCollection';
    const created = await this.#create(
      isTop
        ? { url: parent, body: encodeSyncFolder({ displayName: name }), headers: SYNC_FOLDER_HEADERS, signal }
        : { url: parent, body: encodeNewFolder({ displayName: name }), signal },
    );
    if (created !== null) return created;
    // The service does not report a new sync folder's URL (docs/service.md 4.3); other services may not report a folder's.
    const entries = await this.#entriesAfter(parent, signal);
    const folder = entries.findLast((entry) => entry.kind === 'folder' && entry.name === name);
    if (folder === undefined) throw new ProtocolError(`${parent}: the created folder is not listed`);
    return folder.url;
  }

  /** Not repeated by itself. */
  async createFile(parent: ResourceUrl, name: string, mediaType: string, signal?: AbortSignal): Promise<ResourceUrl> {
    const body = encodeNewFile({ displayName: name, mediaType });
    return located<ResourceUrl>(await this.#create({ url: parent, body, signal }), 'file');
  }

  /** Not repeated by itself. */
  async copyFile(source: ResourceUrl, parent: ResourceUrl, name: string, signal?: AbortSignal): Promise<ResourceUrl> {
    const body = encodeFileCopy({ source, displayName: name });
    return located<ResourceUrl>(await this.#create({ url: parent, body, signal }), 'copy');
  }

  /** Sets name and parent. @returns the URL from now on: the service may change it (301, docs/service.md 13.1) */
  async relocate(
    url: ResourceUrl,
    kind: NodeKind,
    parent: ResourceUrl,
    name: string,
    signal?: AbortSignal,
  ): Promise<ResourceUrl> {
    const change = { displayName: name, parent };
    const body = kind === 'folder' ? encodeFolderUpdate(change) : encodeFileUpdate(change);
    const request: ServiceRequest = { method: 'PUT', url, repetition: 'always', body, mayReaddress: true, signal };
    return await this.#requests.send(request, async (answered) => {
      await answered.answer.discard();
      return answered.address as ResourceUrl;
    });
  }

  async trashFolder(signal?: AbortSignal): Promise<ResourceUrl> {
    return (await this.user(signal)).deletedFiles;
  }

  /**
   * Moves to *Deleted Files*, under its name; a folder is moved with its contents. A resource that does not exist is
   * success, if the 404 is confirmed to be its own.
   * @returns null if it did not exist
   */
  async moveToTrash(url: ResourceUrl, kind: NodeKind, name: string, signal?: AbortSignal): Promise<'deleted' | null> {
    const { deletedFiles } = this.#user ?? (await this.user(signal));
    return await this.#unlessGone({ url, kind, signal }, () => this.relocate(url, kind, deletedFiles, name, signal));
  }

  /**
   * Deletes permanently; a folder must be empty, or its contents would be orphaned. A resource that does not exist is
   * success, if the 404 is confirmed to be its own.
   * @returns null if it did not exist
   */
  async deleteForever(url: ResourceUrl, kind: NodeKind, signal?: AbortSignal): Promise<'deleted' | null> {
    return await this.#unlessGone({ url, kind, signal }, () =>
      this.#requests.send({ method: 'DELETE', url, repetition: 'always', signal }, discarded),
    );
  }

  // --- sending bytes (UploadService) ---

  /**
   * A file's bytes in one request: a new version, which cannot be resumed (docs/service.md 6.1). Not retried automatically.
   * @returns the service's clock at the response, milliseconds since the epoch; null without a Date header
   */
  async putFileData(
    file: ResourceUrl,
    body: RequestBody,
    mediaType: string,
    signal?: AbortSignal,
  ): Promise<number | null> {
    const headers = { 'Content-Type': mediaType };
    const request: ServiceRequest = {
      method: 'PUT',
      url: `${file}/data`,
      repetition: 'unseen',
      headers,
      body: sendable(body),
      signal,
    };
    return await this.#requests.send(request, async (answered) => {
      await discarded(answered);
      return answered.answer.serverTimeMs;
    });
  }

  /** A new, empty version. Retried after a lost response: the lost version stays empty and harmless. */
  async createVersion(file: ResourceUrl, signal?: AbortSignal): Promise<VersionUrl> {
    const request: ServiceRequest = { method: 'POST', url: `${file}/version`, repetition: 'always', body: '', signal };
    const location = await this.#requests.send(request, locationOf);
    return located<VersionUrl>(location, 'version');
  }

  /**
   * Sends the bytes from `offset` on (docs/service.md 7.4). Not retried automatically: call `versionProgress` first.
   * @throws ApiError 416 if the service holds another number of bytes
   */
  async putVersionData(
    version: VersionUrl,
    offset: number,
    body: RequestBody,
    signal?: AbortSignal,
  ): Promise<UploadProgress> {
    const headers = { Range: `bytes=${offset}-`, 'Content-Type': 'application/octet-stream' };
    const request: ServiceRequest = {
      method: 'PUT',
      url: `${version}/data`,
      repetition: 'unseen',
      headers,
      body: sendable(body),
      signal,
    };
    const progress = await this.#requests.send(request, async ({ answer }) => {
      const bytes = await answer.bytes(DOCUMENT_BYTES_MAX);
      // ASSUMED (docs/service.md 7.4): another 2xx without a document proves less than asking for the progress.
      return bytes.byteLength === 0 ? null : progressOf(decodeFileVersion(bytes));
    });
    if (progress !== null) return progress;
    const asked = await this.versionProgress(version, signal);
    if (asked === null) throw new ProtocolError(`${version}: the version took its data, but does not exist`);
    return asked;
  }

  /** The number of bytes that the service holds of a version; null if the version is unknown to it. */
  async versionProgress(version: VersionUrl, signal?: AbortSignal): Promise<UploadProgress | null> {
    return await nullWhenGone(async () => progressOf(await this.#document(version, decodeFileVersion, signal)));
  }

  // --- underneath ---

  /** Confirms a 404 by asking for the resource itself: any hop may have sent the first one. */
  async #unlessGone(
    { url, kind, signal }: { url: ResourceUrl; kind: NodeKind; signal: AbortSignal | undefined },
    act: () => Promise<unknown>,
  ): Promise<'deleted' | null> {
    try {
      await act();
      return 'deleted';
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      if ((await this.resource(url, kind, signal)) !== null) throw error;
      return null;
    }
  }

  async #issueToken(signal: AbortSignal) {
    const { accessKeyId, privateAccessKey } = this.#keys;
    const refreshToken = this.#refreshToken;
    if (refreshToken === null) throw new SignInError('you are not signed in; run: cfs login URL');
    return await issueAccessToken(this.#requests, this.#base, { accessKeyId, privateAccessKey, refreshToken }, signal);
  }

  /**
   * Entries of a folder after a creation. @throws TransportError if the listing fails: its refusal does not refuse the
   * creation
   */
  async #entriesAfter(folder: ResourceUrl, signal: AbortSignal | undefined): Promise<readonly RemoteEntry[]> {
    try {
      return await this.list(folder, signal);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      throw new TransportError(`created, but the listing failed: ${error.message}`, { cause: error });
    }
  }

  async #document<T>(url: string, decode: DecodeDocument<T>, signal: AbortSignal | undefined): Promise<T> {
    return await readDocument(this.#requests, { url, decode, signal });
  }

  async #create(request: Pick<ServiceRequest, 'url' | 'body' | 'headers' | 'signal'>): Promise<ResourceUrl | null> {
    const location = await this.#requests.send({ ...request, method: 'POST', repetition: 'unseen' }, locationOf);
    return location as ResourceUrl | null;
  }
}

/** The only call with an API version header, in exactly this spelling (docs/service.md 13.8). */
const SYNC_FOLDER_HEADERS = { 'X-SugarSync-API-Version': '1.5' };

/** An empty body is sent with Content-Length: 0. */
function sendable(body: RequestBody): RequestBody | string {
  return body.length === 0 ? '' : body;
}

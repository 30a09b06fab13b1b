import type {
  ListingPage,
  NewestBytes,
  NewestVersion,
  RemoteEntry,
  RemoteFile,
  RemoteFolder,
  RemoteResource,
  RemoteVersion,
} from '../../base/resources.ts';
import type { Extent, NodeKind, ResourceUrl, VersionUrl } from '../../base/vocabulary.ts';
import { parseUrl, shapeOf } from '../../protocol/endpoints.ts';
import type { DirectDownloads, IncomingData, Landing, RemoteReading, RemoteService } from '../contract.ts';
import type { AccountUser, RemoteShare } from './account.ts';
import type { AccountService } from './account-service.ts';
import { nullWhenGone } from './answer-reading.ts';

/** Names of the two synthetic folders. */
export const WORKSPACES_NAME = 'Workspaces';
export const SHARES_NAME = 'Shared with me';

/** Must equal the type in `tree/remote-entry`. The content of such a file is the target of the link. */
const LINK_MEDIA_TYPE = 'inode/symlink';
const LINK_MARK = '#link=';
const OWNER_MARK = '#owner=';
const CONTACTS_MAX = 1_000;
/** The folder of shares without an owner. Users may have it in paths. */
const UNKNOWN_OWNER = 'Somebody';

/** The service whose account is shown. */
export interface AccountTreeSource extends RemoteReading, DirectDownloads, Pick<RemoteService, 'list'> {
  readonly account: Pick<AccountService, 'workspaces' | 'receivedShares' | 'contact'>;
  user(signal?: AbortSignal): Promise<AccountUser>;
}

/**
 * The whole account as one folder tree (`--root account`), for listing and reading:
 *
 *   /                         the sync folders, without the trash
 *   /Workspaces/NAME/         links to the sync folders of that computer, because a folder has one place only
 *   /Shared with me/OWNER/    the folders that this person shares
 *
 * Folders that the service lists keep their URLs. The other folders are synthetic, with URLs that no resource of the
 * service has.
 */
export class AccountTree implements RemoteReading, DirectDownloads {
  readonly downloads: DirectDownloads = this;
  readonly #service: AccountTreeSource;
  readonly #base: string;
  /** Maps a remote name to its local form: link targets must name what the user sees. */
  readonly #shownName: (name: string) => string;
  readonly #contacts = new Map<string, string>();
  #user: AccountUser | null = null;

  constructor(options: { service: AccountTreeSource; baseUrl: string; shownName: (name: string) => string }) {
    this.#service = options.service;
    this.#base = options.baseUrl.replace(/\/+$/, '');
    this.#shownName = options.shownName;
  }

  /** As `RemoteReading.listPage`; a synthetic folder is a single page. */
  async listPage(folder: ResourceUrl, start: number, signal?: AbortSignal): Promise<ListingPage> {
    const made = await this.#made(folder, signal);
    if (made === null) return await this.#service.listPage(folder, start, signal);
    return { entries: made.slice(start), hasMore: false, serverTimeMs: null };
  }

  /** As `RemoteReading.resource`. */
  async resource(url: ResourceUrl, kind: NodeKind, signal?: AbortSignal): Promise<RemoteResource | null> {
    if (url.includes(LINK_MARK)) return null;
    const user = await this.#known(signal);
    const parent = user.syncFolders;
    if (url === user.workspaces) return { kind: 'folder', url, name: WORKSPACES_NAME, place: 'made', parent };
    if (url === user.receivedShares) return { kind: 'folder', url, name: SHARES_NAME, place: 'made', parent };
    const owner = ownerOf(url);
    if (owner === null) {
      const resource = await this.#service.resource(url, kind, signal);
      return resource?.kind === 'folder'
        ? { ...resource, parent: await this.#parentOf(resource, user, signal) }
        : resource;
    }
    const found = (await this.#owners(user, signal)).find((entry) => entry.url === url);
    return found === undefined ? null : { ...found, parent: user.receivedShares as ResourceUrl };
  }

  async newestVersion(file: ResourceUrl, signal?: AbortSignal): Promise<NewestVersion | null> {
    const target = targetOf(file);
    if (target === null) return await this.#service.newestVersion(file, signal);
    const sizeBytes = Buffer.byteLength(target);
    return {
      url: file as string as VersionUrl,
      sizeBytes,
      complete: true,
      lastModifiedMs: null,
      mediaType: LINK_MEDIA_TYPE,
      isFirst: false,
    };
  }

  async versionOfLength(file: ResourceUrl, sizeBytes: number, signal?: AbortSignal): Promise<RemoteVersion | null> {
    if (targetOf(file) === null) return await this.#service.versionOfLength(file, sizeBytes, signal);
    const only = await this.newestVersion(file, signal);
    return only?.sizeBytes === sizeBytes ? only : null;
  }

  async readNewest(
    file: ResourceUrl,
    extent: Extent,
    sizeBytes: number,
    signal?: AbortSignal,
  ): Promise<NewestBytes | null> {
    if (targetOf(file) !== null) return null;
    return (await this.#service.readNewest?.(file, extent, sizeBytes, signal)) ?? null;
  }

  async readVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    signal?: AbortSignal,
  ): Promise<IncomingData> {
    const target = targetOf(version);
    if (target === null) return await this.#service.readVersion(version, extent, sizeBytes, signal);
    const bytes = Buffer.from(target).subarray(extent.start, extent.end);
    return { extent, chunks: oneChunk(bytes) };
  }

  async bringVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    landing: Landing,
    signal: AbortSignal,
  ): Promise<number> {
    if (targetOf(version) !== null) return extent.start;
    return await this.#service.bringVersion(version, extent, sizeBytes, landing, signal);
  }

  async versions(file: ResourceUrl, signal?: AbortSignal): Promise<readonly RemoteVersion[]> {
    if (targetOf(file) === null) return await this.#service.versions(file, signal);
    const only = await this.newestVersion(file, signal);
    return only === null ? [] : [only];
  }

  /** The entries of a synthetic folder; null for all others. */
  async #made(folder: ResourceUrl, signal: AbortSignal | undefined): Promise<readonly RemoteEntry[] | null> {
    const user = await this.#known(signal);
    if (folder === user.syncFolders) return await this.#top(signal);
    if (folder === user.workspaces) return madeFolders(await this.#service.account.workspaces(signal));
    if (folder === user.receivedShares) return await this.#owners(user, signal);
    const owner = ownerOf(folder);
    if (owner !== null) return (await this.#shares(signal)).filter((share) => share.owner === owner).map(sharedFolder);
    if (shapeOf(this.#base, folder)?.kind === 'workspace') return await this.#workspace(folder, user, signal);
    return null;
  }

  async #top(signal: AbortSignal | undefined): Promise<readonly RemoteEntry[]> {
    // The account's links may change with its permissions: fetch them again with every listing of the top.
    this.#user = await this.#service.user(signal);
    const { workspaces, receivedShares } = this.#user;
    const made = [
      ...(workspaces === null ? [] : [{ url: workspaces, name: WORKSPACES_NAME }]),
      ...(receivedShares === null ? [] : [{ url: receivedShares as ResourceUrl, name: SHARES_NAME }]),
    ];
    return [...(await this.#syncFolders(this.#user, signal)), ...madeFolders(made)];
  }

  async #syncFolders(user: AccountUser, signal: AbortSignal | undefined): Promise<readonly RemoteFolder[]> {
    const entries = await this.#service.list(user.syncFolders, signal);
    // Hide the trash: deleting moves entries into it, so entries inside it could not be deleted.
    return entries.flatMap((entry) => (entry.kind === 'folder' && entry.url !== user.deletedFiles ? [entry] : []));
  }

  /** A sync folder appears at the top; here only a link to it appears, because a folder has one place. */
  async #workspace(
    workspace: ResourceUrl,
    user: AccountUser,
    signal: AbortSignal | undefined,
  ): Promise<readonly RemoteEntry[]> {
    const top = new Map((await this.#syncFolders(user, signal)).map((folder) => [folder.url, folder.name]));
    const entries = await this.#service.list(workspace, signal);
    return entries.map((entry) => {
      const name = top.get(entry.url);
      return name === undefined ? entry : linkTo(workspace, entry.name, `../../${this.#shownName(name)}`);
    });
  }

  /**
   * The folder's parent in this tree. The service reports no parent for top-level folders; taken literally, that would
   * read as a deletion.
   */
  async #parentOf(
    { url, parent }: RemoteResource,
    user: AccountUser,
    signal: AbortSignal | undefined,
  ): Promise<ResourceUrl | null> {
    if (shapeOf(this.#base, url)?.kind === 'workspace') return user.workspaces;
    const isOwn = this.#isOwn(url, user);
    if (isOwn !== true) {
      const share = (await this.#shares(signal)).find(({ folder }) => folder === url);
      if (share !== undefined) return ownerFolder(user, share.owner);
      if (isOwn === false) return parent;
    }
    return parent ?? (url === user.deletedFiles ? null : user.syncFolders);
  }

  /** Whether the folder belongs to the user; null if its id does not show the owner. */
  #isOwn(folder: string, user: AccountUser): boolean | null {
    const [endpoint, top] = [parseUrl(this.#base, folder), parseUrl(this.#base, user.syncFolders)];
    if (endpoint?.kind !== 'folder' || top?.kind !== 'userCollection') return null;
    return endpoint.id.uid === top.uid;
  }

  async #owners(user: AccountUser, signal: AbortSignal | undefined): Promise<readonly RemoteFolder[]> {
    const owners = new Set((await this.#shares(signal)).map(({ owner }) => owner ?? ''));
    const folders: RemoteFolder[] = [];
    for (const owner of owners) {
      const name = await this.#contactName(owner, signal);
      folders.push({ kind: 'folder', url: ownerFolder(user, owner), name, place: 'made' });
    }
    return folders;
  }

  async #shares(signal: AbortSignal | undefined): Promise<readonly (RemoteShare & { owner: string })[]> {
    const shares = await this.#service.account.receivedShares(signal);
    return shares.flatMap((share) => (share.mayRead ? [{ ...share, owner: share.owner ?? '' }] : []));
  }

  /** The contact's name, or the email address if there is none. */
  async #contactName(owner: string, signal: AbortSignal | undefined): Promise<string> {
    if (owner === '') return UNKNOWN_OWNER;
    const known = this.#contacts.get(owner);
    if (known !== undefined) return known;
    const contact = await nullWhenGone(() => this.#service.account.contact(owner, signal));
    const parts = [contact?.firstName, contact?.lastName].filter((part) => part != null && part !== '');
    // A sharer who is not (or no longer) a contact is named by the last part of the owner URL.
    const name = parts.join(' ') || contact?.emailAddress || (owner.split('/').at(-1) as string);
    // Do not cache a failed lookup: the name becomes available when the service recovers.
    if (contact === null) return name;
    if (this.#contacts.size >= CONTACTS_MAX) this.#contacts.clear();
    this.#contacts.set(owner, name);
    return name;
  }

  async #known(signal: AbortSignal | undefined): Promise<AccountUser> {
    this.#user ??= await this.#service.user(signal);
    return this.#user;
  }
}

function madeFolders(folders: readonly { readonly url: ResourceUrl; readonly name: string }[]): RemoteFolder[] {
  return folders.map(({ url, name }) => ({ kind: 'folder', url, name, place: 'made' }));
}

function sharedFolder({ folder, name, mayWrite }: RemoteShare): RemoteFolder {
  return { kind: 'folder', url: folder, name, place: mayWrite ? 'shared' : 'read-only' };
}

function linkTo(workspace: ResourceUrl, name: string, target: string): RemoteFile {
  return {
    kind: 'file',
    url: `${workspace}${LINK_MARK}${encodeURIComponent(target)}` as ResourceUrl,
    name,
    sizeBytes: Buffer.byteLength(target),
    lastModifiedMs: null,
    mediaType: LINK_MEDIA_TYPE,
    presentOnServer: true,
  };
}

function targetOf(url: string): string | null {
  const at = url.indexOf(LINK_MARK);
  return at === -1 ? null : decodeURIComponent(url.slice(at + LINK_MARK.length));
}

function ownerFolder(user: AccountUser, owner: string): ResourceUrl {
  return `${user.receivedShares}${OWNER_MARK}${owner}` as ResourceUrl;
}

function ownerOf(url: string): string | null {
  const at = url.indexOf(OWNER_MARK);
  return at === -1 ? null : url.slice(at + OWNER_MARK.length);
}

async function* oneChunk(bytes: Buffer): AsyncIterable<Buffer> {
  yield bytes;
}

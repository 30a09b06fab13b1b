import type { RemoteEntry, RemoteFile } from '../../base/resources.ts';
import type { ResourceUrl, VersionUrl } from '../../base/vocabulary.ts';
import {
  decodeCollectionContents,
  decodeContact,
  decodeFile,
  decodeReceivedShare,
  decodeReceivedShares,
  encodeFileUpdate,
  encodeWorkspaceUpdate,
  type ReceivedShareDocument,
} from '../../protocol/messages.ts';
import type { DecodeDocument } from '../../protocol/xml.ts';
import type { ImageForm, Pictures, PublicLinks, RemoteImage } from '../contract.ts';
import type { AccountUser, RemoteCollection, RemoteContact, RemoteShare } from './account.ts';
import type { Answer } from './answer.ts';
import { DOCUMENT_BYTES_MAX, discarded, readDocument } from './answer-reading.ts';
import type { Requests } from './requests.ts';
import { entriesOf } from './resource-mapping.ts';

/**
 * Resources of the account other than folders: workspaces, albums, received shares, contacts, public links, transcoded
 * images. Contents of workspaces and albums are listed like folders (`HttpService.listPage`); shared folders *are*
 * folders.
 */
export class AccountService implements PublicLinks, Pictures {
  readonly #requests: Requests;
  readonly #user: (signal?: AbortSignal) => Promise<AccountUser>;

  constructor(options: { requests: Requests; user: (signal?: AbortSignal) => Promise<AccountUser> }) {
    this.#requests = options.requests;
    this.#user = options.user;
  }

  /** Synchronized computers, one collection each. */
  async workspaces(signal?: AbortSignal): Promise<readonly RemoteCollection[]> {
    return await this.#collections((await this.#user(signal)).workspaces, signal);
  }

  async renameWorkspace(workspace: ResourceUrl, name: string, signal?: AbortSignal): Promise<void> {
    const body = encodeWorkspaceUpdate({ displayName: name });
    const request = { method: 'PUT', url: workspace, repetition: 'always', body, mayReaddress: true, signal } as const;
    await this.#requests.send(request, discarded);
  }

  /** Folders that contain an image; the service lists each of them again as an album. */
  async albums(signal?: AbortSignal): Promise<readonly RemoteCollection[]> {
    return await this.#collections((await this.#user(signal)).albums, signal);
  }

  async receivedShares(signal?: AbortSignal): Promise<readonly RemoteShare[]> {
    const { receivedShares } = await this.#user(signal);
    if (receivedShares === null) return [];
    const document = await this.#document(receivedShares, decodeReceivedShares, signal);
    return document.shares.map((share) => shareOf(share, share.ref ?? null));
  }

  async receivedShare(url: string, signal?: AbortSignal): Promise<RemoteShare> {
    return shareOf(await this.#document(url, decodeReceivedShare, signal), url);
  }

  async contact(url: string, signal?: AbortSignal): Promise<RemoteContact> {
    const document = await this.#document(url, decodeContact, signal);
    return {
      emailAddress: document.primaryEmailAddress,
      firstName: document.firstName ?? null,
      lastName: document.lastName ?? null,
    };
  }

  /** Files that anyone with the link may read. */
  async publicLinks(signal?: AbortSignal): Promise<readonly RemoteFile[]> {
    const { publicLinks } = await this.#user(signal);
    const entries = publicLinks === null ? [] : await this.#listed(publicLinks, signal);
    return entries.filter((entry) => entry.kind === 'file');
  }

  /** A file's public link; null where it has none. */
  async publicLink(file: ResourceUrl, signal?: AbortSignal): Promise<string | null> {
    return (await this.#document(file, decodeFile, signal)).publicLink?.url ?? null;
  }

  /** @returns the link now in effect; null after it was removed */
  async setPublicLink(file: ResourceUrl, state: 'on' | 'off', signal?: AbortSignal): Promise<string | null> {
    const body = encodeFileUpdate({ publicLink: { enabled: state === 'on' } });
    const request = { method: 'PUT', url: file, repetition: 'always', body, mayReaddress: true, signal } as const;
    const link = await this.#requests.send(request, async ({ answer }) => {
      const bytes = await answer.bytes(DOCUMENT_BYTES_MAX);
      // The vendor's documentation mentions no body; the service sends one (docs/service.md 13.6).
      return bytes.byteLength === 0 ? undefined : (decodeFile(bytes).publicLink?.url ?? null);
    });
    return link === undefined ? await this.publicLink(file, signal) : link;
  }

  /** Image metadata; null for a file that is not an image. */
  async image(file: ResourceUrl, signal?: AbortSignal): Promise<RemoteImage | null> {
    const { image } = await this.#document(file, decodeFile, signal);
    if (image === undefined) return null;
    return { widthPixels: image.width ?? null, heightPixels: image.height ?? null, rotation: image.rotation ?? 0 };
  }

  /**
   * A JPEG image in another form. Read the answer to its end, or leave the loop: both free the connection.
   * @throws ApiError 406 for what cannot be transcoded
   */
  async transcodedImage(image: ResourceUrl | VersionUrl, form: ImageForm, signal?: AbortSignal): Promise<Answer> {
    const square = form.square === undefined ? '' : `; sq=(${form.square ? 1 : 0})`;
    const turns = form.quarterTurns === undefined ? '' : `; r=(${form.quarterTurns})`;
    const headers = { Accept: `image/jpeg; pxmax=${form.widthMax}; pymax=${form.heightMax}${square}${turns}` };
    const request = { method: 'GET', url: `${image}/data`, repetition: 'always', headers, signal } as const;
    return await this.#requests.send(request, async ({ answer }) => answer);
  }

  async #collections(
    container: ResourceUrl | null,
    signal: AbortSignal | undefined,
  ): Promise<readonly RemoteCollection[]> {
    const entries = container === null ? [] : await this.#listed(container, signal);
    return entries.flatMap((entry) => (entry.kind === 'folder' ? [{ url: entry.url, name: entry.name }] : []));
  }

  /** The service returns account collections whole by default (docs/service.md 4.2); pages are followed if it sends them. */
  async #listed(container: ResourceUrl, signal: AbortSignal | undefined): Promise<readonly RemoteEntry[]> {
    const entries = new Map<ResourceUrl, RemoteEntry>();
    for (let start = 0; ; ) {
      const url = `${container}/contents${start === 0 ? '' : `?start=${start}`}`;
      const document = await this.#document(url, decodeCollectionContents, signal);
      const before = entries.size;
      const page = entriesOf(document);
      for (const entry of page) entries.set(entry.url, entry);
      if (document.hasMore !== true || entries.size === before) return [...entries.values()];
      start += page.length;
    }
  }

  async #document<T>(url: string, decode: DecodeDocument<T>, signal: AbortSignal | undefined): Promise<T> {
    return await readDocument(this.#requests, { url, decode, signal, bytesMax: COLLECTION_BYTES_MAX });
  }
}

const COLLECTION_BYTES_MAX = 8 * 1024 * 1024;

function shareOf(document: ReceivedShareDocument, url: string | null): RemoteShare {
  return {
    url,
    name: document.displayName,
    folder: document.sharedFolder as ResourceUrl,
    timeReceivedMs: document.timeReceived ?? null,
    mayRead: document.permissions.readAllowed,
    mayWrite: document.permissions.writeAllowed,
    owner: document.owner ?? null,
  };
}

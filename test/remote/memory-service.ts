import { ApiError } from '../../src/base/errors.ts';
import type {
  ListingPage,
  NewestVersion,
  RemoteEntry,
  RemoteResource,
  RemoteVersion,
  UploadProgress,
} from '../../src/base/resources.ts';
import type { Extent, NodeKind, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type {
  Copies,
  IncomingData,
  RemoteService,
  RemoteUser,
  RequestBody,
  Trash,
  Uploads,
} from '../../src/remote/contract.ts';

interface Version {
  readonly url: VersionUrl;
  bytes: Buffer;
  complete: boolean;
  readonly modifiedMs: number;
}

interface Resource {
  readonly url: ResourceUrl;
  readonly kind: 'file' | 'folder';
  name: string;
  parent: ResourceUrl | null;
  readonly mediaType: string;
  /** Newest first. */
  readonly versions: Version[];
}

const HOME = 'memory:home' as ResourceUrl;
const TRASH = 'memory:trash' as ResourceUrl;

/** A second service behind the contract: everything in this process, without HTTP, public links and pictures. */
export class MemoryService implements RemoteService, Uploads {
  readonly signInRequired = false;
  readonly requestCounts = { sent: 0, repeated: 0 };
  readonly links = null;
  readonly pictures = null;
  readonly downloads = null;
  readonly wholeAccount = null;
  readonly uploads: Uploads | null;
  readonly trash: Trash | null;
  readonly copies: Copies | null;
  readonly #resources = new Map<string, Resource>();
  #next = 1;
  #nowMs = 1_700_000_000_000;

  constructor(lacks: readonly ('uploads' | 'trash' | 'copies')[] = []) {
    this.uploads = lacks.includes('uploads') ? null : this;
    this.copies = lacks.includes('copies') ? null : { copyFile: (file, to, name) => this.#copy(file, to, name) };
    this.trash = lacks.includes('trash')
      ? null
      : { trashFolder: async () => TRASH, moveToTrash: (url, _kind, name) => this.#trashed(url, name) };
    for (const url of [HOME, TRASH])
      this.#resources.set(url, { url, kind: 'folder', name: '', parent: null, mediaType: '', versions: [] });
  }

  async user(): Promise<RemoteUser> {
    return { url: 'memory:user', username: 'memory', quota: null, home: HOME };
  }

  async signIn(): Promise<string> {
    return 'memory:token';
  }

  useSignIn(): void {}

  async close(): Promise<void> {}

  async list(folder: ResourceUrl): Promise<readonly RemoteEntry[]> {
    this.#get(folder);
    return [...this.#resources.values()].filter(({ parent }) => parent === folder).map(entryOf);
  }

  async listPage(folder: ResourceUrl, start: number): Promise<ListingPage> {
    return { entries: (await this.list(folder)).slice(start), hasMore: false, serverTimeMs: this.#nowMs };
  }

  async resource(url: ResourceUrl): Promise<RemoteResource | null> {
    const found = this.#resources.get(url);
    return found === undefined ? null : { ...entryOf(found), parent: found.parent };
  }

  async versions(file: ResourceUrl): Promise<readonly RemoteVersion[]> {
    return this.#get(file).versions.map(({ url, bytes, complete, modifiedMs }) => ({
      ...{ url, complete, sizeBytes: bytes.byteLength, lastModifiedMs: modifiedMs, mediaType: null },
    }));
  }

  async newestVersion(file: ResourceUrl): Promise<NewestVersion | null> {
    if (!this.#resources.has(file)) return null;
    const [version, ...older] = (await this.versions(file)).filter(({ complete }) => complete);
    return version === undefined ? null : { ...version, isFirst: older.length === 0 };
  }

  async versionOfLength(file: ResourceUrl, sizeBytes: number): Promise<RemoteVersion | null> {
    const all = await this.versions(file);
    return all.find((version) => version.complete && version.sizeBytes === sizeBytes) ?? null;
  }

  async readVersion(version: VersionUrl, extent: Extent): Promise<IncomingData> {
    const { bytes } = this.#version(version);
    return { extent, chunks: chunksOf(bytes.subarray(extent.start, extent.end)) };
  }

  async createFolder(parent: ResourceUrl, name: string): Promise<ResourceUrl> {
    return this.#make('folder', parent, name, '');
  }

  async createFile(parent: ResourceUrl, name: string, mediaType: string): Promise<ResourceUrl> {
    return this.#make('file', parent, name, mediaType);
  }

  async relocate(url: ResourceUrl, _kind: NodeKind, parent: ResourceUrl, name: string): Promise<ResourceUrl> {
    Object.assign(this.#get(url), { parent: this.#get(parent).url, name });
    return url;
  }

  async deleteForever(url: ResourceUrl): Promise<'deleted' | null> {
    return this.#resources.delete(url) ? 'deleted' : null;
  }

  async putFileData(file: ResourceUrl, body: RequestBody): Promise<number | null> {
    const bytes = await bytesOf(body);
    this.#addVersion(this.#get(file), bytes, true);
    return this.#nowMs;
  }

  async createVersion(file: ResourceUrl): Promise<VersionUrl> {
    return this.#addVersion(this.#get(file), Buffer.alloc(0), false).url;
  }

  async putVersionData(url: VersionUrl, offset: number, body: RequestBody): Promise<UploadProgress> {
    const version = this.#version(url);
    if (offset !== version.bytes.byteLength) throw new ApiError(416, `PUT ${url}`, 'not the end of what is here');
    version.bytes = Buffer.concat([version.bytes, await bytesOf(body)]);
    version.complete = true;
    return { complete: true, receivedBytes: version.bytes.byteLength };
  }

  async versionProgress(url: VersionUrl): Promise<UploadProgress | null> {
    const { complete, bytes } = this.#version(url);
    return { complete, receivedBytes: bytes.byteLength };
  }

  async #copy(source: ResourceUrl, parent: ResourceUrl, name: string): Promise<ResourceUrl> {
    const { mediaType, versions } = this.#get(source);
    const copy = this.#make('file', parent, name, mediaType);
    const newest = versions.find(({ complete }) => complete);
    if (newest !== undefined) this.#addVersion(this.#get(copy), newest.bytes, true);
    return copy;
  }

  async #trashed(url: ResourceUrl, name: string): Promise<'deleted' | null> {
    if (!this.#resources.has(url)) return null;
    await this.relocate(url, 'file', TRASH, name);
    return 'deleted';
  }

  #make(kind: 'file' | 'folder', parent: ResourceUrl, name: string, mediaType: string): ResourceUrl {
    const url = `memory:${kind}/${this.#next++}` as ResourceUrl;
    this.#resources.set(url, { url, kind, name, parent: this.#get(parent).url, mediaType, versions: [] });
    return url;
  }

  #addVersion(resource: Resource, bytes: Buffer, complete: boolean): Version {
    this.#nowMs += 1_000;
    const url = `${resource.url}/version/${this.#next++}` as VersionUrl;
    const version = { url, bytes, complete, modifiedMs: this.#nowMs };
    resource.versions.unshift(version);
    return version;
  }

  #get(url: ResourceUrl): Resource {
    const found = this.#resources.get(url);
    if (found === undefined) throw new ApiError(404, `GET ${url}`, 'no such resource');
    return found;
  }

  #version(url: VersionUrl): Version {
    const { versions } = this.#get(url.replace(/\/version\/.*$/, '') as ResourceUrl);
    const found = versions.find((version) => version.url === url);
    if (found === undefined) throw new ApiError(404, `GET ${url}`, 'no such version');
    return found;
  }
}

function entryOf({ url, kind, name, mediaType, versions }: Resource): RemoteEntry {
  if (kind === 'folder') return { kind, url, name };
  const newest = versions.find(({ complete }) => complete);
  return {
    ...{ kind, url, name, mediaType, presentOnServer: newest !== undefined },
    sizeBytes: newest?.bytes.byteLength ?? null,
    lastModifiedMs: newest?.modifiedMs ?? null,
  };
}

async function bytesOf(body: RequestBody): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of body.chunks()) chunks.push(Buffer.from(chunk));
  return Buffer.concat(chunks);
}

async function* chunksOf(bytes: Buffer): AsyncIterable<Uint8Array> {
  yield Buffer.from(bytes);
}

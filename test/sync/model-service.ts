import { readFileSync } from 'node:fs';
import { ApiError, TransportError } from '../../src/base/errors.ts';
import type {
  BodyPiece,
  RemoteEntry,
  RemoteResource,
  RemoteVersion,
  UploadProgress,
} from '../../src/base/resources.ts';
import type { NodeKind, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { RemoteChanges, UploadService } from '../../src/sync/remote-changes.ts';

export const MODEL_ROOT = 'm:folder/root' as ResourceUrl;
export const MODEL_TRASH = 'm:folder/trash' as ResourceUrl;

interface ModelVersion {
  url: VersionUrl;
  bytes: Buffer;
  complete: boolean;
  lastModifiedMs: number;
  /** Whether its URL reached whoever asked for it: nobody may write to one that did not. */
  told: boolean;
}

export interface ModelResource {
  readonly url: ResourceUrl;
  readonly kind: 'folder' | 'file';
  name: string;
  parent: ResourceUrl | null;
  mediaType: string;
  /** Newest first. */
  versions: ModelVersion[];
}

/** What becomes of one request. `cut`: only so many bytes of the body arrive. */
export type Fate =
  | { readonly type: 'answer' }
  | { readonly type: 'lose-request' }
  | { readonly type: 'lose-reply' }
  | { readonly type: 'refuse'; readonly status: number; readonly retryAfterMs?: number }
  | { readonly type: 'cut'; readonly afterBytes: number };

export interface PendingRequest {
  readonly name: string;
  settle(fate: Fate): void;
}

/**
 * The service as its interface describes it (docs/service.md 5 to 7), in memory: folders, files,
 * versions, the trash. Each request waits until the test says what becomes of it (`pending`), unless `auto` says it for all.
 * What no client may do is noted in `violations`.
 */
export class ModelService implements RemoteChanges, UploadService {
  readonly resources = new Map<ResourceUrl, ModelResource>();
  readonly pending: PendingRequest[] = [];
  readonly violations: string[] = [];
  readonly requests: string[] = [];
  /** Bodies that arrived, bytes. */
  receivedBytes = 0;
  auto: ((name: string) => Fate) | null = null;
  /** "Up to five historical versions are kept" (docs/service.md 13.7). */
  keptVersions = 5;
  /** Names are unique in a folder; otherwise repeated ones are allowed. */
  uniqueNames = true;
  foldsCase = false;
  /** Whether it copies files, and how many bytes of each copy are missing. */
  copies = true;
  copyLacks = 0;
  /** Files with a public link. */
  readonly publicFiles = new Set<ResourceUrl>();
  /** A history stands in the order in which its versions were begun; otherwise in that of their completion. */
  asBegun = false;
  /** What is moved gets a new address, and the old one is nobody's (docs/service.md 13.1). */
  newAddresses = false;
  nowMs = 1_700_000_000_000;
  #next = 1;
  readonly #movedTo = new Map<ResourceUrl, ResourceUrl>();

  constructor() {
    for (const url of [MODEL_ROOT, MODEL_TRASH]) {
      this.resources.set(url, { url, kind: 'folder', name: '', parent: null, mediaType: '', versions: [] });
    }
  }

  createFolder(parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl> {
    return this.#ask(`createFolder ${name}`, signal, () => this.#make('folder', parent, name, ''));
  }

  createFile(parent: ResourceUrl, name: string, mediaType: string, signal: AbortSignal): Promise<ResourceUrl> {
    return this.#ask(`createFile ${name}`, signal, () => this.#make('file', parent, name, mediaType));
  }

  copyFile(source: ResourceUrl, parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl> {
    return this.#ask(`copyFile ${name}`, signal, () => {
      if (!this.copies) throw new ApiError(405, 'model', 'copies no files');
      const newest = this.#get(source).versions.find((version) => version.complete);
      const url = this.#make('file', parent, name, this.#get(source).mediaType);
      if (newest !== undefined)
        this.addVersion(url, newest.bytes.subarray(0, Math.max(0, newest.bytes.byteLength - this.copyLacks)));
      return url;
    });
  }

  relocate(
    url: ResourceUrl,
    _kind: NodeKind,
    parent: ResourceUrl,
    name: string,
    signal: AbortSignal,
  ): Promise<ResourceUrl> {
    return this.#ask(`relocate ${url} ${name}`, signal, () => {
      const resource = this.#get(url);
      this.#get(parent);
      // A folder above may be deleted: what it contained stays, reachable by its address (docs/service.md).
      for (let at: ResourceUrl | null = parent; at !== null; at = this.resources.get(at)?.parent ?? null) {
        if (at === url) this.#refuse(403, `${name} into itself`);
      }
      if (this.isInTrash(parent)) this.violations.push(`${name} is moved into what was trashed`);
      this.#mustBeFree(parent, name, url);
      resource.parent = parent;
      resource.name = name;
      return this.newAddresses ? this.#readdress(resource) : url;
    });
  }

  moveToTrash(url: ResourceUrl, _kind: NodeKind, name: string, signal: AbortSignal): Promise<void> {
    return this.#ask(`trash ${name}`, signal, () => {
      const resource = this.resources.get(url);
      if (resource !== undefined) resource.parent = MODEL_TRASH;
    });
  }

  deleteForever(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<void> {
    return this.#ask(`delete ${url}`, signal, () => {
      if (kind === 'folder' && this.childrenOf(url).length > 0) this.violations.push(`contents of ${url} are orphaned`);
      this.resources.delete(url);
    });
  }

  trashFolder(): Promise<ResourceUrl> {
    return Promise.resolve(MODEL_TRASH);
  }

  list(folder: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteEntry[]> {
    return this.#ask(`list ${folder}`, signal, () => this.listing(folder));
  }

  resource(url: ResourceUrl, _kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null> {
    return this.#ask(`resource ${url}`, signal, () => this.look(url));
  }

  /** What becomes of the request with a known answer; it is not one of `requests`. */
  probe: () => Promise<void> = () => Promise.resolve();

  confirmed(): Promise<void> {
    return this.probe();
  }

  putFileData(
    file: ResourceUrl,
    body: readonly BodyPiece[],
    _mediaType: string,
    signal: AbortSignal,
  ): Promise<number | null> {
    return this.#ask(`putFileData ${file}`, signal, (cutAfter) => {
      this.#get(file);
      const bytes = bytesOf(body);
      this.receivedBytes += Math.min(bytes.byteLength, cutAfter ?? Number.POSITIVE_INFINITY);
      // An aborted upload leaves no version (docs/service.md 13.6).
      if (cutAfter === null) this.addVersion(file, bytes);
      return Math.floor(this.nowMs / 1000) * 1000; // a Date header
    });
  }

  createVersion(file: ResourceUrl, signal: AbortSignal): Promise<VersionUrl> {
    return this.#ask(
      `createVersion ${file}`,
      signal,
      () => {
        const resource = this.#get(file);
        const url = `${file}/version/${this.#next++}` as VersionUrl;
        resource.versions.unshift({
          url,
          bytes: Buffer.alloc(0),
          complete: false,
          lastModifiedMs: this.nowMs,
          told: false,
        });
        this.#forgetOld(resource);
        return url;
      },
      (url) => {
        const version = this.#version(url);
        if (version !== undefined) version.told = true;
      },
    );
  }

  putVersionData(
    url: VersionUrl,
    offset: number,
    body: readonly BodyPiece[],
    signal: AbortSignal,
  ): Promise<UploadProgress> {
    return this.#ask(`putVersionData from ${offset}`, signal, (cutAfter) => {
      const version = this.#version(url);
      if (version === undefined) this.#refuse(404, `no version ${url}`);
      if (!version.told) this.violations.push(`${url} is written to by somebody who was never told of it`);
      if (version.complete) this.#refuse(403, `${url} is complete`);
      if (offset !== version.bytes.byteLength) this.#refuse(416, `${url} holds ${version.bytes.byteLength}`);
      const bytes = bytesOf(body);
      const arrived = bytes.subarray(0, cutAfter ?? bytes.byteLength);
      this.receivedBytes += arrived.byteLength;
      version.bytes = Buffer.concat([version.bytes, arrived]);
      version.complete = arrived.byteLength === bytes.byteLength;
      version.lastModifiedMs = ++this.nowMs;
      if (version.complete) this.#promote(url);
      return { complete: version.complete, receivedBytes: version.bytes.byteLength };
    });
  }

  versionProgress(url: VersionUrl, signal: AbortSignal): Promise<UploadProgress | null> {
    return this.#ask('versionProgress', signal, () => {
      const version = this.#version(url);
      return version === undefined ? null : { complete: version.complete, receivedBytes: version.bytes.byteLength };
    });
  }

  versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]> {
    return this.#ask(`versions ${file}`, signal, () => this.history(file));
  }

  // What tests look at, and what another client does.

  history(file: ResourceUrl): readonly RemoteVersion[] {
    return this.#get(file).versions.map((version) => ({
      url: version.url,
      sizeBytes: version.bytes.byteLength,
      complete: version.complete,
      lastModifiedMs: version.lastModifiedMs,
      mediaType: null,
    }));
  }

  listing(folder: ResourceUrl): readonly RemoteEntry[] {
    this.#get(folder);
    return this.childrenOf(folder).map(entryOf);
  }

  childrenOf(folder: ResourceUrl): ModelResource[] {
    return [...this.resources.values()].filter((resource) => resource.parent === folder);
  }

  *below(folder: ResourceUrl): Iterable<ModelResource> {
    for (const child of this.childrenOf(folder)) {
      yield child;
      if (child.kind === 'folder') yield* this.below(child.url);
    }
  }

  /** Whether a folder has the name, or one that is the same to the service. */
  isTaken(folder: ResourceUrl, name: string): boolean {
    return this.childrenOf(folder).some((child) => this.#fold(child.name) === this.#fold(name));
  }

  look(url: ResourceUrl): RemoteResource | null {
    const found = this.resources.get(url);
    return found === undefined
      ? null
      : { ...entryOf(found), parent: found.parent, isPublic: this.publicFiles.has(url) };
  }

  /** The address that a resource has now. */
  now(url: ResourceUrl): ResourceUrl {
    const next = this.#movedTo.get(url);
    return next === undefined ? url : this.now(next);
  }

  add(kind: 'folder' | 'file', parent: ResourceUrl, name: string, bytes?: Uint8Array): ResourceUrl {
    const url = this.#make(kind, parent, name, '');
    if (bytes !== undefined) this.addVersion(url, bytes);
    return url;
  }

  addVersion(file: ResourceUrl, bytes: Uint8Array, lastModifiedMs = ++this.nowMs): VersionUrl {
    const resource = this.#get(file);
    const url = `${file}/version/${this.#next++}` as VersionUrl;
    resource.versions.unshift({ url, bytes: Buffer.from(bytes), complete: true, lastModifiedMs, told: false });
    this.#forgetOld(resource);
    return url;
  }

  bytesOf(file: ResourceUrl): Buffer | null {
    return this.resources.get(this.now(file))?.versions.find((version) => version.complete)?.bytes ?? null;
  }

  bytesOfVersion(url: VersionUrl): Buffer | null {
    const file = url.slice(0, url.indexOf('/version/'));
    const version = this.#version(url.replace(file, this.now(file as ResourceUrl)) as VersionUrl);
    return version?.complete ? version.bytes : null;
  }

  /** The bytes of every complete version, in the trash or not. */
  *allBytes(): Iterable<string> {
    for (const { versions } of this.resources.values()) {
      for (const version of versions) if (version.complete) yield version.bytes.toString();
    }
  }

  isInTrash(url: ResourceUrl): boolean {
    for (let at: ResourceUrl | null = url; at !== null; at = this.resources.get(at)?.parent ?? null) {
      if (at === MODEL_TRASH) return true;
    }
    return false;
  }

  /**
   * `path → bytes` of everything below the root; a folder is `null`, a file without bytes is `'stub'`. Of several resources with one name the first
   * by address has it, the others have numbers, as on every machine (S-names-6). No name here has an extension.
   */
  tree(): Map<string, string | null> {
    const found = new Map<string, string | null>();
    const walk = (folder: ResourceUrl, path: string): void => {
      const children = this.childrenOf(folder);
      const plain = new Set(children.map(({ name }) => name));
      const given = new Set<string>();
      const inOrder = (one: ModelResource, other: ModelResource): number =>
        one.name === other.name ? (one.url < other.url ? -1 : 1) : one.name < other.name ? -1 : 1;
      const shown = new Map<ModelResource, string>();
      for (const child of children.toSorted(inOrder)) {
        let { name } = child;
        for (let number = 2; given.has(name) || (name !== child.name && plain.has(name)); number++) {
          name = `${child.name} (${number})`;
        }
        given.add(name);
        shown.set(child, name);
      }
      for (const child of children) {
        const at = `${path}/${shown.get(child)}`;
        found.set(at, child.kind === 'folder' ? null : (this.bytesOf(child.url)?.toString() ?? 'stub'));
        if (child.kind === 'folder') walk(child.url, at);
      }
    };
    walk(MODEL_ROOT, '');
    return found;
  }

  /** Settles requests that wait, all the same way. */
  settleAll(fate: Fate): void {
    for (const request of this.pending.splice(0)) request.settle(fate);
  }

  #ask<T>(
    name: string,
    signal: AbortSignal,
    act: (cutAfter: number | null) => T,
    heard: (value: T) => void = () => {},
  ): Promise<T> {
    this.requests.push(name);
    return new Promise<T>((resolve, reject) => {
      signal.throwIfAborted();
      const settle = (fate: Fate): void => {
        signal.removeEventListener('abort', aborted);
        try {
          switch (fate.type) {
            case 'answer': {
              const value = act(null);
              heard(value);
              resolve(value);
              return;
            }
            case 'lose-request':
              reject(new TransportError(`${name}: the request was lost`));
              return;
            case 'lose-reply':
              try {
                act(null);
              } catch {
                // A refusal that nobody heard.
              }
              reject(new TransportError(`${name}: the reply was lost`));
              return;
            case 'refuse':
              reject(new ApiError(fate.status, name, `refused ${name}`, { retryAfterMs: fate.retryAfterMs ?? null }));
              return;
            case 'cut':
              try {
                act(fate.afterBytes);
              } catch {
                // Likewise.
              }
              reject(new TransportError(`${name}: cut`));
              return;
            default:
              fate satisfies never;
          }
        } catch (error) {
          reject(error as Error);
        }
      };
      const request: PendingRequest = { name, settle };
      const aborted = (): void => {
        const at = this.pending.indexOf(request);
        if (at >= 0) this.pending.splice(at, 1);
        reject(signal.reason as Error);
      };
      if (this.auto !== null) {
        settle(this.auto(name));
        return;
      }
      signal.addEventListener('abort', aborted, { once: true });
      this.pending.push(request);
    });
  }

  #readdress(resource: ModelResource): ResourceUrl {
    const url = `m:${resource.kind}/${this.#next++}` as ResourceUrl;
    this.resources.delete(resource.url);
    this.#movedTo.set(resource.url, url);
    for (const version of resource.versions)
      version.url = `${url}/version/${version.url.split('/version/')[1]}` as VersionUrl;
    for (const child of this.childrenOf(resource.url)) child.parent = url;
    this.resources.set(url, Object.assign(resource, { url }));
    return url;
  }

  #make(kind: 'folder' | 'file', parent: ResourceUrl, name: string, mediaType: string): ResourceUrl {
    this.#get(parent);
    if (this.isInTrash(parent)) this.violations.push(`${name} is made in what was trashed`);
    this.#mustBeFree(parent, name, null);
    const url = `m:${kind}/${this.#next++}` as ResourceUrl;
    this.resources.set(url, { url, kind, name, parent, mediaType, versions: [] });
    return url;
  }

  #mustBeFree(parent: ResourceUrl, name: string, self: ResourceUrl | null): void {
    if (!this.uniqueNames) return;
    const holder = this.childrenOf(parent).find((child) => this.#fold(child.name) === this.#fold(name));
    if (holder === undefined || (holder.url === self && holder.name === name)) return;
    if (holder.url === self && !this.foldsCase) return;
    this.#refuse(409, `${name} is taken${holder.name === name ? '' : ' in another case'}`);
  }

  #fold(name: string): string {
    return this.foldsCase ? name.toLowerCase() : name;
  }

  #refuse(status: number, message: string): never {
    if (status === 403 || status === 409) this.violations.push(message);
    throw new ApiError(status, 'model', message);
  }

  #get(url: ResourceUrl): ModelResource {
    const resource = this.resources.get(url);
    if (resource === undefined) throw new ApiError(404, 'model', `no ${url}`);
    return resource;
  }

  #version(url: VersionUrl): ModelVersion | undefined {
    const file = url.slice(0, url.indexOf('/version/')) as ResourceUrl;
    return this.resources.get(file)?.versions.find((version) => version.url === url);
  }

  /** "Newest first": a version is as new as its completion, or as its beginning. */
  #promote(url: VersionUrl): void {
    if (this.asBegun) return;
    const resource = this.#get(url.slice(0, url.indexOf('/version/')) as ResourceUrl);
    const at = resource.versions.findIndex((version) => version.url === url);
    const [version] = resource.versions.splice(at, 1);
    if (version !== undefined) resource.versions.unshift(version);
  }

  #forgetOld(resource: ModelResource): void {
    const complete = resource.versions.filter((version) => version.complete);
    const old = new Set(complete.slice(this.keptVersions + 1));
    resource.versions = resource.versions.filter((version) => !old.has(version));
  }
}

function entryOf(resource: ModelResource): RemoteEntry {
  const { url, name } = resource;
  if (resource.kind === 'folder') return { kind: 'folder', url, name };
  const newest = resource.versions.find((version) => version.complete);
  return {
    kind: 'file',
    url,
    name,
    sizeBytes: newest?.bytes.byteLength ?? null,
    lastModifiedMs: newest?.lastModifiedMs ?? null,
    mediaType: resource.mediaType,
    presentOnServer: newest !== undefined,
  };
}

function bytesOf(body: readonly BodyPiece[]): Buffer {
  return Buffer.concat(
    body.map((piece) => {
      if (piece.kind === 'bytes') return Buffer.from(piece.bytes);
      if (piece.kind === 'zeros') return Buffer.alloc(piece.length);
      return readFileSync(piece.path).subarray(piece.offset, piece.offset + piece.length);
    }),
  );
}

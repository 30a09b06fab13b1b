import { FsError } from '../base/errors.ts';
import type { RemoteVersion } from '../base/resources.ts';
import type { Inode, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { RequestRetry } from '../content/request-retry.ts';
import type { VersionSource } from '../content/version-source.ts';
import type { Answer } from '../kernel/binding.ts';
import type { NodeRecord, RemoteFacet } from '../store/tables.ts';
import { otherSide } from '../tree/conflict-side.ts';
import type { Tree } from '../tree/tree.ts';
import type { PinnedSet } from './pinned-set.ts';
import { presenceBelow, presenceOf } from './presence.ts';
import type { RefusedReads } from './refused-reads.ts';
import type { ThumbnailsAhead } from './thumbnails-ahead.ts';

/** Requests about public links. Implemented by `transfer/` across the threads. */
export interface PublicLinks {
  /** A file's public link; null where it has none. */
  publicLink(file: ResourceUrl, signal: AbortSignal): Promise<string | null>;
  /** @returns the link now in force; null after its removal */
  setPublicLink(file: ResourceUrl, state: 'on' | 'off', signal: AbortSignal): Promise<string | null>;
}

/** Small forms of pictures, made by the service. Implemented by `transfer/` across the threads. */
export interface Thumbnails {
  /** A JPEG of at most 64 KiB; null if the service makes none of this file. */
  thumbnail(picture: ResourceUrl | VersionUrl, signal: AbortSignal): Promise<Uint8Array | null>;
}

export interface CloudAttributesDeps {
  readonly tree: Tree;
  readonly contents: Pick<Contents, 'record' | 'presence'>;
  readonly source: Pick<VersionSource, 'newestVersion'>;
  readonly links: PublicLinks;
  readonly thumbnails: Thumbnails;
  /** For the thumbnail cache of a desktop; null without one. */
  readonly desktop: { readonly ahead: ThumbnailsAhead; readonly refused: RefusedReads } | null;
  readonly retry: RequestRetry;
  /** The state of one node as shown to users (`SyncLoop.stateOf`). */
  readonly stateOf: (ino: Inode) => string | Promise<string>;
  readonly pins: Pick<PinnedSet, 'kindOf'>;
}

const PREFIX = 'user.cfs.';
const OFF = 'off';

/**
 * `user.cfs.*`: the mount's data about a file, for scripts. Readable by name but not listed: `cp -a`, `rsync -X` and `tar --xattrs` then
 * neither copy these attributes nor fail on them (docs/adr/0009).
 */
export class CloudAttributes {
  readonly #deps: CloudAttributesDeps;

  constructor(deps: CloudAttributesDeps) {
    this.#deps = deps;
  }

  /** Whether an attribute belongs to this namespace. */
  static has(name: string): boolean {
    return name.startsWith(PREFIX);
  }

  /**
   * - `state`: `clean`, `local`, `pending`, `pushing` or `parked:REASON`; of a folder the worst below it; no request
   * - `pinned`: `itself`, `folder` (a folder above it is pinned) or `none`; no request
   * - `here`: `all`, `part` or `none` of the bytes of a file, or of the files below a folder, are on this machine; no request
   * - `conflict`: of a conflicted copy, the name of its file; of that file, the name of its first copy; no request
   * - `url`: of the file or folder on the service; no request
   * - `version`: the URL of a file's newest version; requested if unknown
   * - `media_type`: of a file, as reported by the service; requested if unknown
   * - `public_link`: the link, or `off`; always requested
   * - `thumbnail`: of a JPEG file whose bytes are not all here, a small JPEG of it; always requested
   *
   * @throws FsError ENODATA where there is none, also for a file that the service does not have yet · ETIMEDOUT
   */
  get(ino: Inode, name: string, signal: () => AbortSignal): Answer<Uint8Array> {
    const node = this.#node(ino);
    switch (name.slice(PREFIX.length)) {
      case 'state':
        return bytesOfState(this.#deps.stateOf(ino));
      case 'pinned':
        return Buffer.from(this.#deps.pins.kindOf(ino));
      case 'here':
        return this.#here(node, signal);
      case 'conflict':
        return bytesOf(otherSide(this.#deps.tree, node));
      case 'url':
        return bytesOf(node.remote?.resource);
      case 'media_type':
        return this.#mediaType(remoteFile(node), signal);
      case 'version':
        return this.#version(remoteFile(node), signal);
      case 'public_link':
        return this.#publicLink(remoteFile(node), signal);
      case 'thumbnail':
        return this.#thumbnail(node, remoteFile(node), signal);
      default:
        throw new FsError('ENODATA');
    }
  }

  /**
   * `public_link` takes `on` and `off`, and returns when the service has acknowledged it.
   *
   * @throws FsError EPERM for all others · EINVAL for another value · EBUSY for a file that the service does not have yet · ETIMEDOUT
   */
  async set(ino: Inode, name: string, value: Uint8Array, signal: () => AbortSignal): Promise<void> {
    if (name !== `${PREFIX}public_link`) throw new FsError('EPERM', `${name} is read-only`);
    const wanted = Buffer.from(value).toString().trim();
    if (wanted !== 'on' && wanted !== OFF) throw new FsError('EINVAL', 'the value must be on or off');
    const node = this.#node(ino);
    if (node.kind !== 'file') throw new FsError('EPERM', 'only files have public links');
    const resource = node.remote?.resource;
    // Not EAGAIN: setxattr(2) would say EOPNOTSUPP for it (fs/xattr.c of the kernel).
    if (resource === undefined) throw new FsError('EBUSY', 'the file is not uploaded yet');
    const { links, retry } = this.#deps;
    await retry.ask((stop) => links.setPublicLink(resource, wanted, stop), signal());
  }

  /** As setting `public_link` to `off`. @throws as `set` */
  remove(ino: Inode, name: string, signal: () => AbortSignal): Promise<void> {
    return this.set(ino, name, Buffer.from(OFF), signal);
  }

  #here(node: NodeRecord, signal: () => AbortSignal): Answer<Uint8Array> {
    if (node.kind !== 'folder') return bytesOf(presenceOf(this.#deps.contents, node));
    return presenceBelow(this.#deps, node.ino, signal()).then(bytesOf);
  }

  #version(remote: RemoteFacet, signal: () => AbortSignal): Answer<Uint8Array> {
    const known = remote.content === null ? null : this.#deps.contents.record(remote.content)?.version;
    return known != null ? Buffer.from(known) : this.#newest(remote, signal).then((newest) => bytesOf(newest?.url));
  }

  #mediaType(remote: RemoteFacet, signal: () => AbortSignal): Answer<Uint8Array> {
    if (remote.mediaType !== null) return Buffer.from(remote.mediaType);
    return this.#newest(remote, signal).then((newest) => bytesOf(newest?.mediaType));
  }

  #newest(remote: RemoteFacet, signal: () => AbortSignal): Promise<RemoteVersion | null> {
    const { source, retry } = this.#deps;
    return retry.ask((stop) => source.newestVersion(remote.resource, stop), signal());
  }

  async #publicLink(remote: RemoteFacet, signal: () => AbortSignal): Promise<Uint8Array> {
    const { links, retry } = this.#deps;
    const link = await retry.ask((stop) => links.publicLink(remote.resource, stop), signal());
    return Buffer.from(link ?? OFF);
  }

  /** Where the bytes are here, or were changed here, a program makes the thumbnail of them without a request. */
  #thumbnail(node: NodeRecord, remote: RemoteFacet, signal: () => AbortSignal): Answer<Uint8Array> {
    const { desktop, thumbnails, retry } = this.#deps;
    const source = this.#pictureOf(node, remote);
    if (source === null) throw new FsError('ENODATA');
    const ask = (): Promise<Uint8Array | null> => retry.ask((stop) => thumbnails.thumbnail(source, stop), signal());
    const sourceOf = (other: NodeRecord) =>
      other.kind === 'file' && other.remote !== null ? this.#pictureOf(other, other.remote) : null;
    const asked = desktop === null ? ask() : desktop.refused.watched(node.ino, desktop.ahead.read(node, sourceOf, ask));
    return asked.then((bytes) => {
      if (bytes === null) throw new FsError('ENODATA');
      return bytes;
    });
  }

  /** What to ask a small form of; null if it is no picture, or the bytes here are enough for a thumbnail. */
  #pictureOf(node: NodeRecord, remote: RemoteFacet): ResourceUrl | VersionUrl | null {
    const { contents } = this.#deps;
    const isChanged = node.local !== null && node.local.content !== remote.content;
    if (!isJpeg(remote) || isChanged || presenceOf(contents, node) === 'all') return null;
    const version = remote.content === null ? null : contents.record(remote.content)?.version;
    return version ?? remote.resource;
  }

  #node(ino: Inode): NodeRecord {
    const node = this.#deps.tree.node(ino);
    if (node === undefined) throw new FsError('ESTALE', 'this file no longer exists');
    return node;
  }
}

function remoteFile(node: NodeRecord): RemoteFacet {
  if (node.kind !== 'file' || node.remote === null) throw new FsError('ENODATA');
  return node.remote;
}

function isJpeg({ mediaType, name }: RemoteFacet): boolean {
  return mediaType === null ? /\.jpe?g$/i.test(name) : /^image\/jpe?g\b/i.test(mediaType);
}

function bytesOf(text: string | null | undefined): Uint8Array {
  if (text == null) throw new FsError('ENODATA');
  return Buffer.from(text);
}

function bytesOfState(state: string | Promise<string>): Answer<Uint8Array> {
  return typeof state === 'string' ? Buffer.from(state) : state.then((text) => Buffer.from(text));
}

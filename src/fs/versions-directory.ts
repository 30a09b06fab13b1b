import { createHash } from 'node:crypto';
import { unlessAborted } from '../base/abort.ts';
import { FsError } from '../base/errors.ts';
import { type HandleId, type Inode, ROOT_INODE, type Timespec, timespecOfMs } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { BlockReader } from '../content/block-reader.ts';
import type {
  Answer,
  Attributes,
  AttributesReply,
  DirectorySink,
  Entry,
  HandleRecord,
  NegativeEntry,
  OpContext,
  OpenDirectoryReply,
  OpenFlags,
  OpenReply,
  ReadReply,
} from '../kernel/binding.ts';
import type { LocalFacet, NodeRecord, RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { Freshness } from '../tree/freshness.ts';
import type { Tree } from '../tree/tree.ts';
import { fillDirectory } from './directory.ts';
import type { FileHistory, NamedVersion } from './file-history.ts';
import { FolderHandle } from './folder-handle.ts';
import { ReadOnlyOps } from './read-only-ops.ts';
import { type VersionContent, VersionReader } from './version-reader.ts';

export interface VersionsDirectoryDeps {
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly history: FileHistory;
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly reader: BlockReader;
}

/** Its name at the root of the mount. */
export const VERSIONS_NAME = '.versions';

/** The folder that mirrors node N has this number + N: nothing is stored, and the number is the same in every mount. */
const FIRST_MIRROR = 2 ** 51;
/** Inodes of versions start here and derive from their URLs. */
const FIRST_VERSION = 2 ** 52;
/** Handles, from the first one of the process: others than those of `Handles`, which are recorded beside them. */
const FIRST_FILE_HANDLE = 2 ** 30;
const FIRST_FOLDER_HANDLE = 2 ** 31;
export const VERSIONS_INODE = (FIRST_MIRROR + ROOT_INODE) as Inode;

/** How long the kernel may cache names in here: the tree sends no notification for the mirror. */
const NAME_MS = 1_000;
/** A version never changes. */
const VERSION_ATTRIBUTES_MS = 3_600_000;
const COOKIE_DOT = 1;
const COOKIE_DOT_DOT = 2;
const COOKIE_VERSION = 3;

/** Whether an inode belongs to `.versions/`; inodes of the tree count from 1. */
export function isInVersions(ino: Inode): boolean {
  return ino >= FIRST_MIRROR;
}

type ShownNode = NodeRecord & { readonly local: LocalFacet };
type ShownFile = ShownNode & { readonly remote: RemoteFacet };

interface LiveVersion {
  readonly named: NamedVersion;
  readonly file: ShownFile;
  lookups: number;
}

type OpenFolder =
  | { readonly kind: 'mirror'; readonly folder: FolderHandle }
  | { readonly kind: 'history'; readonly file: ShownFile; readonly versions: readonly NamedVersion[] }
  /** Opened in an earlier process. */
  | { readonly kind: 'unread history'; readonly file: ShownFile };

/**
 * `.versions/`: a read-only mirror of the tree, where each file is a folder of its versions on the service. Nothing of it is stored: its
 * folders are the tree's nodes under other numbers, and its files are read through the block cache.
 */
export class VersionsDirectory extends ReadOnlyOps {
  readonly #tree: Tree;
  readonly #freshness: Freshness;
  readonly #history: FileHistory;
  readonly #reader: VersionReader;
  readonly #store: StoreWriter;
  /** Versions that the kernel refers to, by inode. */
  readonly #live = new Map<Inode, LiveVersion>();
  readonly #folders = new Map<HandleId, OpenFolder>();
  #nextFolder = 1;
  /** Where a successor of this process finds the handles; null without one. */
  #record: HandleRecord | null = null;
  /** Versions with handles of earlier processes, by inode. */
  readonly #resumed = new Map<Inode, VersionContent>();

  constructor(deps: VersionsDirectoryDeps) {
    super();
    this.#tree = deps.tree;
    this.#freshness = deps.freshness;
    this.#history = deps.history;
    this.#reader = new VersionReader(deps);
    this.#store = deps.store;
  }

  /** Records all handles from now on, and takes over those of earlier processes. */
  recordIn(record: HandleRecord): void {
    this.#record = record;
    this.#nextFolder = record.firstHandle + FIRST_FOLDER_HANDLE;
    this.#reader.beginHandlesAt(record.firstHandle + FIRST_FILE_HANDLE);
    for (const { handle, ino, kind, content } of [...record.inherited()]) {
      if (!isInVersions(ino)) continue;
      if (kind === 'folder') this.#resumeFolder(handle, ino);
      else if (content !== null && content !== 'older') {
        const version = this.#reader.resume(handle, content);
        if (version !== null) this.#resumed.set(ino, version);
      }
    }
  }

  #resumeFolder(handle: HandleId, ino: Inode): void {
    const node = this.#tree.node((ino - FIRST_MIRROR) as Inode);
    if (node === undefined || !isShown(node)) return;
    this.#folders.set(
      handle,
      isFile(node) ? { kind: 'unread history', file: node } : { kind: 'mirror', folder: new FolderHandle(node.ino) },
    );
  }

  reopened(handle: HandleId): OpenReply | OpenDirectoryReply | null {
    if (this.#folders.has(handle)) return { handle, cacheListing: false, keepListing: false };
    return this.#reader.has(handle) ? { handle, keepCache: true, directIo: false } : null;
  }

  /** The entry of `.versions` itself. */
  rootEntry(): Entry {
    return this.#mirrorEntry(this.#shown(VERSIONS_INODE));
  }

  lookup(parent: Inode, name: string, ctx: OpContext): Answer<Entry | NegativeEntry> {
    const node = this.#shown(parent);
    if (isFile(node)) return this.#versionCalled(node, name, ctx);
    return this.#afterListing(node.ino, ctx, () => {
      const child = this.#tree.child(node.ino, name);
      if (child === undefined || !isShown(child)) return { attributes: null, entryTimeoutMs: NAME_MS };
      return this.#mirrorEntry(child);
    });
  }

  forget(ino: Inode, count: number): void {
    const live = this.#live.get(ino);
    if (live === undefined) return;
    live.lookups -= count;
    if (live.lookups <= 0) this.#live.delete(ino);
  }

  getattr(ino: Inode): Answer<AttributesReply> {
    if (ino < FIRST_VERSION) return { attributes: mirrorAttributes(this.#shown(ino)), attributeTimeoutMs: NAME_MS };
    const reply = ({ named, file }: Pick<LiveVersion, 'named' | 'file'>): AttributesReply => ({
      attributes: versionAttributes(ino, named, file),
      attributeTimeoutMs: VERSION_ATTRIBUTES_MS,
    });
    const resumed = this.#live.has(ino) ? undefined : this.#resumed.get(ino);
    return resumed === undefined ? reply(this.#liveVersion(ino)) : this.#revived(ino, resumed).then(reply);
  }

  readlink(): never {
    throw new FsError('EINVAL');
  }

  open(ino: Inode, flags: OpenFlags): Answer<OpenReply> {
    if (ino < FIRST_VERSION) throw new FsError('EISDIR');
    if (flags.access !== 'read' || flags.truncate) throw new FsError('EROFS', 'versions are read-only');
    const { named, file } = this.#liveVersion(ino);
    const { url, sizeBytes } = named.version;
    const { handle, content } = this.#reader.open(url, file.remote.resource, sizeBytes);
    this.#record?.opened({
      handle,
      ino,
      kind: 'file',
      flags: flags.raw,
      content,
      hasChanged: false,
      isUnstored: false,
    });
    return { handle, keepCache: true, directIo: false };
  }

  read(_ino: Inode, handle: HandleId, offset: number, length: number, ctx: OpContext): Answer<ReadReply> {
    return this.#reader.read(handle, { start: offset, end: offset + length }, ctx);
  }

  flush(): void {}

  release(_ino: Inode, handle: HandleId): void {
    this.#reader.close(handle);
    this.#record?.closed(handle);
  }

  fsync(): void {}

  fsyncdir(): void {}

  lseek(_ino: Inode, handle: HandleId, offset: number, whence: 'data' | 'hole'): Answer<number> {
    const sizeBytes = this.#reader.sizeOf(handle);
    if (offset < 0 || offset >= sizeBytes) throw new FsError('ENXIO');
    return whence === 'data' ? offset : sizeBytes;
  }

  opendir(ino: Inode, ctx: OpContext): Answer<OpenDirectoryReply> {
    const node = this.#shown(ino);
    if (isFile(node)) {
      const versions = this.#history.versions(node.ino, node.remote);
      return unlessAborted(versions, ctx.signal).then((known) =>
        this.#addFolder(ino, { kind: 'history', file: node, versions: known }),
      );
    }
    return this.#afterListing(node.ino, ctx, () =>
      this.#addFolder(ino, { kind: 'mirror', folder: new FolderHandle(node.ino) }),
    );
  }

  readdir(ino: Inode, handle: HandleId, cookie: number, sink: DirectorySink): Answer<void> {
    const open = this.#folders.get(handle);
    if (open === undefined) throw new FsError('EBADF');
    if (open.kind === 'unread history') {
      const { file } = open;
      return this.#history.versions(file.ino, file.remote).then((versions) => {
        this.#folders.set(handle, { kind: 'history', file, versions });
        return this.readdir(ino, handle, cookie, sink);
      });
    }
    if (open.kind === 'history') this.#fillHistory(open.file, open.versions, cookie, sink);
    else this.#fillMirror(open.folder, cookie, sink);
  }

  releasedir(_ino: Inode, handle: HandleId): void {
    this.#folders.delete(handle);
    this.#record?.closed(handle);
  }

  getxattr(ino: Inode, name: string): Answer<Uint8Array> {
    const { version } = ino < FIRST_VERSION ? { version: null } : this.#liveVersion(ino).named;
    const value =
      name === 'user.cfs.version' ? version?.url : name === 'user.cfs.media_type' ? version?.mediaType : null;
    if (value == null) throw new FsError('ENODATA');
    return Buffer.from(value);
  }

  listxattr(): readonly string[] {
    return [];
  }

  #fillMirror(folder: FolderHandle, cookie: number, sink: DirectorySink): void {
    const tree = this.#tree;
    const shown = {
      node: (ino: Inode) => tree.node(ino),
      *children(parent: Inode, after?: string) {
        for (const child of tree.children(parent, after)) if (isShown(child.node)) yield child;
      },
    };
    const view = {
      local: (ino: Inode) => this.#shown(mirrorOf(ino)).local,
      listed: (node: NodeRecord) => this.#mirrorEntry(node as ShownNode),
    };
    const mirrored: DirectorySink = {
      wantsEntries: sink.wantsEntries,
      add: (name, ino, _kind, next, entry) => sink.add(name, mirrorOf(ino), 'folder', next, entry),
    };
    fillDirectory({ tree: shown, view }, folder, cookie, mirrored);
  }

  #fillHistory(file: ShownFile, versions: readonly NamedVersion[], cookie: number, sink: DirectorySink): void {
    if (cookie < COOKIE_DOT && !sink.add('.', mirrorOf(file.ino), 'folder', COOKIE_DOT, null)) return;
    const above = mirrorOf(file.local.parent);
    if (cookie < COOKIE_DOT_DOT && !sink.add('..', above, 'folder', COOKIE_DOT_DOT, null)) return;
    for (let at = Math.max(0, cookie - COOKIE_VERSION + 1); at < versions.length; at++) {
      const named = versions[at] as NamedVersion;
      const ino = this.#numberOf(named);
      const entry = sink.wantsEntries ? versionEntry(ino, named, file) : null;
      if (!sink.add(named.name, ino, 'file', at + COOKIE_VERSION, entry)) return;
      if (entry !== null) this.#lookedUp(ino, named, file);
    }
  }

  async #versionCalled(file: ShownFile, name: string, ctx: OpContext): Promise<Entry | NegativeEntry> {
    const versions = await unlessAborted(this.#history.versions(file.ino, file.remote), ctx.signal);
    const named = versions.find((version) => version.name === name);
    if (named === undefined) return { attributes: null, entryTimeoutMs: NAME_MS };
    const ino = this.#numberOf(named);
    this.#lookedUp(ino, named, file);
    return versionEntry(ino, named, file);
  }

  /** The inode of a version, the same in every mount; on a collision the later version gets the next free number. */
  #numberOf({ version }: NamedVersion): Inode {
    const digest = createHash('sha256').update(version.url).digest();
    for (let number = FIRST_VERSION + (digest.readUIntBE(0, 6) % (FIRST_VERSION / 2)); ; number++) {
      const live = this.#live.get(number as Inode);
      if (live === undefined || live.named.version.url === version.url) return number as Inode;
    }
  }

  #lookedUp(ino: Inode, named: NamedVersion, file: ShownFile): void {
    this.#live.set(ino, { named, file, lookups: (this.#live.get(ino)?.lookups ?? 0) + 1 });
  }

  #liveVersion(ino: Inode): LiveVersion {
    const live = this.#live.get(ino);
    if (live === undefined) throw new FsError('ESTALE');
    return live;
  }

  /** A version that the kernel knows from an earlier process. */
  async #revived(ino: Inode, { version: url, resource }: VersionContent): Promise<Pick<LiveVersion, 'named' | 'file'>> {
    const file = this.#tree.node(this.#store.get('resource', resource) ?? (0 as Inode));
    if (file === undefined || !isShown(file) || !isFile(file)) throw new FsError('ESTALE');
    const versions = await this.#history.versions(file.ino, file.remote);
    const named = versions.find(({ version }) => version.url === url);
    if (named === undefined) throw new FsError('ESTALE');
    this.#lookedUp(ino, named, file);
    return { named, file };
  }

  #addFolder(ino: Inode, folder: OpenFolder): OpenDirectoryReply {
    const handle = this.#nextFolder++ as HandleId;
    this.#folders.set(handle, folder);
    const ofFolder = { flags: 0, content: null, hasChanged: false, isUnstored: false };
    this.#record?.opened({ handle, ino, kind: 'folder', ...ofFolder });
    return { handle, cacheListing: false, keepListing: false };
  }

  /** The tree's node behind a mirrored folder. @throws FsError ESTALE when it no longer exists, ENOTDIR for a version */
  #shown(ino: Inode): ShownNode {
    if (ino >= FIRST_VERSION) throw new FsError('ENOTDIR');
    const node = this.#tree.node((ino - FIRST_MIRROR) as Inode);
    if (node === undefined || !isShown(node)) throw new FsError('ESTALE', 'this file no longer exists');
    return node;
  }

  #mirrorEntry(node: ShownNode): Entry {
    return { attributes: mirrorAttributes(node), entryTimeoutMs: NAME_MS, attributeTimeoutMs: NAME_MS };
  }

  #afterListing<T>(folder: Inode, ctx: OpContext, act: () => T): Answer<T> {
    if (this.#freshness.isListed(folder)) return act();
    const waiting = this.#freshness.ensureListed(folder, ctx.signal);
    return waiting instanceof Promise ? unlessAborted(waiting, ctx.signal).then(act) : act();
  }
}

/** Folders, and files that the service has. A local-only node has no versions, and a symbolic link is not a file. */
function isShown(node: NodeRecord): node is ShownNode {
  if (node.local === null || node.localOnly) return false;
  return node.kind === 'folder' || (node.kind === 'file' && node.remote !== null);
}

function isFile(node: ShownNode): node is ShownFile {
  return node.kind === 'file';
}

function mirrorOf(ino: Inode): Inode {
  return (FIRST_MIRROR + ino) as Inode;
}

/** Permission to read a file or folder includes permission to read its versions. */
function mirrorAttributes({ ino, kind, local }: ShownNode): Attributes {
  const times = { atime: local.mtime, mtime: local.mtime, ctime: local.ctime };
  const mayRead = local.mode & 0o444;
  const mode = kind === 'folder' ? local.mode & 0o555 : mayRead | (mayRead >> 2);
  return shownAttributes(mirrorOf(ino), 'folder', mode, 0, local, times);
}

function versionEntry(ino: Inode, named: NamedVersion, file: ShownFile): Entry {
  const attributes = versionAttributes(ino, named, file);
  return { attributes, entryTimeoutMs: NAME_MS, attributeTimeoutMs: VERSION_ATTRIBUTES_MS };
}

/** Length and time of the version; owner and read permission of the file. */
function versionAttributes(ino: Inode, { version }: NamedVersion, { local }: ShownFile): Attributes {
  const saved = version.lastModifiedMs === null ? local.mtime : timespecOfMs(version.lastModifiedMs);
  const times = { atime: saved, mtime: saved, ctime: saved };
  return shownAttributes(ino, 'file', local.mode & 0o444, version.sizeBytes, local, times);
}

function shownAttributes(
  ino: Inode,
  kind: 'file' | 'folder',
  mode: number,
  sizeBytes: number,
  { uid, gid }: LocalFacet,
  times: { readonly atime: Timespec; readonly mtime: Timespec; readonly ctime: Timespec },
): Attributes {
  return { ino, kind, mode, nlink: 1, uid, gid, sizeBytes, blocks512: Math.ceil(sizeBytes / 512), ...times };
}

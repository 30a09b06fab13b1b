import { FsError } from '../../src/base/errors.ts';
import {
  type HandleId,
  type Inode,
  type NodeKind,
  ROOT_INODE,
  type SpecialKind,
  type Timespec,
} from '../../src/base/vocabulary.ts';
import type {
  AllocateMode,
  Answer,
  AttributeChange,
  Attributes,
  AttributesReply,
  DirectorySink,
  Entry,
  FileSystemOps,
  FileSystemStats,
  Invalidator,
  NegativeEntry,
  OpContext,
  OpenDirectoryReply,
  OpenFlags,
  OpenReply,
  ReadReply,
  RenameMode,
} from '../../src/kernel/binding.ts';
import { ChunkPool, MemoryBytes } from './memory-bytes.ts';

/**
 * A complete file system in memory, for tests of the bindings and for the bench: the smallest thing that answers every operation
 * at once. It counts lookups and open handles, so that tests can assert that all are returned.
 *
 * `before` may delay, refuse or hang any operation by returning a promise or throwing.
 */
interface Node {
  readonly ino: Inode;
  readonly kind: NodeKind;
  mode: number;
  uid: number;
  gid: number;
  nlink: number;
  atime: Timespec;
  mtime: Timespec;
  ctime: Timespec;
  parent: Inode;
  readonly entries: Map<string, Inode>;
  /** Cookies of entries, given in order of creation: valid while others come and go. */
  readonly cookies: Map<string, number>;
  listing: { readonly name: string; readonly at: number }[] | null;
  readonly data: MemoryBytes;
  target: string;
  xattrs: Map<string, Buffer> | null;
  lookups: number;
  opens: number;
}

export interface MemoryFileSystemOptions {
  readonly entryTimeoutMs?: number;
  readonly attributeTimeoutMs?: number;
  readonly keepCache?: boolean;
  readonly directIo?: boolean;
  readonly cacheListing?: boolean;
  /** Called before every operation. What it returns is waited for; what it throws is answered. */
  readonly before?: (op: string, ino: Inode, name: string) => Promise<void> | undefined;
  /** Answers a read in place of the bytes in memory: tests of FileSlice. */
  readonly read?: (ino: Inode, offset: number, length: number) => ReadReply | null;
}

const NAME_BYTES_MAX = 255;
/** Of everything that is not a folder. */
const NO_ENTRIES = { entries: new Map<string, Inode>(), cookies: new Map<string, number>() };
/** More than fit into one answer of the kernel's. */
const LISTING_PIECE_ENTRIES = 8000;
const FILE_BYTES_MAX = 2 ** 43;

export class MemoryFileSystem implements FileSystemOps {
  readonly #nodes = new Map<Inode, Node>();
  readonly #options: MemoryFileSystemOptions;
  #nextInode = 2;
  #nextHandle = 1;
  #nextCookie = 1;
  readonly #handles = new Map<HandleId, Inode>();
  readonly #chunks = new ChunkPool();
  invalidator: Invalidator | null = null;
  destroyed = false;

  constructor(options: MemoryFileSystemOptions = {}) {
    this.#options = options;
    const now = this.#now();
    this.#nodes.set(
      ROOT_INODE,
      this.#make(
        ROOT_INODE,
        'folder',
        0o755,
        { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
        ROOT_INODE,
        now,
      ),
    );
  }

  /** Lookups that were given and not returned; 0 when every caller behaved. */
  get lookups(): number {
    let sum = 0;
    for (const node of this.#nodes.values()) sum += node.lookups;
    return sum;
  }

  get openHandles(): number {
    return this.#handles.size;
  }

  /** Nodes that exist, unlinked ones that are still open included. */
  get nodeCount(): number {
    return this.#nodes.size;
  }

  /** Puts a file there without any operation, as a change from elsewhere would. */
  plant(parent: Inode, name: string, bytes: Uint8Array): Inode {
    const ino = this.#child(parent, name) ?? this.#insert(parent, name, 'file', 0o644, { uid: 0, gid: 0 }).ino;
    const node = this.#node(ino);
    node.data.resize(0);
    node.data.write(0, bytes);
    node.mtime = node.ctime = this.#now();
    return ino;
  }

  plantFolder(parent: Inode, name: string): Inode {
    return this.#child(parent, name) ?? this.#insert(parent, name, 'folder', 0o755, { uid: 0, gid: 0 }).ino;
  }

  placeOf(folder: Inode): { parent: Inode; name: string } | null {
    const parent = this.#nodes.get(folder)?.parent;
    const named = [...(this.#nodes.get(parent as Inode)?.entries ?? [])].find(([, ino]) => ino === folder);
    return parent === undefined || named === undefined ? null : { parent, name: named[0] };
  }

  init(invalidator: Invalidator): void {
    this.invalidator = invalidator;
  }

  destroy(): void {
    this.destroyed = true;
  }

  lookup(parent: Inode, name: string, _ctx: OpContext): Answer<Entry | NegativeEntry> {
    return this.#after('lookup', parent, name, () => {
      const ino = this.#folder(parent).entries.get(name);
      if (ino === undefined) return { attributes: null, entryTimeoutMs: this.#options.entryTimeoutMs ?? 1000 };
      return this.#entry(this.#node(ino));
    });
  }

  forget(ino: Inode, count: number): void {
    const node = this.#nodes.get(ino);
    if (node === undefined) throw new Error(`forget of an unknown inode ${ino}`);
    node.lookups -= count;
    if (node.lookups < 0) throw new Error(`more lookups of inode ${ino} returned than given`);
    this.#collect(node);
  }

  getattr(ino: Inode, _handle: HandleId | null, _ctx: OpContext): Answer<AttributesReply> {
    return this.#after('getattr', ino, '', () => this.#attributesReply(this.#node(ino)));
  }

  setattr(ino: Inode, change: AttributeChange, _handle: HandleId | null, _ctx: OpContext): Answer<AttributesReply> {
    return this.#after('setattr', ino, '', () => {
      const node = this.#node(ino);
      const now = this.#now();
      if (change.mode !== undefined) node.mode = change.mode;
      if (change.uid !== undefined) node.uid = change.uid;
      if (change.gid !== undefined) node.gid = change.gid;
      if (change.sizeBytes !== undefined) {
        node.data.resize(change.sizeBytes);
        node.mtime = now;
      }
      if (change.atime !== undefined) node.atime = change.atime === 'now' ? now : change.atime;
      if (change.mtime !== undefined) node.mtime = change.mtime === 'now' ? now : change.mtime;
      node.ctime = change.ctime ?? now;
      return this.#attributesReply(node);
    });
  }

  readlink(ino: Inode, _ctx: OpContext): Answer<string> {
    return this.#after('readlink', ino, '', () => this.#node(ino).target);
  }

  symlink(parent: Inode, name: string, target: string, ctx: OpContext): Answer<Entry> {
    return this.#after('symlink', parent, name, () => {
      const node = this.#create(parent, name, 'symlink', 0o777, ctx);
      node.target = target;
      node.data.sizeBytes = Buffer.byteLength(target);
      return this.#entry(node);
    });
  }

  mknod(parent: Inode, name: string, kind: 'file' | SpecialKind, mode: number, ctx: OpContext): Answer<Entry> {
    return this.#after('mknod', parent, name, () => this.#entry(this.#create(parent, name, kind, mode, ctx)));
  }

  tmpfile(): Answer<Entry & { readonly open: OpenReply }> {
    throw new FsError('EOPNOTSUPP');
  }

  mkdir(parent: Inode, name: string, mode: number, ctx: OpContext): Answer<Entry> {
    return this.#after('mkdir', parent, name, () => this.#entry(this.#create(parent, name, 'folder', mode, ctx)));
  }

  unlink(parent: Inode, name: string, _ctx: OpContext): Answer<void> {
    return this.#after('unlink', parent, name, () => {
      const node = this.#existing(parent, name);
      if (node.kind === 'folder') throw new FsError('EISDIR');
      this.#remove(parent, name);
    });
  }

  rmdir(parent: Inode, name: string, _ctx: OpContext): Answer<void> {
    return this.#after('rmdir', parent, name, () => {
      const node = this.#existing(parent, name);
      if (node.kind !== 'folder') throw new FsError('ENOTDIR');
      if (node.entries.size > 0) throw new FsError('ENOTEMPTY');
      this.#remove(parent, name);
    });
  }

  rename(
    parent: Inode,
    name: string,
    newParent: Inode,
    newName: string,
    mode: RenameMode,
    _ctx: OpContext,
  ): Answer<void> {
    return this.#after('rename', parent, name, () => {
      const node = this.#existing(parent, name);
      const target = this.#child(newParent, newName);
      if (mode === 'no-replace' && target !== undefined) throw new FsError('EEXIST');
      for (let up = newParent; node.kind === 'folder' && up !== ROOT_INODE; up = this.#node(up).parent) {
        if (up === node.ino) throw new FsError('EINVAL');
      }
      if (mode === 'exchange') {
        if (target === undefined) throw new FsError('ENOENT');
        this.#unlinkName(parent, name);
        this.#unlinkName(newParent, newName);
        this.#link(parent, name, this.#node(target));
        this.#link(newParent, newName, node);
        return;
      }
      if (target === node.ino) return;
      if (target !== undefined) {
        const replaced = this.#node(target);
        if (replaced.kind === 'folder' && node.kind !== 'folder') throw new FsError('EISDIR');
        if (replaced.kind !== 'folder' && node.kind === 'folder') throw new FsError('ENOTDIR');
        if (replaced.entries.size > 0) throw new FsError('ENOTEMPTY');
        this.#remove(newParent, newName);
      }
      this.#unlinkName(parent, name);
      this.#link(newParent, newName, node);
      node.ctime = this.#now();
    });
  }

  link(ino: Inode, _newParent: Inode, _newName: string, _ctx: OpContext): Answer<Entry> {
    return this.#after('link', ino, '', () => {
      throw new FsError('EPERM');
    });
  }

  open(ino: Inode, flags: OpenFlags, _ctx: OpContext): Answer<OpenReply> {
    return this.#after('open', ino, '', () => {
      const node = this.#node(ino);
      if (node.kind === 'folder') throw new FsError('EISDIR');
      if (flags.truncate) {
        node.data.resize(0);
        node.mtime = node.ctime = this.#now();
      }
      return this.#opened(node);
    });
  }

  create(
    parent: Inode,
    name: string,
    mode: number,
    flags: OpenFlags,
    ctx: OpContext,
  ): Answer<Entry & { readonly open: OpenReply }> {
    return this.#after('create', parent, name, () => {
      const there = this.#child(parent, name);
      const node = there === undefined ? this.#create(parent, name, 'file', mode, ctx) : this.#node(there);
      if (flags.truncate) node.data.resize(0);
      return { ...this.#entry(node), open: this.#opened(node) };
    });
  }

  read(ino: Inode, handle: HandleId, offset: number, length: number, _ctx: OpContext): Answer<ReadReply> {
    return this.#after('read', ino, '', () => {
      this.#checkHandle(handle);
      const given = this.#options.read?.(ino, offset, length);
      if (given) return given;
      const { data } = this.#node(ino);
      const end = Math.min(offset + length, data.sizeBytes);
      return offset >= end ? new Uint8Array(0) : data.read(offset, end);
    });
  }

  write(ino: Inode, handle: HandleId, offset: number, data: Uint8Array, _ctx: OpContext): Answer<number> {
    return this.#after('write', ino, '', () => {
      this.#checkHandle(handle);
      const node = this.#node(ino);
      if (offset + data.length > FILE_BYTES_MAX) throw new FsError('EFBIG');
      node.data.write(offset, data);
      node.mtime = node.ctime = this.#now();
      return data.length;
    });
  }

  flush(ino: Inode, _handle: HandleId, _ctx: OpContext): Answer<void> {
    return this.#after('flush', ino, '', () => undefined);
  }

  release(ino: Inode, handle: HandleId, _ctx: OpContext): Answer<void> {
    return this.#after('release', ino, '', () => this.#closed(handle));
  }

  fsync(ino: Inode, _handle: HandleId, _dataOnly: boolean, _ctx: OpContext): Answer<void> {
    return this.#after('fsync', ino, '', () => undefined);
  }

  fallocate(
    ino: Inode,
    _handle: HandleId,
    mode: AllocateMode,
    offset: number,
    length: number,
    _ctx: OpContext,
  ): Answer<void> {
    return this.#after('fallocate', ino, '', () => {
      const { data } = this.#node(ino);
      const end = offset + length;
      if (mode === 'punch-hole' || mode === 'zero-range' || mode === 'zero-range-keep-size') data.zero(offset, end);
      if (mode === 'allocate' || mode === 'zero-range') data.resize(Math.max(data.sizeBytes, end));
    });
  }

  lseek(ino: Inode, _handle: HandleId, offset: number, whence: 'data' | 'hole', _ctx: OpContext): Answer<number> {
    return this.#after('lseek', ino, '', () => {
      const { data } = this.#node(ino);
      if (offset >= data.sizeBytes) throw new FsError('ENXIO');
      const found = whence === 'hole' ? data.nextHole(offset) : data.nextData(offset);
      if (found === null) throw new FsError('ENXIO');
      return found;
    });
  }

  opendir(ino: Inode, _ctx: OpContext): Answer<OpenDirectoryReply> {
    return this.#after('opendir', ino, '', () => {
      this.#folder(ino);
      const handle = this.#handle(this.#node(ino));
      const cacheListing = this.#options.cacheListing ?? false;
      return { handle, cacheListing, keepListing: cacheListing };
    });
  }

  readdir(ino: Inode, _handle: HandleId, cookie: number, sink: DirectorySink, _ctx: OpContext): Answer<void> {
    return this.#after('readdir', ino, '', () => {
      const node = this.#folder(ino);
      if (cookie < 1 && !sink.add('.', ino, 'folder', 1, null)) return;
      if (cookie < 2 && !sink.add('..', node.parent, 'folder', 2, null)) return;
      // Entries in order of creation, sorted once per change of the folder: a listing comes in many pieces.
      node.listing ??= [...node.cookies].map(([name, at]) => ({ name, at }));
      const { listing } = node;
      let low = 0;
      for (let high = listing.length; low < high; ) {
        const middle = (low + high) >>> 1;
        if ((listing[middle]?.at ?? 0) + 2 <= cookie) low = middle + 1;
        else high = middle;
      }
      for (const { name, at } of listing.slice(low, low + LISTING_PIECE_ENTRIES)) {
        const child = this.#node(node.entries.get(name) as Inode);
        const entry = sink.wantsEntries ? this.#describe(child) : null;
        if (!sink.add(name, child.ino, child.kind, at + 2, entry)) return;
        if (entry !== null) child.lookups++;
      }
    });
  }

  releasedir(ino: Inode, handle: HandleId, _ctx: OpContext): Answer<void> {
    return this.#after('releasedir', ino, '', () => this.#closed(handle));
  }

  fsyncdir(ino: Inode, _handle: HandleId, _dataOnly: boolean, _ctx: OpContext): Answer<void> {
    return this.#after('fsyncdir', ino, '', () => undefined);
  }

  statfs(ino: Inode, _ctx: OpContext): Answer<FileSystemStats> {
    return this.#after('statfs', ino, '', () => ({
      blockBytes: 4096,
      blocks: 2 ** 40,
      blocksFree: 2 ** 39,
      blocksAvailable: 2 ** 39,
      files: this.#nodes.size,
      filesFree: 2 ** 33,
      nameBytesMax: NAME_BYTES_MAX,
    }));
  }

  getxattr(ino: Inode, name: string, _ctx: OpContext): Answer<Uint8Array> {
    return this.#after('getxattr', ino, name, () => {
      const value = this.#node(ino).xattrs?.get(name);
      if (value === undefined) throw new FsError('ENODATA');
      return value;
    });
  }

  setxattr(
    ino: Inode,
    name: string,
    value: Uint8Array,
    mode: 'set' | 'create' | 'replace',
    _ctx: OpContext,
  ): Answer<void> {
    return this.#after('setxattr', ino, name, () => {
      const node = this.#node(ino);
      node.xattrs ??= new Map();
      const { xattrs } = node;
      if (mode === 'create' && xattrs.has(name)) throw new FsError('EEXIST');
      if (mode === 'replace' && !xattrs.has(name)) throw new FsError('ENODATA');
      xattrs.set(name, Buffer.from(value));
    });
  }

  listxattr(ino: Inode, _ctx: OpContext): Answer<readonly string[]> {
    return this.#after('listxattr', ino, '', () => [...(this.#node(ino).xattrs?.keys() ?? [])]);
  }

  removexattr(ino: Inode, name: string, _ctx: OpContext): Answer<void> {
    return this.#after('removexattr', ino, name, () => {
      if (!this.#node(ino).xattrs?.delete(name)) throw new FsError('ENODATA');
    });
  }

  #after<T>(op: string, ino: Inode, name: string, run: () => T): Answer<T> {
    const waiting = this.#options.before?.(op, ino, name);
    return waiting === undefined ? run() : waiting.then(run);
  }

  #make(
    ino: Inode,
    kind: NodeKind,
    mode: number,
    owner: { uid: number; gid: number },
    parent: Inode,
    now: Timespec,
  ): Node {
    return {
      ...{ ino, kind, mode, uid: owner.uid, gid: owner.gid, parent, atime: now, mtime: now, ctime: now },
      ...{
        nlink: kind === 'folder' ? 2 : 1,
        ...(kind === 'folder' ? { entries: new Map(), cookies: new Map() } : NO_ENTRIES),
        listing: null,
        xattrs: null,
      },
      ...{ data: new MemoryBytes(this.#chunks), target: '', lookups: 0, opens: 0 },
    };
  }

  #create(parent: Inode, name: string, kind: NodeKind, mode: number, owner: { uid: number; gid: number }): Node {
    if (this.#child(parent, name) !== undefined) throw new FsError('EEXIST');
    return this.#insert(parent, name, kind, mode, owner);
  }

  #insert(parent: Inode, name: string, kind: NodeKind, mode: number, owner: { uid: number; gid: number }): Node {
    const node = this.#make(this.#nextInode++ as Inode, kind, mode, owner, parent, this.#now());
    this.#nodes.set(node.ino, node);
    this.#link(parent, name, node);
    return node;
  }

  #link(parent: Inode, name: string, node: Node): void {
    const folder = this.#folder(parent);
    folder.entries.set(name, node.ino);
    folder.cookies.set(name, this.#nextCookie++);
    folder.listing = null;
    folder.mtime = folder.ctime = this.#now();
    node.parent = parent;
    if (node.kind === 'folder') folder.nlink++;
  }

  #unlinkName(parent: Inode, name: string): Node {
    const folder = this.#folder(parent);
    const node = this.#existing(parent, name);
    folder.entries.delete(name);
    folder.cookies.delete(name);
    folder.listing = null;
    folder.mtime = folder.ctime = this.#now();
    if (node.kind === 'folder') folder.nlink--;
    return node;
  }

  #remove(parent: Inode, name: string): void {
    const node = this.#unlinkName(parent, name);
    node.nlink = 0;
    node.ctime = this.#now();
    this.#collect(node);
  }

  /** A node goes when it has no name, no lookup and no handle. */
  #collect(node: Node): void {
    if (node.nlink > 0 || node.lookups > 0 || node.opens > 0) return;
    this.#nodes.delete(node.ino);
    node.data.resize(0);
  }

  #node(ino: Inode): Node {
    const node = this.#nodes.get(ino);
    if (node === undefined) throw new FsError('ESTALE');
    return node;
  }

  #folder(ino: Inode): Node {
    const node = this.#node(ino);
    if (node.kind !== 'folder') throw new FsError('ENOTDIR');
    return node;
  }

  #child(parent: Inode, name: string): Inode | undefined {
    return this.#folder(parent).entries.get(name);
  }

  #existing(parent: Inode, name: string): Node {
    const ino = this.#child(parent, name);
    if (ino === undefined) throw new FsError('ENOENT');
    return this.#node(ino);
  }

  #handle(node: Node): HandleId {
    const handle = this.#nextHandle++ as HandleId;
    this.#handles.set(handle, node.ino);
    node.opens++;
    return handle;
  }

  #opened(node: Node): OpenReply {
    const { keepCache = true, directIo = false } = this.#options;
    return { handle: this.#handle(node), keepCache, directIo };
  }

  #checkHandle(handle: HandleId): void {
    if (!this.#handles.has(handle)) throw new FsError('EBADF');
  }

  #closed(handle: HandleId): void {
    const ino = this.#handles.get(handle);
    if (ino === undefined) throw new FsError('EBADF');
    this.#handles.delete(handle);
    const node = this.#node(ino);
    node.opens--;
    this.#collect(node);
  }

  #entry(node: Node): Entry {
    node.lookups++;
    return this.#describe(node);
  }

  #describe(node: Node): Entry {
    const { entryTimeoutMs = 1000, attributeTimeoutMs = 1000 } = this.#options;
    return { attributes: this.#attributes(node), entryTimeoutMs, attributeTimeoutMs };
  }

  #attributesReply(node: Node): AttributesReply {
    return { attributes: this.#attributes(node), attributeTimeoutMs: this.#options.attributeTimeoutMs ?? 1000 };
  }

  #attributes(node: Node): Attributes {
    const { ino, kind, mode, nlink, uid, gid, atime, mtime, ctime } = node;
    const { sizeBytes } = node.data;
    const blocks512 = Math.ceil(Math.min(sizeBytes, node.data.allocatedBytes) / 4096) * 8;
    return { ino, kind, mode, nlink, uid, gid, sizeBytes, blocks512, atime, mtime, ctime };
  }

  #now(): Timespec {
    const nowMs = performance.timeOrigin + performance.now();
    const sec = Math.floor(nowMs / 1000);
    return { sec, nsec: Math.floor((nowMs - sec * 1000) * 1e6) };
  }
}

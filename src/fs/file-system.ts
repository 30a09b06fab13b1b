import { setMaxListeners } from 'node:events';
import { constants } from 'node:fs';
import type { Clock } from '../base/clock.ts';
import { FsError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { type Extent, type HandleId, type Inode, type NodeKind, ROOT_INODE } from '../base/vocabulary.ts';
import type { BlockReader } from '../content/block-reader.ts';
import { unlessAborted } from '../content/block-reader.ts';
import type { OpenFileDeps } from '../content/open-file.ts';
import { ReadAhead } from '../content/read-ahead.ts';
import { VersionsAhead } from '../content/versions-ahead.ts';
import type {
  AllocateMode,
  Answer,
  AttributeChange,
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
} from '../kernel/binding.ts';
import type { Contents } from '../store/contents.ts';
import type { FileBytes, LocalFacet, NodeRecord } from '../store/tables.ts';
import type { Freshness } from '../tree/freshness.ts';
import type { Tree, TreeInvalidation } from '../tree/tree.ts';
import { after, lastly } from './answer.ts';
import { fillDirectory } from './directory.ts';
import { type FileHandle, Handles } from './handles.ts';
import { KernelCache } from './kernel-cache.ts';
import { NodeView } from './node-view.ts';
import { OpenFiles } from './open-files.ts';
import { replyOf } from './read-reply.ts';
import { getXattr, withoutXattr, withXattr } from './xattrs.ts';

export interface FileSystemDeps {
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly contents: Contents;
  readonly prefetcher: Pick<BlockReader, 'prefetch' | 'paceBytes'>;
  readonly openFile: Omit<OpenFileDeps, 'onRepinned' | 'onReverted'>;
  readonly clock: Clock;
  readonly log: Logger;
  /** The account's quota and use, bytes, as last heard; null when never heard. Never a request. */
  readonly quota: () => { readonly limitBytes: number; readonly usedBytes: number } | null;
  readonly options: {
    readonly entryTimeoutMs: number;
    readonly attributeTimeoutMs: number;
    readonly readOnly: boolean;
  };
}

const SYMLINK_BYTES_MAX = 4095;
/** The largest file: what the kernel's page cache can address, and exact in a double. */
const FILE_BYTES_MAX = Number.MAX_SAFE_INTEGER;
const STATFS_BLOCK_BYTES = 4096;
/** Shown by df(1) until the account's quota was heard. */
const UNKNOWN_QUOTA_BYTES = 2 ** 40;
const S_ISUID = 0o4000;
const S_ISGID = 0o2000;
const S_IXGRP = 0o010;

/**
 * What each operation of the kernel means here. Names come from the tree, bytes from open files; whatever is known is
 * answered at once, without a promise.
 */
export class FileSystem implements FileSystemOps {
  readonly #deps: FileSystemDeps;
  readonly #tree: Tree;
  readonly #handles = new Handles();
  readonly #view: NodeView;
  readonly #cache: KernelCache;
  readonly #versionSeen: (node: NodeRecord) => void;
  /** What is open: the sync asks before it seals or trashes. */
  readonly files: OpenFiles;

  constructor(deps: FileSystemDeps) {
    this.#deps = deps;
    this.#tree = deps.tree;
    this.files = new OpenFiles({
      ...deps.openFile,
      onRepinned: (ino, was) => this.#repinned(ino, was),
      onReverted: (ino) => this.#cache.otherBytes(ino),
    });
    this.#cache = new KernelCache({
      files: this.files,
      view: () => this.#view,
      localOf: (ino) => this.#tree.node(ino)?.local ?? null,
      clock: deps.clock,
    });
    const ahead = new VersionsAhead({ ...deps.openFile, isOpen: (ino) => this.files.isOpen(ino) });
    this.#versionSeen = (node) => ahead.seen(node);
    const { entryTimeoutMs, attributeTimeoutMs } = deps.options;
    this.#view = new NodeView({
      tree: deps.tree,
      files: this.files,
      clock: deps.clock,
      onTold: (ino) => this.#cache.told(ino),
      entryTimeoutMs,
      attributeTimeoutMs,
    });
    deps.tree.onRemoteChange((changes) => this.changedElsewhere(changes));
  }

  /** What somebody else changed, as the tree or the sync found out: the kernel lets go of it. */
  changedElsewhere(changes: readonly TreeInvalidation[]): void {
    this.#cache.changed(changes);
  }

  init(invalidator: Invalidator): void {
    this.#cache.connect(invalidator);
  }

  placeOf(folder: Inode): { parent: Inode; name: string } | null {
    return folder === ROOT_INODE ? null : (this.#tree.node(folder)?.local ?? null);
  }

  // Names

  lookup(parent: Inode, name: string, ctx: OpContext): Answer<Entry | NegativeEntry> {
    return this.#afterListing(parent, ctx, () => this.#view.lookup(parent, name));
  }

  forget(ino: Inode): void {
    this.#view.forget(ino);
  }

  mkdir(parent: Inode, name: string, mode: number, ctx: OpContext): Answer<Entry> {
    return this.#afterListing(parent, ctx, () => this.#create(parent, name, 'folder', mode, ctx));
  }

  mknod(parent: Inode, name: string, mode: number, ctx: OpContext): Answer<Entry> {
    return this.#afterListing(parent, ctx, () => this.#create(parent, name, 'file', mode, ctx));
  }

  symlink(parent: Inode, name: string, target: string, ctx: OpContext): Answer<Entry> {
    const bytes = Buffer.from(target);
    if (bytes.byteLength > SYMLINK_BYTES_MAX) throw new FsError('ENAMETOOLONG');
    if (bytes.byteLength === 0) throw new FsError('ENOENT');
    return this.#afterListing(parent, ctx, () => {
      this.mayWrite();
      const node = this.#tree.create(parent, name, {
        kind: 'symlink',
        mode: 0o777,
        uid: ctx.uid,
        gid: this.#groupIn(parent, ctx),
        content: (tx) => this.#deps.contents.inlineContent(tx, bytes),
        sizeBytes: bytes.byteLength,
      });
      return this.#view.entry(node);
    });
  }

  readlink(ino: Inode, ctx: OpContext): Answer<string> {
    if (this.#view.node(ino).kind !== 'symlink') throw new FsError('EINVAL');
    const file = this.files.acquire(ino, 'read');
    const extent = { start: 0, end: SYMLINK_BYTES_MAX };
    const targetOf = (): string => {
      const bytes = file.content === null ? null : this.#deps.contents.readAll(file.content, extent);
      if (bytes === null) throw new FsError('EIO', 'the target of the link is not here');
      return Buffer.from(bytes).toString('utf8');
    };
    return lastly(
      () => file.read(extent, ctx, targetOf),
      () => this.files.release(file, 'read'),
    );
  }

  unlink(parent: Inode, name: string, ctx: OpContext): Answer<void> {
    return this.#afterListing(parent, ctx, () => this.#remove(parent, name, 'file'));
  }

  rmdir(parent: Inode, name: string, ctx: OpContext): Answer<void> {
    return this.#afterListing(parent, ctx, () => {
      const folder = this.#tree.child(parent, name);
      if (folder?.kind !== 'folder') return this.#remove(parent, name, 'folder');
      // Whether it is empty only its own listing tells.
      return this.#afterListing(folder.ino, ctx, () => this.#remove(parent, name, 'folder'));
    });
  }

  rename(
    parent: Inode,
    name: string,
    newParent: Inode,
    newName: string,
    mode: RenameMode,
    ctx: OpContext,
  ): Answer<void> {
    return this.#afterListing(parent, ctx, () =>
      this.#afterListing(newParent, ctx, () => {
        const target = this.#tree.child(newParent, newName);
        const act = (): void => {
          this.mayWrite();
          const { replaced } = this.#tree.rename(parent, name, newParent, newName, mode);
          if (replaced !== null) this.#view.orphan(replaced);
        };
        if (target?.kind === 'folder' && mode === 'replace') return this.#afterListing(target.ino, ctx, act);
        return act();
      }),
    );
  }

  /** Refused with EPERM, as link(2) says for a file system without hard links. */
  link(): Answer<Entry> {
    throw new FsError('EPERM', 'the service knows no hard links');
  }

  // Attributes

  getattr(ino: Inode): Answer<AttributesReply> {
    return this.#view.reply(ino);
  }

  setattr(ino: Inode, change: AttributeChange, handle: HandleId | null, ctx: OpContext): Answer<AttributesReply> {
    this.mayWrite();
    if (change.sizeBytes === undefined) return this.#setattr(ino, change);
    const size = change.sizeBytes;
    if (size > FILE_BYTES_MAX) throw new FsError('EFBIG');
    if (this.#view.node(ino).kind === 'folder') throw new FsError('EISDIR');
    const handles = handle === null ? null : this.#handles.file(handle).file;
    const file = handles ?? this.files.acquire(ino, 'write');
    const finish = (): AttributesReply => {
      this.#dropPrivilege(ino, ctx);
      // Without a handle nobody will close it: truncate(2) is its own flush.
      if (handle === null) file.flush();
      return this.#setattr(ino, change);
    };
    if (handles !== null) return after(file.truncate(size, ctx), finish);
    return lastly(
      () => after(file.truncate(size, ctx), finish),
      () => this.files.release(file, 'write'),
    );
  }

  getxattr(ino: Inode, name: string): Answer<Uint8Array> {
    return getXattr(this.#view.local(ino).xattrs, name);
  }

  setxattr(ino: Inode, name: string, value: Uint8Array, mode: 'set' | 'create' | 'replace'): Answer<void> {
    this.mayWrite();
    const xattrs = withXattr(this.#view.local(ino).xattrs, name, value, mode);
    this.#view.change(ino, { xattrs, ctime: this.#view.now() });
  }

  listxattr(ino: Inode): Answer<readonly string[]> {
    return Object.keys(this.#view.local(ino).xattrs ?? {});
  }

  removexattr(ino: Inode, name: string): Answer<void> {
    this.mayWrite();
    const xattrs = withoutXattr(this.#view.local(ino).xattrs, name);
    this.#view.change(ino, { xattrs, ctime: this.#view.now() });
  }

  statfs(): Answer<FileSystemStats> {
    const quota = this.#deps.quota();
    const limitBytes = quota?.limitBytes ?? UNKNOWN_QUOTA_BYTES;
    const freeBytes = Math.max(0, limitBytes - (quota?.usedBytes ?? 0));
    const blocksFree = Math.floor(freeBytes / STATFS_BLOCK_BYTES);
    return {
      blockBytes: STATFS_BLOCK_BYTES,
      blocks: Math.ceil(limitBytes / STATFS_BLOCK_BYTES),
      blocksFree,
      blocksAvailable: blocksFree,
      // No limit on the number of files is known: as many as bytes could name.
      files: 2 ** 32,
      filesFree: 2 ** 32 - 1,
      nameBytesMax: 255,
    };
  }

  // Files

  open(ino: Inode, flags: OpenFlags, ctx: OpContext): Answer<OpenReply> {
    if (flags.access !== 'read' || flags.truncate) this.mayWrite();
    return after(this.#deps.freshness.beforeOpen(ino, ctx), () => this.#open(ino, flags, ctx));
  }

  create(
    parent: Inode,
    name: string,
    mode: number,
    flags: OpenFlags,
    ctx: OpContext,
  ): Answer<Entry & { readonly open: OpenReply }> {
    return this.#afterListing(parent, ctx, () => {
      const existing = this.#tree.child(parent, name);
      // Somebody else made it since the kernel looked: without O_EXCL, open(2) opens what is there. The kernel takes it for new
      // and checks no permission: only for its owner.
      const isOwn = ctx.uid === 0 || ctx.uid === existing?.local?.uid;
      if (existing?.kind === 'file' && isOwn && (flags.raw & constants.O_EXCL) === 0) {
        // As it is then: an open may wait for a listing that tells of another version.
        const now = () => this.#view.entry(this.#view.node(existing.ino));
        return after(this.open(existing.ino, flags, ctx), (open) => ({ ...now(), open }));
      }
      const entry = this.#create(parent, name, 'file', mode, ctx);
      return { ...entry, open: this.#openHandle(entry.attributes.ino, flags) };
    });
  }

  read(_ino: Inode, handle: HandleId, offset: number, length: number, ctx: OpContext): Answer<ReadReply> {
    const reader = this.#handles.file(handle);
    const { file, flags } = reader;
    if (flags.access === 'write') throw new FsError('EBADF');
    const extent = { start: offset, end: Math.min(offset + length, FILE_BYTES_MAX) };
    const reply = file.read(extent, ctx, (pieces) => replyOf(pieces, this.#deps.contents));
    // Asked for ahead at once, beside what is waited for, not after it.
    this.#readAhead(reader, extent, reply instanceof Promise);
    file.progress.noted(reader, extent.end, file.sizeBytes);
    return reply;
  }

  write(ino: Inode, handle: HandleId, offset: number, data: Uint8Array, ctx: OpContext): Answer<number> {
    const { file, flags } = this.#handles.file(handle);
    if (flags.access === 'read') throw new FsError('EBADF');
    if (offset + data.byteLength > FILE_BYTES_MAX) throw new FsError('EFBIG');
    // Also for O_APPEND: the kernel takes the size for the offset, under the inode's lock. And what a shared mapping wrote
    // comes through any handle that is open for writing, at its own place (test/model found it appended).
    return after(file.write(offset, data, ctx, flags.append ? 'append' : 'at'), () => {
      this.#dropPrivilege(ino, ctx);
      return data.byteLength;
    });
  }

  /**
   * close(2), once for every descriptor that shares the handle. After it the bytes survive the death of this process; the
   * service is not waited for. The last moment at which a failure reaches the process that wrote.
   */
  flush(_ino: Inode, handle: HandleId): Answer<void> {
    const { file, flags } = this.#handles.file(handle);
    if (flags.access === 'read') return;
    file.flush();
    file.closedByWriter();
  }

  release(ino: Inode, handle: HandleId): Answer<void> {
    const closed = this.#handles.file(handle);
    const { file, flags } = closed;
    this.#handles.remove(handle);
    stopFetchingAhead(closed);
    file.progress.left(closed);
    try {
      // What a shared mapping wrote after the last close(2) arrives between flush and release.
      if (flags.access !== 'read') file.flush();
    } finally {
      this.files.release(file, flags.access === 'read' ? 'read' : 'write');
      if (flags.access !== 'read') this.#deps.openFile.onWritten(ino);
    }
  }

  /** After it the bytes, and the names, survive a power cut. */
  fsync(_ino: Inode, handle: HandleId): Answer<void> {
    return this.#handles.file(handle).file.sync();
  }

  fallocate(
    ino: Inode,
    handle: HandleId,
    mode: AllocateMode,
    offset: number,
    length: number,
    ctx: OpContext,
  ): Answer<void> {
    const { file, flags } = this.#handles.file(handle);
    if (flags.access === 'read') throw new FsError('EBADF');
    const end = offset + length;
    if (end > FILE_BYTES_MAX) throw new FsError('EFBIG');
    const grow = (): Answer<void> => {
      this.#dropPrivilege(ino, ctx);
      // Blocks are not reserved: the store refuses at write and close instead, never later.
      if (mode !== 'keep-size' && mode !== 'punch-hole' && mode !== 'zero-range-keep-size' && end > file.sizeBytes) {
        return file.truncate(end, ctx);
      }
    };
    if (mode === 'allocate' || mode === 'keep-size') return grow();
    return after(file.zero({ start: offset, end }, ctx), grow);
  }

  lseek(_ino: Inode, handle: HandleId, offset: number, whence: 'data' | 'hole', ctx: OpContext): Answer<number> {
    return this.#handles.file(handle).file.seek(offset, whence, ctx);
  }

  // Folders

  opendir(ino: Inode, ctx: OpContext): Answer<OpenDirectoryReply> {
    const open = (): OpenDirectoryReply => {
      const handle = this.#handles.add({ kind: 'folder', ino, handedOut: new Map() });
      return { handle, cacheListing: true, keepListing: this.#cache.mayKeep(ino) };
    };
    return this.#afterListing(ino, ctx, open);
  }

  readdir(_ino: Inode, handle: HandleId, cookie: number, sink: DirectorySink): Answer<void> {
    fillDirectory(
      { tree: this.#tree, view: this.#view, seen: this.#versionSeen },
      this.#handles.folder(handle),
      cookie,
      sink,
    );
  }

  releasedir(_ino: Inode, handle: HandleId): Answer<void> {
    this.#handles.remove(handle);
  }

  fsyncdir(): Answer<void> {
    return this.#deps.openFile.store.sync();
  }

  /** @throws FsError EROFS where the mount was asked to refuse every change */
  mayWrite(): void {
    if (this.#deps.options.readOnly) throw new FsError('EROFS');
  }

  // Private

  #readAhead(handle: FileHandle, extent: Extent, hadToWait: boolean): void {
    const { file, readAhead } = handle;
    const { prefetcher } = this.#deps;
    const wanted = readAhead.afterRead(extent, file.sizeBytes, hadToWait, prefetcher.paceBytes);
    if (wanted === null) stopFetchingAhead(handle);
    if (wanted === null || wanted.length === 0) return;
    handle.fetchingAhead ??= newFetchingAhead();
    const { signal } = handle.fetchingAhead;
    const fetch = (): void => {
      if (file.content !== null) for (const each of wanted) prefetcher.prefetch(file.content, each, signal);
    };
    // Which version it is may be asked just now: then as soon as that is known, beside what the reader waits for.
    if (file.content !== null) fetch();
    else void file.pinning?.then(fetch, () => {});
  }

  /** A first read found another version than was told of, and the service has dropped that one. */
  #repinned(ino: Inode, was: FileBytes): void {
    // Of a longer one the kernel asks for the rest when it is told. A shorter one it would fill up with zeros.
    if (this.#view.local(ino).sizeBytes < was.sizeBytes) this.#cache.contentChanged(ino, was);
    else this.#cache.otherBytes(ino);
  }

  /** Acts once `folder` was listed at least once: at once, or after a wait no longer than the caller wants. */
  #afterListing<T>(folder: Inode, ctx: OpContext, act: () => Answer<T>): Answer<T> {
    // `ctx.signal` is made when it is asked for: nobody pays for it who does not wait.
    if (this.#deps.freshness.isListed(folder)) return act();
    const waiting = this.#deps.freshness.ensureListed(folder, ctx.signal);
    return waiting instanceof Promise ? unlessAborted(waiting, ctx.signal).then(act) : act();
  }

  #create(parent: Inode, name: string, kind: NodeKind, mode: number, ctx: OpContext): Entry {
    this.mayWrite();
    const inherited = kind === 'folder' ? this.#view.local(parent).mode & S_ISGID : 0;
    const node = this.#tree.create(parent, name, {
      kind,
      mode: (mode & 0o7777) | inherited,
      uid: ctx.uid,
      gid: this.#groupIn(parent, ctx),
    });
    return this.#view.entry(node);
  }

  /** A set-group-ID folder gives its group to what is made in it (inode(7)). */
  #groupIn(parent: Inode, ctx: OpContext): number {
    const folder = this.#view.local(parent);
    return folder.mode & S_ISGID ? folder.gid : ctx.gid;
  }

  #remove(parent: Inode, name: string, what: 'file' | 'folder'): void {
    this.mayWrite();
    const { removed } = this.#tree.remove(parent, name, what);
    this.#view.orphan(removed);
  }

  #setattr(ino: Inode, change: AttributeChange): AttributesReply {
    const node = this.#view.node(ino);
    const { local } = node;
    const now = this.#view.now();
    const patch: { -readonly [K in keyof LocalFacet]?: LocalFacet[K] } = {};
    if (change.mode !== undefined) patch.mode = change.mode & 0o7777;
    if (change.uid !== undefined) patch.uid = change.uid;
    if (change.gid !== undefined) patch.gid = change.gid;
    // chown(2) takes these away from executables, also when root calls.
    if ((change.uid !== undefined || change.gid !== undefined) && node.kind === 'file')
      patch.mode = withoutPrivilege(patch.mode ?? local.mode);
    if (change.atime !== undefined) patch.atime = change.atime === 'now' ? now : change.atime;
    if (change.mtime !== undefined) patch.mtime = change.mtime === 'now' ? now : change.mtime;
    if (Object.keys(patch).length === 0) return this.#view.reply(ino);
    patch.ctime = change.ctime ?? now;
    // What was written before has a time of its own, which this one replaces: both go down in one record.
    const isWritten = patch.mtime !== undefined && (this.files.get(ino)?.flush(patch) ?? false);
    if (!isWritten) this.#view.change(ino, patch);
    return this.#view.reply(ino);
  }

  /** A write by anyone but root takes set-user-ID away (HANDLE_KILLPRIV_V2 leaves that to the file system). */
  #dropPrivilege(ino: Inode, ctx: OpContext): void {
    if (ctx.uid === 0) return;
    const { mode } = this.#view.local(ino);
    const kept = withoutPrivilege(mode);
    if (kept !== mode) this.#view.change(ino, { mode: kept });
  }

  #open(ino: Inode, flags: OpenFlags, ctx: OpContext): Answer<OpenReply> {
    const node = this.#view.node(ino);
    if (node.kind === 'folder') throw new FsError('EISDIR');
    if (!flags.truncate) return this.#openHandle(ino, flags);
    // Before there is a handle: the kernel never releases one that it did not get, and a full disk may refuse to empty a file.
    const file = this.files.acquire(ino, 'write');
    const empty = () =>
      after(file.truncate(0, ctx), () => {
        this.#dropPrivilege(ino, ctx);
        // O_RDONLY|O_TRUNC empties the file as well, and closing a reader writes nothing down.
        if (flags.access === 'read') file.flush();
        return this.#openHandle(ino, flags);
      });
    return lastly(empty, () => this.files.release(file, 'write'));
  }

  #openHandle(ino: Inode, flags: OpenFlags): OpenReply {
    const file = this.files.acquire(ino, flags.access === 'read' ? 'read' : 'write');
    const handle = this.#handles.add({
      kind: 'file',
      ino,
      file,
      flags,
      readAhead: new ReadAhead(),
      fetchingAhead: null,
    });
    return { handle, ...this.#cache.openedAs(ino, this.#tree.node(ino)) };
  }
}

function newFetchingAhead(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal); // one for each request under way
  return controller;
}

function stopFetchingAhead(handle: FileHandle): void {
  handle.fetchingAhead?.abort(new DOMException('no longer needed', 'AbortError'));
  handle.fetchingAhead = null;
}

function withoutPrivilege(mode: number): number {
  const kept = mode & ~S_ISUID;
  return kept & S_IXGRP ? kept & ~S_ISGID : kept;
}

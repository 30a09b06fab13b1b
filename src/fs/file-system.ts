import type { Clock } from '../base/clock.ts';
import { FsError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { type HandleId, type Inode, type NodeKind, ROOT_INODE, timespecOfMs } from '../base/vocabulary.ts';
import { unlessAborted } from '../content/block-reader.ts';
import type { OpenFileDeps } from '../content/open-file.ts';
import { type Prefetcher, ReadAhead } from '../content/read-ahead.ts';
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
} from '../kernel/binding.ts';
import type { Contents } from '../store/contents.ts';
import type { LocalFacet, NodeRecord } from '../store/tables.ts';
import type { Freshness } from '../tree/freshness.ts';
import type { Tree, TreeInvalidation } from '../tree/tree.ts';
import { attributesOf } from './attributes.ts';
import { type FolderHandle, Handles } from './handles.ts';
import { OpenFiles } from './open-files.ts';
import { replyOf } from './read-reply.ts';
import { getXattr, withoutXattr, withXattr } from './xattrs.ts';

export interface FileSystemDeps {
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly contents: Contents;
  readonly prefetcher: Prefetcher;
  readonly openFile: Omit<OpenFileDeps, 'onRepinned'>;
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

const COOKIE_DOT = 1;
const COOKIE_DOT_DOT = 2;
/** A child's cookie is its inode plus this: it stays right while the folder changes and over restarts. */
const COOKIE_BASE = 16;
const HANDED_OUT_MAX = 4096;
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
  readonly files: OpenFiles;

  /** Nodes without a name that the kernel still refers to. Dropped when it forgets them. */
  readonly #orphans = new Map<Inode, NodeRecord>();
  /** Inodes whose bytes (or entries) changed on the service since the kernel last opened them: its cache is to be dropped. */
  readonly #changedElsewhere = new Set<Inode>();
  #invalidator: Invalidator | null = null;

  constructor(deps: FileSystemDeps) {
    this.#deps = deps;
    this.#tree = deps.tree;
    this.files = new OpenFiles({ ...deps.openFile, onRepinned: (ino) => this.#contentChangedElsewhere(ino) });
    deps.tree.onRemoteChange((changes) => this.#changed(changes));
  }

  init(invalidator: Invalidator): void {
    this.#invalidator = invalidator;
  }

  // Names

  lookup(parent: Inode, name: string, ctx: OpContext): Answer<Entry | NegativeEntry> {
    const waiting = this.#listed(parent, ctx);
    return waiting instanceof Promise ? waiting.then(() => this.#lookup(parent, name)) : this.#lookup(parent, name);
  }

  forget(ino: Inode, _count: number): void {
    // An inode without a name is never looked up again: the kernel returns all its lookups at once.
    if (this.#orphans.size > 0 && !this.files.isOpen(ino)) this.#orphans.delete(ino);
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
      this.#mayWrite();
      const node = this.#tree.create(parent, name, {
        kind: 'symlink',
        mode: 0o777,
        uid: ctx.uid,
        gid: this.#groupIn(parent, ctx),
        content: (tx) => this.#deps.contents.inlineContent(tx, bytes),
        sizeBytes: bytes.byteLength,
      });
      return this.#entry(node);
    });
  }

  readlink(ino: Inode, ctx: OpContext): Answer<string> {
    const node = this.#node(ino);
    if (node.kind !== 'symlink') throw new FsError('EINVAL');
    const file = this.files.acquire(ino, 'read');
    const finish = (): void => this.files.release(file, 'read');
    const read = async (): Promise<string> => {
      await file.read({ start: 0, end: SYMLINK_BYTES_MAX }, ctx.signal);
      if (file.content === null) return '';
      const bytes = this.#deps.contents.readAll(file.content, { start: 0, end: SYMLINK_BYTES_MAX });
      if (bytes === null) throw new FsError('EIO', 'the target of the link is not here');
      return Buffer.from(bytes).toString('utf8');
    };
    const known = node.local?.content ?? null;
    const bytes = known === null ? null : this.#deps.contents.readAll(known, { start: 0, end: SYMLINK_BYTES_MAX });
    if (bytes !== null) {
      finish();
      return Buffer.from(bytes).toString('utf8');
    }
    return read().finally(finish);
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
          this.#mayWrite();
          const { replaced } = this.#tree.rename(parent, name, newParent, newName, mode);
          if (replaced !== null) this.#orphan(replaced);
        };
        if (target?.kind === 'folder' && mode === 'replace') return this.#afterListing(target.ino, ctx, act);
        return act();
      }),
    );
  }

  /** Refused with EPERM, as link(2) says for a file system without hard links. */
  link(_ino: Inode, _newParent: Inode, _newName: string, _ctx: OpContext): Answer<Entry> {
    throw new FsError('EPERM', 'the service knows no hard links');
  }

  // Attributes

  getattr(ino: Inode, _handle: HandleId | null, _ctx: OpContext): Answer<AttributesReply> {
    return this.#attributesReply(this.#node(ino));
  }

  setattr(ino: Inode, change: AttributeChange, handle: HandleId | null, ctx: OpContext): Answer<AttributesReply> {
    this.#mayWrite();
    if (change.sizeBytes === undefined) return this.#setattr(ino, change);
    const size = change.sizeBytes;
    if (size > FILE_BYTES_MAX) throw new FsError('EFBIG');
    if (this.#node(ino).kind === 'folder') throw new FsError('EISDIR');
    const file = this.files.acquire(ino, 'write');
    const finish = (): AttributesReply => {
      this.#dropPrivilege(ino, ctx);
      // Without a handle nobody will close it: truncate(2) is its own flush.
      if (handle === null) file.flush();
      return this.#setattr(ino, change);
    };
    let waiting: void | Promise<void>;
    try {
      waiting = file.truncate(size, ctx.signal);
      if (!(waiting instanceof Promise)) return finish();
    } finally {
      if (!(waiting! instanceof Promise)) this.files.release(file, 'write');
    }
    return waiting.then(finish).finally(() => this.files.release(file, 'write'));
  }

  getxattr(ino: Inode, name: string, _ctx: OpContext): Answer<Uint8Array> {
    return getXattr(this.#local(ino).xattrs, name);
  }

  setxattr(
    ino: Inode,
    name: string,
    value: Uint8Array,
    mode: 'set' | 'create' | 'replace',
    _ctx: OpContext,
  ): Answer<void> {
    this.#mayWrite();
    const xattrs = withXattr(this.#local(ino).xattrs, name, value, mode);
    this.#change(ino, { xattrs, ctime: this.#now() });
  }

  listxattr(ino: Inode, _ctx: OpContext): Answer<readonly string[]> {
    return Object.keys(this.#local(ino).xattrs ?? {});
  }

  removexattr(ino: Inode, name: string, _ctx: OpContext): Answer<void> {
    this.#mayWrite();
    const xattrs = withoutXattr(this.#local(ino).xattrs, name);
    this.#change(ino, { xattrs, ctime: this.#now() });
  }

  statfs(_ino: Inode, _ctx: OpContext): Answer<FileSystemStats> {
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
    if (flags.access !== 'read' || flags.truncate) this.#mayWrite();
    const waiting = this.#deps.freshness.beforeOpen(ino, ctx.signal);
    if (waiting instanceof Promise) return unlessAborted(waiting, ctx.signal).then(() => this.#open(ino, flags, ctx));
    return this.#open(ino, flags, ctx);
  }

  create(
    parent: Inode,
    name: string,
    mode: number,
    flags: OpenFlags,
    ctx: OpContext,
  ): Answer<Entry & { readonly open: OpenReply }> {
    return this.#afterListing(parent, ctx, () => {
      const entry = this.#create(parent, name, 'file', mode, ctx);
      return { ...entry, open: this.#openHandle(entry.attributes.ino, flags) };
    });
  }

  read(_ino: Inode, handle: HandleId, offset: number, length: number, ctx: OpContext): Answer<ReadReply> {
    const { file, readAhead, flags } = this.#handles.file(handle);
    if (flags.access === 'write') throw new FsError('EBADF');
    const extent = { start: offset, end: Math.min(offset + length, FILE_BYTES_MAX) };
    const pieces = file.read(extent, ctx.signal);
    const ahead = (): void => {
      const wanted = file.content === null ? null : readAhead.afterRead(extent, file.sizeBytes);
      if (wanted !== null && file.content !== null) this.#deps.prefetcher.prefetch(file.content, wanted);
    };
    if (pieces instanceof Promise) {
      return pieces.then((present) => {
        ahead();
        return replyOf(present);
      });
    }
    ahead();
    return replyOf(pieces);
  }

  write(ino: Inode, handle: HandleId, offset: number, data: Uint8Array, ctx: OpContext): Answer<number> {
    const { file, flags } = this.#handles.file(handle);
    if (flags.access === 'read') throw new FsError('EBADF');
    if (offset + data.byteLength > FILE_BYTES_MAX) throw new FsError('EFBIG');
    // The kernel sends O_APPEND writes with the size it knew, which another handle may have passed by now.
    const at = flags.append ? 'append' : offset;
    const waiting = file.write(at, data, ctx.signal);
    if (waiting instanceof Promise) {
      return waiting.then(() => {
        this.#dropPrivilege(ino, ctx);
        return data.byteLength;
      });
    }
    this.#dropPrivilege(ino, ctx);
    return data.byteLength;
  }

  /**
   * close(2), once for every descriptor that shares the handle. After it the bytes survive the death of this process; the
   * service is not waited for. The last moment at which a failure reaches the process that wrote.
   */
  flush(_ino: Inode, handle: HandleId, _ctx: OpContext): Answer<void> {
    const { file, flags } = this.#handles.file(handle);
    if (flags.access !== 'read') file.flush();
  }

  release(ino: Inode, handle: HandleId, _ctx: OpContext): Answer<void> {
    const { file, flags } = this.#handles.file(handle);
    this.#handles.remove(handle);
    try {
      // What a shared mapping wrote after the last close(2) arrives between flush and release.
      if (flags.access !== 'read') file.flush();
    } finally {
      this.files.release(file, flags.access === 'read' ? 'read' : 'write');
      if (flags.access !== 'read') this.#deps.openFile.onWritten(ino);
    }
  }

  /** After it the bytes, and the names, survive a power cut. */
  fsync(_ino: Inode, handle: HandleId, _dataOnly: boolean, _ctx: OpContext): Answer<void> {
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
        return file.truncate(end, ctx.signal);
      }
    };
    if (mode === 'allocate' || mode === 'keep-size') return grow();
    const zeroed = file.zero({ start: offset, end }, ctx.signal);
    return zeroed instanceof Promise ? zeroed.then(grow) : grow();
  }

  lseek(_ino: Inode, handle: HandleId, offset: number, whence: 'data' | 'hole', ctx: OpContext): Answer<number> {
    return this.#handles.file(handle).file.seek(offset, whence, ctx.signal);
  }

  // Folders

  opendir(ino: Inode, ctx: OpContext): Answer<OpenDirectoryReply> {
    const open = (): OpenDirectoryReply => {
      const handle = this.#handles.add({ kind: 'folder', ino, handedOut: new Map() });
      return { handle, cacheListing: true, keepListing: !this.#changedElsewhere.delete(ino) };
    };
    return this.#afterListing(ino, ctx, open);
  }

  readdir(ino: Inode, handle: HandleId, cookie: number, sink: DirectorySink, _ctx: OpContext): Answer<void> {
    const folder = this.#handles.folder(handle);
    const node = this.#node(ino);
    const parent = node.local?.parent ?? ino;
    if (cookie < COOKIE_DOT && !sink.add('.', ino, 'folder', COOKIE_DOT, null)) return;
    if (cookie < COOKIE_DOT_DOT && !sink.add('..', parent, 'folder', COOKIE_DOT_DOT, null)) return;
    const after = this.#nameBefore(folder, cookie);
    if (after === null) return;
    for (const { name, node: child } of this.#tree.children(ino, after)) {
      const entry = sink.wantsEntries ? this.#entry(child) : null;
      const next = child.ino + COOKIE_BASE;
      if (!sink.add(name, child.ino, child.kind, next, entry)) return;
      if (folder.handedOut.size >= HANDED_OUT_MAX)
        folder.handedOut.delete(folder.handedOut.keys().next().value as number);
      folder.handedOut.set(next, name);
    }
  }

  releasedir(_ino: Inode, handle: HandleId, _ctx: OpContext): Answer<void> {
    this.#handles.remove(handle);
  }

  fsyncdir(_ino: Inode, _handle: HandleId, _dataOnly: boolean, _ctx: OpContext): Answer<void> {
    return this.#deps.openFile.store.sync();
  }

  // Private

  #now() {
    return timespecOfMs(this.#deps.clock.nowMs());
  }

  #mayWrite(): void {
    if (this.#deps.options.readOnly) throw new FsError('EROFS');
  }

  /** Waits until `folder` was listed at least once; not longer than the caller wants. */
  #listed(folder: Inode, ctx: OpContext): void | Promise<void> {
    const waiting = this.#deps.freshness.ensureListed(folder, ctx.signal);
    if (waiting instanceof Promise) return unlessAborted(waiting, ctx.signal);
  }

  #afterListing<T>(folder: Inode, ctx: OpContext, act: () => Answer<T>): Answer<T> {
    const waiting = this.#listed(folder, ctx);
    return waiting instanceof Promise ? waiting.then(act) : act();
  }

  /** @throws FsError ESTALE for an inode that no longer exists */
  #node(ino: Inode): NodeRecord & { local: LocalFacet } {
    const node = this.#orphans.get(ino) ?? this.#tree.node(ino);
    if (node?.local == null) throw new FsError('ESTALE', 'this file no longer exists');
    return node as NodeRecord & { local: LocalFacet };
  }

  #local(ino: Inode): LocalFacet {
    return this.#node(ino).local;
  }

  #lookup(parent: Inode, name: string): Entry | NegativeEntry {
    const child = this.#tree.child(parent, name);
    if (child !== undefined) return this.#entry(child);
    if (this.#node(parent).kind !== 'folder') throw new FsError('ENOTDIR');
    return { attributes: null, entryTimeoutMs: this.#deps.options.entryTimeoutMs };
  }

  #attributes(node: NodeRecord): Attributes {
    const orphan = this.#orphans.has(node.ino);
    const unflushed = node.kind === 'file' ? (this.files.get(node.ino)?.unflushed ?? null) : null;
    return attributesOf(node, node.local as LocalFacet, unflushed, orphan ? 0 : 1);
  }

  #attributesReply(node: NodeRecord): AttributesReply {
    return { attributes: this.#attributes(node), attributeTimeoutMs: this.#deps.options.attributeTimeoutMs };
  }

  #entry(node: NodeRecord): Entry {
    const { entryTimeoutMs, attributeTimeoutMs } = this.#deps.options;
    return { attributes: this.#attributes(node), entryTimeoutMs, attributeTimeoutMs };
  }

  #create(parent: Inode, name: string, kind: NodeKind, mode: number, ctx: OpContext): Entry {
    this.#mayWrite();
    const inherited = kind === 'folder' ? this.#local(parent).mode & S_ISGID : 0;
    const node = this.#tree.create(parent, name, {
      kind,
      mode: (mode & 0o7777) | inherited,
      uid: ctx.uid,
      gid: this.#groupIn(parent, ctx),
    });
    return this.#entry(node);
  }

  /** A set-group-ID folder gives its group to what is made in it (inode(7)). */
  #groupIn(parent: Inode, ctx: OpContext): number {
    const folder = this.#local(parent);
    return folder.mode & S_ISGID ? folder.gid : ctx.gid;
  }

  #remove(parent: Inode, name: string, what: 'file' | 'folder'): void {
    this.#mayWrite();
    const { removed } = this.#tree.remove(parent, name, what);
    this.#orphan(removed);
  }

  #orphan(node: NodeRecord): void {
    const unflushed = this.files.get(node.ino)?.unflushed;
    const local = { ...(node.local as LocalFacet), ...(unflushed ?? {}), ctime: this.#now() };
    this.#orphans.set(node.ino, { ...node, local });
    this.files.orphan(node);
  }

  /** Writes attributes of a node, or of one without a name. */
  #change(ino: Inode, patch: Partial<Omit<LocalFacet, 'parent' | 'name'>>): NodeRecord {
    const orphan = this.#orphans.get(ino);
    if (orphan === undefined) return this.#tree.change(ino, patch);
    const changed = { ...orphan, local: { ...(orphan.local as LocalFacet), ...patch } };
    this.#orphans.set(ino, changed);
    return changed;
  }

  #setattr(ino: Inode, change: AttributeChange): AttributesReply {
    const node = this.#node(ino);
    const { local } = node;
    const now = this.#now();
    const patch: { -readonly [K in keyof LocalFacet]?: LocalFacet[K] } = {};
    if (change.mode !== undefined) patch.mode = change.mode & 0o7777;
    if (change.uid !== undefined) patch.uid = change.uid;
    if (change.gid !== undefined) patch.gid = change.gid;
    // chown(2) takes these away from executables, also when root calls.
    if ((change.uid !== undefined || change.gid !== undefined) && node.kind === 'file')
      patch.mode = withoutPrivilege(patch.mode ?? local.mode);
    if (change.atime !== undefined) patch.atime = change.atime === 'now' ? now : change.atime;
    if (change.mtime !== undefined) {
      patch.mtime = change.mtime === 'now' ? now : change.mtime;
      this.files.get(ino)?.forgetTimes({ mtime: true });
    }
    if (Object.keys(patch).length === 0) return this.#attributesReply(this.#node(ino));
    patch.ctime = change.ctime ?? now;
    return this.#attributesReply(this.#change(ino, patch));
  }

  /** A write by anyone but root takes set-user-ID away (HANDLE_KILLPRIV_V2 leaves that to the file system). */
  #dropPrivilege(ino: Inode, ctx: OpContext): void {
    if (ctx.uid === 0) return;
    const { mode } = this.#local(ino);
    const kept = withoutPrivilege(mode);
    if (kept !== mode) this.#change(ino, { mode: kept });
  }

  #open(ino: Inode, flags: OpenFlags, ctx: OpContext): Answer<OpenReply> {
    const node = this.#node(ino);
    if (node.kind === 'folder') throw new FsError('EISDIR');
    const reply = this.#openHandle(ino, flags);
    if (!flags.truncate) return reply;
    const truncated = this.#handles.file(reply.handle).file.truncate(0, ctx.signal);
    this.#dropPrivilege(ino, ctx);
    return truncated instanceof Promise ? truncated.then(() => reply) : reply;
  }

  #openHandle(ino: Inode, flags: OpenFlags): OpenReply {
    const file = this.files.acquire(ino, flags.access === 'read' ? 'read' : 'write');
    const handle = this.#handles.add({ kind: 'file', ino, file, flags, readAhead: new ReadAhead() });
    return { handle, keepCache: !this.#changedElsewhere.delete(ino), directIo: false };
  }

  /** The name after which a listing goes on: undefined for the start, null when the place is lost (then it ends). */
  #nameBefore(folder: FolderHandle, cookie: number): string | undefined | null {
    if (cookie < COOKIE_BASE) return undefined;
    const remembered = folder.handedOut.get(cookie);
    if (remembered !== undefined) return remembered;
    const local = this.#tree.node((cookie - COOKIE_BASE) as Inode)?.local;
    return local != null && local.parent === folder.ino ? local.name : null;
  }

  /** What a merge changed: the kernel is told, so that its long timeouts stay right. */
  #changed(changes: readonly TreeInvalidation[]): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'entry':
          this.#changedElsewhere.add(change.parent);
          this.#invalidator?.entry(change.parent, change.name);
          break;
        case 'deleted':
          this.#changedElsewhere.add(change.parent);
          this.#invalidator?.deleted(change.parent, change.ino, change.name);
          break;
        case 'inode':
          if (change.contentChanged) this.#contentChangedElsewhere(change.ino);
          else this.#invalidator?.inode(change.ino, -1, 0);
          break;
        default:
          change satisfies never;
      }
    }
  }

  #contentChangedElsewhere(ino: Inode): void {
    this.files.detach(ino);
    if (ino !== ROOT_INODE) this.#changedElsewhere.add(ino);
    this.#invalidator?.inode(ino, 0, 0);
  }
}

function withoutPrivilege(mode: number): number {
  const kept = mode & ~S_ISUID;
  return kept & S_IXGRP ? kept & ~S_ISGID : kept;
}

import { constants } from 'node:fs';
import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { FsError } from '../base/errors.ts';
import { type HandleId, type Inode, isSpecial, type NodeKind, type SpecialKind } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { BlockReader } from '../content/block-reader.ts';
import type { OpenFile } from '../content/open-file.ts';
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
  HandleRecord,
  Invalidator,
  NegativeEntry,
  OpContext,
  OpenDirectoryReply,
  OpenFlags,
  OpenReply,
  ReadReply,
  RenameMode,
  WritePlace,
} from '../kernel/binding.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { Freshness } from '../tree/freshness.ts';
import type { NodeChanges } from '../tree/node-changes.ts';
import type { Tree } from '../tree/tree.ts';
import { type Quota, statsOf } from './account-quota.ts';
import { after, lastly, resumed } from './answer-chain.ts';
import { patchOf } from './attribute-change.ts';
import { fillDirectory } from './directory.ts';
import { FILE_BYTES_MAX, FileHandle, type FileHandleDeps } from './file-handle.ts';
import { FolderHandle } from './folder-handle.ts';
import { Handles } from './handles.ts';
import { inheritHandles } from './inherited-handles.ts';
import { KernelCache } from './kernel-cache.ts';
import { NodeView } from './node-view.ts';
import { OpenFiles, type OpenFilesDeps } from './open-files.ts';
import { Removals } from './removals.ts';
import { dropPrivilege, groupIn, modeIn } from './set-id-bits.ts';
import { Symlinks, targetBytes } from './symlinks.ts';
import { TemporaryFiles } from './temporary-files.ts';
import { getXattr, withoutXattr, withXattr } from './xattrs.ts';

export interface FileSystemDeps {
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly contents: Contents;
  readonly prefetcher: Pick<BlockReader, 'prefetch' | 'paceBytes' | 'windowBytesMax'>;
  readonly openFile: Omit<OpenFilesDeps, 'onRepinned' | 'onOtherBytes'>;
  readonly changes: NodeChanges;
  readonly clock: Clock;
  /** The account's last known quota and use, bytes; null before the first report. Never a request. */
  readonly quota: () => Quota | null;
  readonly options: {
    readonly entryTimeoutMs: number;
    readonly attributeTimeoutMs: number;
    readonly readOnly: boolean;
  };
}

/**
 * The FUSE operations: those by inode here, those by handle in `FileHandle`. Names come from the tree, bytes from open files. What the
 * store holds is answered synchronously, without a promise.
 */
export class FileSystem implements FileSystemOps {
  readonly #deps: FileSystemDeps;
  readonly #tree: Tree;
  readonly #handles = new Handles();
  readonly #ofHandles: FileHandleDeps;
  readonly #view: NodeView;
  readonly #cache: KernelCache;
  readonly #removals: Removals;
  readonly #temporary: TemporaryFiles;
  readonly #symlinks: Symlinks;
  readonly #versionSeen: (node: NodeRecord) => void;
  /** The open files: the sync consults them before it seals a draft or trashes a file. */
  readonly files: OpenFiles;

  constructor(deps: FileSystemDeps) {
    this.#deps = deps;
    this.#tree = deps.tree;
    this.files = new OpenFiles({
      ...deps.openFile,
      onRepinned: (ino, was) => this.#cache.repinned(ino, was),
      onOtherBytes: (ino) => this.#cache.otherBytes(ino),
      onHeld: (file, content) => this.#handles.reads(file, content),
      onUnkept: (file) => this.#handles.unkept(file),
      onWritten: this.#handles.whenStored(deps.openFile.onWritten),
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
      onAttributesSent: (ino) => this.#cache.attributesSent(ino),
      entryTimeoutMs,
      attributeTimeoutMs,
    });
    this.#ofHandles = {
      files: this.files,
      view: this.#view,
      contents: deps.contents,
      prefetcher: deps.prefetcher,
      onWritten: deps.openFile.onWritten,
    };
    const parts = { tree: deps.tree, view: this.#view, files: this.files, cache: this.#cache };
    this.#removals = new Removals({ ...parts, handles: this.#handles });
    this.#temporary = new TemporaryFiles(parts);
    this.#symlinks = new Symlinks({ ...parts, contents: deps.contents });
    deps.changes.on('remote', (changes) => {
      this.#handles.changedElsewhere(changes);
      this.#cache.changed(changes);
    });
  }

  init(invalidator: Invalidator, handles?: HandleRecord): void {
    this.#cache.connect(invalidator);
    if (handles === undefined) return;
    const own = { handles: this.#handles, ofHandles: this.#ofHandles, view: this.#view, cache: this.#cache };
    inheritHandles({ ...own, temporary: this.#temporary }, handles, invalidator);
  }

  made(ino: Inode, flags: OpenFlags | null): Entry | (Entry & { readonly open: OpenReply }) {
    const entry = this.#view.entry(this.#view.node(ino));
    return flags === null ? entry : { ...entry, open: this.#openHandle(ino, flags, 'changed') };
  }

  reopened(ino: Inode, handle: HandleId): OpenReply | OpenDirectoryReply | null {
    const opened = this.#handles.get(handle);
    if (opened === undefined) return null;
    if (opened.kind === 'folder') return { handle, cacheListing: true, keepListing: false };
    return { handle, ...this.#cache.openedAs(ino, this.#tree.node(ino)) };
  }

  validated(ino: Inode): void {
    this.#deps.freshness.validated(ino);
  }

  // Names

  lookup(parent: Inode, name: string, ctx: OpContext): Answer<Entry | NegativeEntry> {
    const { freshness } = this.#deps;
    if (!freshness.isListed(parent)) {
      if (this.#tree.child(parent, name) === undefined)
        return this.#afterListing(parent, ctx, () => this.#view.lookup(parent, name));
      // Show a known entry although the folder is not listed yet: it may have been created here.
      freshness.listBehind(parent);
    }
    return this.#view.lookup(parent, name);
  }

  forget(ino: Inode): void {
    this.#view.forget(ino);
    this.#temporary.forget(ino);
  }

  mkdir(parent: Inode, name: string, mode: number, ctx: OpContext): Answer<Entry> {
    return this.#afterListing(parent, ctx, () => this.#create(parent, name, 'folder', mode, ctx));
  }

  mknod(parent: Inode, name: string, kind: 'file' | SpecialKind, mode: number, ctx: OpContext): Answer<Entry> {
    return this.#afterListing(parent, ctx, () => this.#create(parent, name, kind, mode, ctx));
  }

  symlink(parent: Inode, name: string, target: string, ctx: OpContext): Answer<Entry> {
    const bytes = targetBytes(target);
    return this.#afterListing(parent, ctx, () => {
      this.mayWrite();
      return this.#symlinks.create(parent, name, bytes, ctx);
    });
  }

  readlink(ino: Inode, ctx: OpContext): Answer<string> {
    return this.#symlinks.target(ino, ctx);
  }

  unlink(parent: Inode, name: string, ctx: OpContext): Answer<void> {
    return this.#afterListing(parent, ctx, () => this.#remove(parent, name, 'file'));
  }

  rmdir(parent: Inode, name: string, ctx: OpContext): Answer<void> {
    return this.#afterListing(parent, ctx, () => {
      const folder = this.#tree.child(parent, name);
      if (folder?.kind !== 'folder') return this.#remove(parent, name, 'folder');
      // Only its own listing shows whether the folder is empty.
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
          this.#removals.losing(parent, name, false);
          this.#removals.losing(newParent, newName, mode !== 'exchange');
          const { moved, replaced } = this.#tree.rename(parent, name, newParent, newName, mode);
          this.#removals.left(parent, moved, name);
          if (target !== undefined) this.#removals.left(newParent, target, newName);
          if (replaced !== null) this.#removals.lost(replaced);
        };
        if (target?.kind === 'folder' && mode === 'replace') return this.#afterListing(target.ino, ctx, act);
        return act();
      }),
    );
  }

  /** @throws FsError EPERM except for an unnamed O_TMPFILE file: link(2)'s error for a file system without hard links */
  mayLink(ino: Inode): void {
    if (!this.#temporary.has(ino)) throw new FsError('EPERM', 'the service does not support hard links');
  }

  link(ino: Inode, newParent: Inode, newName: string, ctx: OpContext): Answer<Entry> {
    this.mayLink(ino);
    return this.#afterListing(newParent, ctx, () => this.#temporary.name(ino, newParent, newName));
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
    const { kind } = this.#view.node(ino);
    if (kind === 'folder' || isSpecial(kind)) throw new FsError(kind === 'folder' ? 'EISDIR' : 'EINVAL');
    const by = handle === null ? null : this.#handles.file(handle);
    by?.changes();
    const opened = by?.file ?? null;
    const file = opened ?? this.files.acquire(ino, 'write');
    if (opened === null) this.files.addChanger(file);
    const finish = (): AttributesReply => {
      dropPrivilege(this.#view, ino, ctx);
      // No close(2) follows without a handle: truncate(2) flushes itself, and an emptied file is final, not the start of a rewrite.
      if (handle === null) file.flush();
      if (handle === null && size === 0) file.closedByWriter();
      return this.#setattr(ino, change);
    };
    if (opened !== null) return after(file.truncate(size, ctx), finish);
    return lastly(
      () => after(file.truncate(size, ctx), finish),
      () => this.#changed(file),
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
    return statsOf(this.#deps.quota());
  }

  // Files

  open(ino: Inode, flags: OpenFlags, ctx: OpContext): Answer<OpenReply> {
    if (flags.access !== 'read' || flags.truncate) this.mayWrite();
    return resumed(this.#deps.freshness.beforeOpen(ino, ctx), ctx, () => this.#open(ino, flags, ctx));
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
      // The file was created elsewhere after the kernel's lookup: without O_EXCL, open(2) opens the existing file. The kernel considers it
      // new and skips the permission check, so this applies to its owner alone.
      const isOwn = ctx.uid === 0 || ctx.uid === existing?.local?.uid;
      if (existing?.kind === 'file' && isOwn && (flags.raw & constants.O_EXCL) === 0) {
        // Read the entry after the open: the open may wait for a listing that brings another version.
        const now = () => this.#view.entry(this.#view.node(existing.ino));
        return after(this.open(existing.ino, flags, ctx), (open) => ({ ...now(), open }));
      }
      const entry = this.#create(parent, name, 'file', mode, ctx);
      return { ...entry, open: this.#openHandle(entry.attributes.ino, flags, 'changed') };
    });
  }

  tmpfile(parent: Inode, mode: number, flags: OpenFlags, ctx: OpContext): Answer<Entry & { readonly open: OpenReply }> {
    this.mayWrite();
    if (this.#isGone(parent)) throw new FsError('ENOENT');
    const entry = this.#temporary.create(this.#view.local(parent), mode, ctx);
    return { ...entry, open: this.#openHandle(entry.attributes.ino, flags, 'changed') };
  }

  read(_ino: Inode, handle: HandleId, offset: number, length: number, ctx: OpContext): Answer<ReadReply> {
    return this.#handles.file(handle).read(offset, length, ctx);
  }

  write(
    _ino: Inode,
    handle: HandleId,
    offset: number,
    data: Uint8Array,
    ctx: OpContext,
    place?: WritePlace,
  ): Answer<number> {
    return this.#handles.file(handle).write(offset, data, ctx, place);
  }

  flush(_ino: Inode, handle: HandleId): Answer<void> {
    this.#handles.file(handle).flush();
  }

  release(_ino: Inode, handle: HandleId): Answer<void> {
    return this.#handles.close(handle);
  }

  get openFolders(): Iterable<Inode> {
    return this.#handles.openFolders;
  }

  /** After unmount. */
  unmounted(): void {
    this.#handles.closeWhole((ino, err) => this.#deps.openFile.log.warn({ ino, err }, 'file not closed at unmount'));
  }

  /** When it returns, bytes and names survive a power cut. */
  fsync(_ino: Inode, handle: HandleId): Answer<void> {
    return this.#handles.file(handle).file.sync();
  }

  fallocate(
    _ino: Inode,
    handle: HandleId,
    mode: AllocateMode,
    offset: number,
    length: number,
    ctx: OpContext,
  ): Answer<void> {
    return this.#handles.file(handle).allocate(mode, offset, length, ctx);
  }

  lseek(_ino: Inode, handle: HandleId, offset: number, whence: 'data' | 'hole', ctx: OpContext): Answer<number> {
    return this.#handles.file(handle).file.seek(offset, whence, ctx);
  }

  // Folders

  opendir(ino: Inode, ctx: OpContext): Answer<OpenDirectoryReply> {
    const open = (): OpenDirectoryReply => {
      const handle = this.#handles.add(new FolderHandle(ino));
      return { handle, cacheListing: true, keepListing: this.#cache.mayKeep(ino) };
    };
    return this.#isGone(ino) ? open() : this.#afterListing(ino, ctx, open);
  }

  readdir(ino: Inode, handle: HandleId, cookie: number, sink: DirectorySink): Answer<void> {
    if (this.#isGone(ino)) return;
    const seen = (node: NodeRecord): void => {
      if (sink.wantsEntries) this.#cache.attributesSent(node.ino);
      this.#versionSeen(node);
    };
    fillDirectory({ tree: this.#tree, view: this.#view, seen }, this.#handles.folder(handle), cookie, sink);
  }

  releasedir(_ino: Inode, handle: HandleId): Answer<void> {
    this.#handles.remove(handle);
  }

  fsyncdir(): Answer<void> {
    return this.#deps.openFile.store.sync();
  }

  /** Copies owner, permissions and attributes of `from` to `ino`, without a process that is allowed to set them. */
  copyAttributes(ino: Inode, from: Inode): void {
    this.mayWrite();
    const { mode, uid, gid, xattrs } = this.#view.local(from);
    this.#view.change(ino, { mode, uid, gid, xattrs });
    this.#cache.changed([{ kind: 'inode', ino, was: null }]);
  }

  /** @throws FsError EROFS on a read-only mount */
  mayWrite(): void {
    if (this.#deps.options.readOnly) throw new FsError('EROFS');
  }

  /** Whether the folder has lost its name, here or elsewhere. A process that has it as working directory finds it empty, as on ext4. */
  #isGone(folder: Inode): boolean {
    return this.#view.isNameless(folder) || this.#tree.node(folder)?.local == null;
  }

  /** Runs `act` once `folder` has been listed: immediately, or after a wait that `ctx.signal` ends. */
  #afterListing<T>(folder: Inode, ctx: OpContext, act: () => Answer<T>): Answer<T> {
    // `ctx.signal` is created on first access: calls that do not wait do not pay for it.
    if (this.#deps.freshness.isListed(folder)) return act();
    const waiting = this.#deps.freshness.ensureListed(folder, ctx.signal);
    return waiting instanceof Promise ? resumed(unlessAborted(waiting, ctx.signal), ctx, act) : act();
  }

  #create(parent: Inode, name: string, kind: NodeKind, mode: number, ctx: OpContext): Entry {
    this.mayWrite();
    const folder = this.#view.local(parent);
    const made = { kind, mode: modeIn(folder, kind, mode), uid: ctx.uid, gid: groupIn(folder, ctx) };
    return this.#view.entry(this.#tree.create(parent, name, made));
  }

  #remove(parent: Inode, name: string, what: 'file' | 'folder'): void {
    this.mayWrite();
    const { removed } = this.#tree.remove(parent, name, what, (node) =>
      this.#removals.losing(parent, name, true, node),
    );
    this.#removals.left(parent, removed, name);
    this.#removals.lost(removed);
  }

  #setattr(ino: Inode, change: AttributeChange): AttributesReply {
    const patch = patchOf(change, this.#view.node(ino), this.#view.now());
    if (patch === null) return this.#view.reply(ino);
    // Unflushed bytes have an mtime of their own, which this patch replaces: write both in one record.
    const unflushed = patch.mtime === undefined ? [] : this.files.of(ino);
    const written = unflushed.filter((file) => file.flush(patch));
    if (written.length === 0) this.#view.change(ino, patch);
    return this.#view.reply(ino);
  }

  #open(ino: Inode, flags: OpenFlags, ctx: OpContext): Answer<OpenReply> {
    const node = this.#view.node(ino);
    if (node.kind === 'folder') throw new FsError('EISDIR');
    // The kernel opens FIFOs itself, and refuses sockets: open(2).
    if (isSpecial(node.kind)) throw new FsError('ENXIO');
    if (!flags.truncate) return this.#openHandle(ino, flags);
    // Truncate before the handle exists: the kernel never releases a handle that it did not get, and a full disk may fail the truncation.
    const file = this.files.acquire(ino, 'write');
    this.files.addChanger(file);
    const empty = () =>
      after(file.truncate(0, ctx), () => {
        dropPrivilege(this.#view, ino, ctx);
        // O_RDONLY|O_TRUNC empties the file as well, and closing a reader does not flush.
        if (flags.access === 'read') file.flush();
        return this.#openHandle(ino, flags, 'changed');
      });
    return lastly(empty, () => this.#changed(file));
  }

  /** Ends a change that was made without a handle, or before one existed. */
  #changed(file: OpenFile): void {
    this.files.removeChanger(file);
    this.files.release(file, 'write');
  }

  /** @param how `changed`: this open created or emptied the file */
  #openHandle(ino: Inode, flags: OpenFlags, how: 'as it is' | 'changed' = 'as it is'): OpenReply {
    const opened = new FileHandle(this.#ofHandles, ino, flags);
    if (how === 'changed') opened.changes();
    const handle = this.#handles.add(opened);
    return { handle, ...this.#cache.openedAs(ino, this.#tree.node(ino)) };
  }
}

import type { HandleId, Inode, NodeKind, SpecialKind, Timespec } from '../base/vocabulary.ts';

/**
 * The contract between a kernel binding and a file system: types only. It is the low-level one (inodes and lookup counts), as
 * in linux/fuse.h: paths can be built on inodes, never inodes on paths.
 *
 * An operation returns `T | Promise<T>`: the answer itself when everything is here, a promise only when something must be
 * fetched or synced. What it throws (or rejects with) becomes an errno in `op-boundary`, nowhere else.
 */
export type Answer<T> = T | Promise<T>;

/** Who asks. `signal` aborts when the kernel interrupts the request (the process got a signal); made on first use. */
export interface OpContext {
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
  readonly umask: number;
  readonly signal: AbortSignal;
}

/** Attributes of an inode as stat(2) shows them. */
export interface Attributes {
  readonly ino: Inode;
  readonly kind: NodeKind;
  /** Permission bits only (07777); the binding adds the file type. */
  readonly mode: number;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  /** In units of 512 bytes. */
  readonly blocks512: number;
  readonly atime: Timespec;
  readonly mtime: Timespec;
  readonly ctime: Timespec;
}

/** Answer to lookup and to everything that creates: counts as one lookup of `attributes.ino`, to be returned by `forget`. */
export interface Entry {
  readonly attributes: Attributes;
  /** How long the kernel may keep the name, and the attributes, without asking; milliseconds. */
  readonly entryTimeoutMs: number;
  readonly attributeTimeoutMs: number;
}

/** The name is known to be absent: the kernel may keep that for `entryTimeoutMs`. Cheaper than throwing ENOENT. */
export interface NegativeEntry {
  readonly attributes: null;
  readonly entryTimeoutMs: number;
}

export interface AttributesReply {
  readonly attributes: Attributes;
  readonly attributeTimeoutMs: number;
}

export interface OpenReply {
  readonly handle: HandleId;
  /** The bytes are those of the last open: the kernel keeps its page cache (FOPEN_KEEP_CACHE). */
  readonly keepCache: boolean;
  /** Reads and writes bypass the page cache (FOPEN_DIRECT_IO). */
  readonly directIo: boolean;
}

export interface OpenDirectoryReply {
  readonly handle: HandleId;
  /** The kernel may keep the listing in its cache (FOPEN_CACHE_DIR), and use what it has kept (FOPEN_KEEP_CACHE). */
  readonly cacheListing: boolean;
  readonly keepListing: boolean;
}

/** What setattr changes; absent fields stay. */
export interface AttributeChange {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly sizeBytes?: number;
  /** `'now'`: the time of this moment, by the file system's clock. */
  readonly atime?: Timespec | 'now';
  readonly mtime?: Timespec | 'now';
  readonly ctime?: Timespec;
}

/** A range of a local file: the binding copies it into the reply without JavaScript touching the bytes. */
export interface FileSlice {
  readonly fd: number;
  readonly position: number;
  readonly length: number;
  /**
   * Called once the bytes have been copied, or never will be: until then they must stay where they are (a lease ends here). That is
   * during the answer when they are in the page cache, and later when a thread of the pool has to read them. The descriptor itself
   * may be closed at once.
   */
  sent?(): void;
}

/** Bytes of a read, in order. Fewer than asked for mean the end of the file, never "not here yet". */
export type ReadReply = Uint8Array | FileSlice | readonly (Uint8Array | FileSlice)[];

/**
 * Receives directory entries until it says it is full. `cookie` is what the kernel sends as `offset` to go on *after* this
 * entry: it must stay valid while the directory changes. With `entry` the kernel also learns the attributes (READDIRPLUS),
 * and that counts as one lookup unless the name is `.` or `..`.
 */
export interface DirectorySink {
  /** Whether the kernel asked for attributes too; without, `entry` may be null. */
  readonly wantsEntries: boolean;
  /** @returns false when the entry did not fit: stop, it is asked for again. */
  add(name: string, ino: Inode, kind: NodeKind, cookie: number, entry: Entry | null): boolean;
}

export interface FileSystemStats {
  readonly blockBytes: number;
  readonly blocks: number;
  readonly blocksFree: number;
  readonly blocksAvailable: number;
  readonly files: number;
  readonly filesFree: number;
  readonly nameBytesMax: number;
}

export type RenameMode = 'replace' | 'no-replace' | 'exchange';
/**
 * Where the bytes of a write belong: where `offset` says, or at the end (O_APPEND), which the kernel, that may not have heard of a newer
 * size, takes to be at `offset`. What a shared mapping wrote belongs at its offset, whatever handle it comes through.
 */
export type WritePlace = 'offset' | 'end';
export type AllocateMode = 'allocate' | 'keep-size' | 'punch-hole' | 'zero-range' | 'zero-range-keep-size';

/** The open(2) flags that reach a file system, decoded. The raw number is there for what is not listed. */
export interface OpenFlags {
  readonly access: 'read' | 'write' | 'read-write';
  readonly append: boolean;
  readonly truncate: boolean;
  readonly raw: number;
}

/** Names are valid UTF-8 without `/` and NUL and at most 255 bytes: the binding answers EILSEQ, ENAMETOOLONG by itself. */
export interface FileSystemOps {
  /** Called once, after the kernel and the binding agreed; notifications may be sent from now on. */
  init?(invalidator: Invalidator): void;
  /** Unmounted, or the connection is gone: nothing more will be asked. */
  destroy?(): void;

  /**
   * Where a folder stands; null for the root, and for what is not known. Asked only when the kernel must be told of more names of the
   * folder than can be kept: its own name is told instead, and what is below goes with it.
   */
  placeOf?(folder: Inode): { readonly parent: Inode; readonly name: string } | null;

  lookup(parent: Inode, name: string, ctx: OpContext): Answer<Entry | NegativeEntry>;
  /** Returns `count` lookups of `ino`. No answer, never fails. */
  forget(ino: Inode, count: number): void;
  getattr(ino: Inode, handle: HandleId | null, ctx: OpContext): Answer<AttributesReply>;
  setattr(ino: Inode, change: AttributeChange, handle: HandleId | null, ctx: OpContext): Answer<AttributesReply>;
  readlink(ino: Inode, ctx: OpContext): Answer<string>;
  symlink(parent: Inode, name: string, target: string, ctx: OpContext): Answer<Entry>;
  /** mknod(2), and bind(2) of a unix socket; the binding refuses devices with EPERM. */
  mknod(parent: Inode, name: string, kind: 'file' | SpecialKind, mode: number, ctx: OpContext): Answer<Entry>;
  mkdir(parent: Inode, name: string, mode: number, ctx: OpContext): Answer<Entry>;
  unlink(parent: Inode, name: string, ctx: OpContext): Answer<void>;
  rmdir(parent: Inode, name: string, ctx: OpContext): Answer<void>;
  rename(
    parent: Inode,
    name: string,
    newParent: Inode,
    newName: string,
    mode: RenameMode,
    ctx: OpContext,
  ): Answer<void>;
  /** link(2). Only a file of `tmpfile` that has no name yet can get one: hard links are refused. */
  link(ino: Inode, newParent: Inode, newName: string, ctx: OpContext): Answer<Entry>;

  open(ino: Inode, flags: OpenFlags, ctx: OpContext): Answer<OpenReply>;
  create(
    parent: Inode,
    name: string,
    mode: number,
    flags: OpenFlags,
    ctx: OpContext,
  ): Answer<Entry & { readonly open: OpenReply }>;
  /** open(2) with O_TMPFILE: a file without a name, which `link` may give one; else it is gone with its last descriptor. */
  tmpfile(parent: Inode, mode: number, flags: OpenFlags, ctx: OpContext): Answer<Entry & { readonly open: OpenReply }>;
  read(ino: Inode, handle: HandleId, offset: number, length: number, ctx: OpContext): Answer<ReadReply>;
  /**
   * `data` is valid until the answer is given, not longer. `place` is absent where the binding is not told.
   * @returns bytes taken: all of them, or it throws.
   */
  write(
    ino: Inode,
    handle: HandleId,
    offset: number,
    data: Uint8Array,
    ctx: OpContext,
    place?: WritePlace,
  ): Answer<number>;
  /** close(2), once per descriptor that shares the handle; perhaps not for handles that only read. The last moment at which a failure reaches the process. */
  flush(ino: Inode, handle: HandleId, ctx: OpContext): Answer<void>;
  /** The last descriptor and mapping of the handle are gone. What it throws, the kernel drops. */
  release(ino: Inode, handle: HandleId, ctx: OpContext): Answer<void>;
  fsync(ino: Inode, handle: HandleId, dataOnly: boolean, ctx: OpContext): Answer<void>;
  fallocate(
    ino: Inode,
    handle: HandleId,
    mode: AllocateMode,
    offset: number,
    length: number,
    ctx: OpContext,
  ): Answer<void>;
  /** lseek(2) with SEEK_DATA or SEEK_HOLE. @throws FsError ENXIO past the end */
  lseek(ino: Inode, handle: HandleId, offset: number, whence: 'data' | 'hole', ctx: OpContext): Answer<number>;

  opendir(ino: Inode, ctx: OpContext): Answer<OpenDirectoryReply>;
  /** Entries after `cookie` (0: from the start) into `sink`. */
  readdir(ino: Inode, handle: HandleId, cookie: number, sink: DirectorySink, ctx: OpContext): Answer<void>;
  releasedir(ino: Inode, handle: HandleId, ctx: OpContext): Answer<void>;
  fsyncdir(ino: Inode, handle: HandleId, dataOnly: boolean, ctx: OpContext): Answer<void>;

  statfs(ino: Inode, ctx: OpContext): Answer<FileSystemStats>;
  /** `security.*` and `system.posix_acl_*` never arrive: the binding answers ENODATA/EOPNOTSUPP for them. */
  getxattr(ino: Inode, name: string, ctx: OpContext): Answer<Uint8Array>;
  setxattr(
    ino: Inode,
    name: string,
    value: Uint8Array,
    mode: 'set' | 'create' | 'replace',
    ctx: OpContext,
  ): Answer<void>;
  listxattr(ino: Inode, ctx: OpContext): Answer<readonly string[]>;
  removexattr(ino: Inode, name: string, ctx: OpContext): Answer<void>;
}

/**
 * Tells the kernel to forget what it keeps. Returns at once: a helper thread does the writing, because a notification can
 * block on a lock that only a reply can release. No reply ever waits for one.
 */
export interface Invalidator {
  /** Attributes, and cached bytes from `offset` (length 0: to the end; offset -1: attributes only). */
  inode(ino: Inode, offset: number, length: number): void;
  /** The name, present or absent, in `parent`. */
  entry(parent: Inode, name: string): void;
  /** The name is gone: also ends watches and lets `child` go where it is still in use. */
  deleted(parent: Inode, child: Inode, name: string): void;
  /**
   * The bytes of `ino` were replaced, and programs go on reading those that they opened: to the kernel the name is another file from now
   * on, with pages and a size of its own. `older`: what those programs have open, null once it is closed, and who asks: a program by
   * stat(2), or the kernel on behalf of a read(2). False, or absent, where a file cannot be two: then `inode` is the word.
   */
  replaced?(parent: Inode, name: string, ino: Inode, older: (asker?: 'program' | 'read') => Attributes | null): boolean;
  /**
   * A program is removing the folder: rmdir(2), or rename(2) of another one over it. As long as somebody sits in it the kernel lets nobody
   * into it any more; should it be there again, it is another folder to the kernel.
   */
  folderRemoved?(folder: Inode): void;
}

export interface MountOptions {
  readonly directory: string;
  /** Shown in /proc/mounts as the source, and how a dead mount of ours is recognised. */
  readonly fsname: string;
  readonly subtype: string;
  readonly readOnly: boolean;
  readonly allowOther: boolean;
  readonly defaultPermissions: boolean;
  /** noatime, nosuid, nodev, noexec, … as mount(8) names them. */
  readonly flags: readonly string[];
  readonly allowNonEmpty: boolean;
  /** Names of negotiated features to do without (tests of old kernels). */
  readonly maskedFeatures: readonly string[];
}

/** A mounted file system. */
export interface MountedFileSystem {
  readonly directory: string;
  /** Of the mount, as the mount table has it: the directory may have another one by the time this one is to go. */
  readonly device: string;
  readonly invalidator: Invalidator;
  /** Ends when the mount is gone for whatever reason: unmounted from outside, `unmount()`, or a broken connection. */
  readonly ended: Promise<'unmounted' | 'aborted'>;
  /** `'lazily'` detaches even when in use. Idempotent. @throws FsError EBUSY when in use and not lazily */
  unmount(how: 'orderly' | 'lazily'): Promise<void>;
  /**
   * Resolves when what programs had asked before the call was looked at. close(2) waits for FLUSH, not for RELEASE: that may still be
   * in the kernel's queue when the program's next command arrives here by another way.
   */
  caughtUp(): Promise<void>;
  /**
   * Resolves when the kernel was told all that there was to tell it: what programs look up next is what is here. It is not waited for
   * longer than a moment, because it may stand still for as long as a program waits for the service in the same folder.
   */
  told(): Promise<void>;
}

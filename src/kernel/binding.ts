import type { DraftRecord } from '../base/draft-record.ts';
import type { ContentId, HandleId, Inode, NodeKind, SpecialKind, Timespec } from '../base/vocabulary.ts';

/**
 * The contract between a kernel binding and a file system: types only. It is the low-level interface of linux/fuse.h (inodes and lookup
 * counts): paths can be built on inodes, never inodes on paths.
 *
 * An operation returns `T | Promise<T>`: the answer itself if the store has everything, a promise only for a fetch or a sync. `op-boundary`
 * alone converts what it throws (or rejects with) to an errno.
 */
export type Answer<T> = T | Promise<T>;

/** The caller. `signal` aborts when the kernel interrupts the request (the process got a signal); created on first use. */
export interface OpContext {
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
  readonly umask: number;
  readonly signal: AbortSignal;
  /** Runs the rest of an operation after a wait: its changes are recorded as those of this request. Absent where nothing is recorded. */
  during?<T>(act: () => T): T;
  /** Called right before the bytes of an append change the draft. @returns false if an earlier process has appended them. Absent as `during` */
  appends?(content: ContentId): boolean;
  /** They could not be appended. */
  appendFailed?(content: ContentId): void;
}

/** An open handle, as far as a successor of this process needs it. */
export interface OpenHandle {
  readonly handle: HandleId;
  readonly ino: Inode;
  readonly kind: 'file' | 'folder';
  /** `OpenFlags.raw`; 0 for a folder. */
  readonly flags: number;
  /** The content that it reads; null before the first access. `older`: an older version than the newest, of which it has read nothing. */
  readonly content: ContentId | 'older' | null;
  /** The file was changed through it. */
  readonly hasChanged: boolean;
  /** Part of the file's changes is in the memory of this process alone: `DraftRecord` has no room for them. */
  readonly isUnstored: boolean;
}

/** A handle of an earlier process. */
export interface InheritedHandle extends OpenHandle {
  /** Of a folder: the `LeftEntry.order` of the first entry that left it after it was opened, or read from the beginning again. */
  readonly leftFrom: number;
}

/** The open handles of a mount, recorded outside this process for its successor (`--continuity`). */
export interface HandleRecord {
  /** The numbers of handles begin here. No process of the same mount uses them again. */
  readonly firstHandle: number;
  readonly drafts: DraftRecord;
  readonly removals: RemovalRecord;
  /** The handles of earlier processes that are still open. */
  inherited(): Iterable<InheritedHandle>;
  opened(handle: OpenHandle): void;
  /** The first change of the file through the handle. */
  changed(handle: HandleId): void;
  /** `isUnstored`: the field of `OpenHandle`. */
  unstored(handle: HandleId, isUnstored: boolean): void;
  reads(handle: HandleId, content: ContentId | 'older'): void;
  /** The listing of a folder begins again. */
  rewound(handle: HandleId): void;
  closed(handle: HandleId): void;
}

/** A node that lost its last name while programs use it. */
export interface NamelessNode {
  readonly ino: Inode;
  /** As the file system encodes it. */
  readonly node: Uint8Array;
}

/** An entry that left a folder, or got another name in it, while the folder was open. */
export interface LeftEntry {
  readonly folder: Inode;
  readonly entry: Inode;
  readonly name: string;
  /** The number of recorded entries before it. */
  readonly order: number;
}

/** What was removed while programs use it, recorded outside this process for its successor (`--continuity`). */
export interface RemovalRecord {
  nameless(): Iterable<NamelessNode>;
  /** The node is about to lose its last name, or has changed since. */
  lost(ino: Inode, node: Uint8Array): void;
  /** The node is no longer in use, or has a name. */
  dropped(ino: Inode): void;
  /** The latest entries, oldest first. */
  left(): Iterable<LeftEntry>;
  /** `entry` is about to lose `name` in `folder`. */
  leaves(folder: Inode, entry: Inode, name: string): void;
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

/** Reply to lookup and to every creating operation: counts as one lookup of `attributes.ino`, which `forget` returns. */
export interface Entry {
  readonly attributes: Attributes;
  /** How long the kernel may cache the name, and the attributes, without revalidation; milliseconds. */
  readonly entryTimeoutMs: number;
  readonly attributeTimeoutMs: number;
}

/** The name is known to be absent: the kernel may cache that for `entryTimeoutMs`. Cheaper than throwing ENOENT. */
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
  /** The bytes are unchanged since the last open: the kernel keeps its page cache (FOPEN_KEEP_CACHE). */
  readonly keepCache: boolean;
  /** Reads and writes bypass the page cache (FOPEN_DIRECT_IO). */
  readonly directIo: boolean;
}

export interface OpenDirectoryReply {
  readonly handle: HandleId;
  /** The kernel may cache the listing (FOPEN_CACHE_DIR), and use a cached one (FOPEN_KEEP_CACHE). */
  readonly cacheListing: boolean;
  readonly keepListing: boolean;
}

/** The attributes that setattr changes; absent fields stay. */
export interface AttributeChange {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly sizeBytes?: number;
  /** `'now'`: the current time of the file system's clock. */
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
   * Called once the bytes have been copied, or never will be: a lease on them ends here. Bytes in the page cache are copied during the
   * reply, others later by a thread of the pool. The descriptor itself may be closed immediately.
   */
  sent?(): void;
}

/** Bytes of a read, in order. Fewer than requested mean the end of the file, never missing data. */
export type ReadReply = Uint8Array | FileSlice | readonly (Uint8Array | FileSlice)[];

/**
 * Receives directory entries until it is full. The kernel sends `cookie` back as `offset` to continue *after* this entry: it must stay
 * valid while the directory changes. `entry` passes the attributes too (READDIRPLUS), and counts as one lookup unless the name is `.`
 * or `..`.
 */
export interface DirectorySink {
  /** Whether the kernel requested attributes too; if not, `entry` may be null. */
  readonly wantsEntries: boolean;
  /** @returns false if the entry did not fit: stop, the kernel requests it again */
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
 * Where the bytes of a write go: to `offset`, or to the end (O_APPEND). The kernel sends an append with its own idea of the end, which
 * may be outdated. A write of a shared mapping goes to its offset, through any handle.
 */
export type WritePlace = 'offset' | 'end';
export type AllocateMode = 'allocate' | 'keep-size' | 'punch-hole' | 'zero-range' | 'zero-range-keep-size';

/** The open(2) flags that reach a file system, decoded; `raw` has the others. */
export interface OpenFlags {
  readonly access: 'read' | 'write' | 'read-write';
  readonly append: boolean;
  readonly truncate: boolean;
  readonly raw: number;
}

/** Names are valid UTF-8 without `/` and NUL, at most 255 bytes: for others the binding replies EILSEQ or ENAMETOOLONG. */
export interface FileSystemOps {
  /**
   * Called once, after kernel and binding have agreed; notifications may be sent from now on.
   *
   * @param handles where open handles are recorded; absent without `--continuity`
   */
  init?(invalidator: Invalidator, handles?: HandleRecord): void;
  /** Unmounted, or the connection is gone: no further request follows. */
  destroy?(): void;

  /** The parent and name of a folder; null for the root and for an unknown one. */
  placeOf?(folder: Inode): { readonly parent: Inode; readonly name: string } | null;
  /** A client found its cached entries or bytes valid by the attributes of the node. It may send no other request for long. */
  validated?(ino: Inode): void;
  /**
   * The reply to an operation that an earlier process carried out: it made `ino`.
   *
   * @param flags of a `create`, which opens the file too
   */
  made?(ino: Inode, flags: OpenFlags | null): Entry | (Entry & { readonly open: OpenReply });
  /**
   * The reply to an operation by which an earlier process opened `handle`, and that it did not answer.
   *
   * @returns null if the handle is lost: it is to be released, and the operation to be carried out
   */
  reopened?(ino: Inode, handle: HandleId): OpenReply | OpenDirectoryReply | null;

  lookup(parent: Inode, name: string, ctx: OpContext): Answer<Entry | NegativeEntry>;
  /** Returns `count` lookups of `ino`. No reply, never fails. */
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
  /** open(2) with O_TMPFILE: a nameless file, which `link` may name; otherwise its last close deletes it. */
  tmpfile(parent: Inode, mode: number, flags: OpenFlags, ctx: OpContext): Answer<Entry & { readonly open: OpenReply }>;
  read(ino: Inode, handle: HandleId, offset: number, length: number, ctx: OpContext): Answer<ReadReply>;
  /**
   * `data` is valid until the reply, not longer. `place` is absent if the binding cannot know it.
   * @returns bytes written: all of them, or it throws.
   */
  write(
    ino: Inode,
    handle: HandleId,
    offset: number,
    data: Uint8Array,
    ctx: OpContext,
    place?: WritePlace,
  ): Answer<number>;
  /** close(2), once per descriptor that shares the handle; perhaps not for read-only handles. The last chance to report a failure. */
  flush(ino: Inode, handle: HandleId, ctx: OpContext): Answer<void>;
  /** The last descriptor and mapping of the handle are closed. The kernel drops the error. */
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
  /** Adds the entries after `cookie` (0: from the start) to `sink`. */
  readdir(ino: Inode, handle: HandleId, cookie: number, sink: DirectorySink, ctx: OpContext): Answer<void>;
  releasedir(ino: Inode, handle: HandleId, ctx: OpContext): Answer<void>;
  fsyncdir(ino: Inode, handle: HandleId, dataOnly: boolean, ctx: OpContext): Answer<void>;

  statfs(ino: Inode, ctx: OpContext): Answer<FileSystemStats>;
  /** `security.*` and `system.posix_acl_*` never arrive: the binding replies ENODATA/EOPNOTSUPP to them. */
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
 * Invalidates the kernel's caches. Each call returns immediately: a helper thread writes the notification, because that can block on a
 * lock that only a reply releases. No reply ever waits for one.
 */
export interface Invalidator {
  /** Attributes, and cached bytes from `offset` (length 0: to the end; offset -1: attributes only). */
  inode(ino: Inode, offset: number, length: number): void;
  /** The name in `parent`, cached as present or absent. Only if it has changed: older kernels drop it, also if a process is in the folder. */
  entry(parent: Inode, name: string): void;
  /** Names appeared in `folder` that no reply has called absent. Absent if the kernel caches nothing else of a folder. */
  firstEntries?(folder: Inode): void;
  /** The name was deleted: also ends watches, and drops `child` even if it is in use. */
  deleted(parent: Inode, child: Inode, name: string): void;
  /**
   * The bytes of `ino` were replaced while programs read the old ones: from now on the name is another file to the kernel, with its own pages
   * and size. `older` returns the attributes of the old file for its open handles, null once these are closed. Its `asker` is a program
   * (stat(2)) or the kernel (as part of a read(2)). False, or absent, if a file cannot be split: call `inode` instead.
   */
  replaced?(parent: Inode, name: string, ino: Inode, older: (asker?: 'program' | 'read') => Attributes | null): boolean;
  /**
   * A program removes the folder by rmdir(2), or by rename(2) of another one over it. While a process has it as working directory, the kernel
   * refuses every access to it. A folder that reappears must therefore be another one to the kernel.
   */
  folderRemoved?(folder: Inode): void;
}

/**
 * The calls of a helper process in the mount. The binding passes requests from `pid` to `ops`, and all others to the operations that are mounted.
 */
export interface CallsOfHelper {
  /** null: no helper runs. Never 0, which stands for a process that the kernel cannot name here. */
  readonly pid: number | null;
  readonly ops: FileSystemOps;
}

export interface MountOptions {
  readonly directory: string;
  /** The source in /proc/mounts; identifies a dead mount of this program. */
  readonly fsname: string;
  readonly subtype: string;
  readonly readOnly: boolean;
  readonly allowOther: boolean;
  readonly defaultPermissions: boolean;
  /** noatime, nosuid, nodev, noexec, … as mount(8) names them. */
  readonly flags: readonly string[];
  readonly allowNonEmpty: boolean;
  /** Negotiated features to leave out (tests of old kernels). */
  readonly maskedFeatures: readonly string[];
}

/** A mounted file system. */
export interface MountedFileSystem {
  readonly directory: string;
  /** The device number in the mount table: another mount may cover the directory by the time this one is unmounted. */
  readonly device: string;
  readonly invalidator: Invalidator;
  /** Resolves when the mount is gone for any reason: unmounted from outside, `unmount()`, or a broken connection. */
  readonly ended: Promise<'unmounted' | 'aborted'>;
  /** `'lazily'` detaches even when in use. Idempotent. @throws FsError EBUSY when in use and not lazily */
  unmount(how: 'orderly' | 'lazily'): Promise<void>;
  /**
   * Resolves when all requests that programs made before the call have been read. close(2) waits for FLUSH, not for RELEASE: that may still
   * be in the kernel's queue when the program's next command arrives over another channel.
   */
  requestsDrained(): Promise<void>;
  /**
   * Resolves when the kernel has received all pending notifications: the next lookup sees the current state. Gives up after a moment: a
   * notification blocks as long as a program waits for the service in the same folder.
   */
  notificationsFlushed(): Promise<void>;
}

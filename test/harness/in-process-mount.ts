import { constants as fileConstants } from 'node:fs';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { FsError } from '../../src/base/errors.ts';
import { type Logger, silentLogger } from '../../src/base/log.ts';
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
  FileSystemOps,
  FileSystemStats,
  OpContext,
  RenameMode,
} from '../../src/kernel/binding.ts';
import { type DirectoryEntry, gatherListing } from '../../src/kernel/fuse-native/listing-in-pieces.ts';
import { type LookupLedger, PathWalk, type Walked, type WalkPath } from '../../src/kernel/fuse-native/path-walk.ts';
import { bytesOf } from '../../src/kernel/gathered-reply.ts';
import { OpBoundary, type OpName } from '../../src/kernel/op-boundary.ts';
import { type OpenLetters, openFlags, rawFlags } from '../../src/kernel/open-flags.ts';

const { O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = fileConstants;

interface OpenFile {
  readonly ino: Inode;
  readonly handle: HandleId;
  readonly flags: number;
  readonly isFolder: boolean;
}

/**
 * FileSystemOps driven without a kernel, by paths: what the kernel above a file system does (walking paths, following symlinks,
 * the checks of rename(2), counting lookups), with none of its caches. For tests; every error is an FsError.
 *
 * After every call all lookups are returned, except those of open handles: `lookups` is 0 when everything is closed.
 */
export class InProcessMount {
  readonly #ops: FileSystemOps;
  readonly #boundary: OpBoundary;
  readonly #ctx: OpContext;
  readonly #walk: PathWalk;
  readonly #open = new Map<number, OpenFile>();
  #nextDescriptor = 3;
  #lookups = 0;

  constructor(
    ops: FileSystemOps,
    options: { uid?: number; gid?: number; umask?: number; log?: Logger; clock?: Clock; signal?: AbortSignal } = {},
  ) {
    this.#ops = ops;
    const clock = options.clock ?? systemClock;
    this.#boundary = new OpBoundary({ log: options.log ?? silentLogger, clock, deadlineMs: Number.POSITIVE_INFINITY });
    this.#ctx = {
      uid: options.uid ?? process.getuid?.() ?? 0,
      gid: options.gid ?? process.getgid?.() ?? 0,
      pid: process.pid,
      umask: options.umask ?? 0o022,
      signal: options.signal ?? new AbortController().signal,
    };
    this.#walk = new PathWalk({
      lookup: (parent, name) => this.#do('lookup', parent, () => ops.lookup(parent, name, this.#ctx)),
      readlink: (ino) => this.#do('readlink', ino, () => ops.readlink(ino, this.#ctx)),
      forget: (ino, count) => this.#forget(ino, count),
      counted: () => {
        this.#lookups++;
      },
    });
    ops.init?.({ inode: () => undefined, entry: () => undefined, deleted: () => undefined });
  }

  /** Lookups that the file system gave and that were not returned. */
  get lookups(): number {
    return this.#lookups;
  }

  get openHandles(): number {
    return this.#open.size;
  }

  stat(path: WalkPath): Promise<Attributes> {
    return this.#at(path, 'follow', async ({ ino }) => (await this.#getattr(ino, null)).attributes);
  }

  lstat(path: WalkPath): Promise<Attributes> {
    return this.#at(path, 'stay', async ({ ino }) => (await this.#getattr(ino, null)).attributes);
  }

  async fstat(descriptor: number): Promise<Attributes> {
    const file = this.#file(descriptor);
    return (await this.#getattr(file.ino, file.isFolder ? null : file.handle)).attributes;
  }

  /** Entries without `.` and `..`, in the order of the file system. @throws FsError ENOTDIR */
  readdir(path: WalkPath): Promise<DirectoryEntry[]> {
    return this.#at(path, 'follow', async ({ ino, kind }) => {
      if (kind !== 'folder') throw new FsError('ENOTDIR');
      const { handle } = await this.#do('opendir', ino, () => this.#ops.opendir(ino, this.#ctx));
      try {
        return await gatherListing({
          ask: (cookie, sink) =>
            this.#do('readdir', ino, () => this.#ops.readdir(ino, handle, cookie, sink, this.#ctx)),
          forget: (child) => this.#forget(child, 1),
          counted: () => {
            this.#lookups++;
          },
        });
      } finally {
        await this.#do('releasedir', ino, () => this.#ops.releasedir(ino, handle, this.#ctx));
      }
    });
  }

  async readFile(path: WalkPath): Promise<Buffer> {
    const descriptor = await this.open(path, 'r');
    try {
      const pieces: Uint8Array[] = [];
      for (let offset = 0; ; ) {
        const bytes = await this.read(descriptor, offset, 1 << 20);
        if (bytes.length === 0) return Buffer.concat(pieces);
        pieces.push(bytes);
        offset += bytes.length;
      }
    } finally {
      await this.close(descriptor);
    }
  }

  async writeFile(
    path: WalkPath,
    bytes: Uint8Array,
    options: { flag?: OpenLetters; mode?: number } = {},
  ): Promise<void> {
    const descriptor = await this.open(path, options.flag ?? 'w', options.mode);
    try {
      for (let offset = 0; offset < bytes.length; offset += 1 << 20) {
        await this.write(descriptor, offset, bytes.subarray(offset, offset + (1 << 20)));
      }
    } finally {
      await this.close(descriptor);
    }
  }

  /** @returns a descriptor for the calls below; a folder's serves fstat, fsync and close */
  async open(path: WalkPath, flags: OpenLetters | number = 'r', mode = 0o666): Promise<number> {
    const raw = rawFlags(flags);
    const exclusive = (raw & O_CREAT) !== 0 && (raw & O_EXCL) !== 0;
    const follow = exclusive || (raw & O_NOFOLLOW) !== 0 ? 'stay' : 'follow';
    return this.#walk.use(path, follow, async (walked, ledger) => {
      if (walked.ino === null) {
        if ((raw & O_CREAT) === 0) throw new FsError('ENOENT');
        return this.#create(walked, raw, mode, ledger);
      }
      if (exclusive) throw new FsError('EEXIST');
      return this.#openExisting({ ino: walked.ino, kind: walked.kind }, raw, ledger);
    });
  }

  /** Fewer bytes than asked for mean the end of the file. */
  async read(descriptor: number, offset: number, length: number): Promise<Buffer> {
    const file = this.#file(descriptor);
    if (file.isFolder) throw new FsError('EISDIR');
    if ((file.flags & 3) === O_WRONLY) throw new FsError('EBADF');
    const reply = await this.#do('read', file.ino, () =>
      this.#ops.read(file.ino, file.handle, offset, length, this.#ctx),
    );
    const bytes = bytesOf(reply);
    if (bytes.length > length) throw new FsError('EIO', `a read of ${length} bytes was answered with ${bytes.length}`);
    return bytes;
  }

  /** At `offset`, or at the end of a file opened for appending. @returns bytes taken */
  async write(descriptor: number, offset: number, bytes: Uint8Array): Promise<number> {
    const file = this.#file(descriptor);
    if (file.isFolder || (file.flags & 3) === O_RDONLY) throw new FsError('EBADF');
    const place = (file.flags & O_APPEND) !== 0 ? 'end' : 'offset';
    const at = place === 'end' ? (await this.#getattr(file.ino, file.handle)).attributes.sizeBytes : offset;
    // What the caller does with its buffer after the call is its own business.
    const copy = Buffer.from(bytes);
    return this.#do('write', file.ino, () => this.#ops.write(file.ino, file.handle, at, copy, this.#ctx, place));
  }

  async ftruncate(descriptor: number, sizeBytes: number): Promise<void> {
    const file = this.#file(descriptor);
    if (file.isFolder || (file.flags & 3) === O_RDONLY) throw new FsError('EINVAL');
    await this.#setattr(file.ino, { sizeBytes: checkedLength(sizeBytes) }, file.handle);
  }

  truncate(path: WalkPath, sizeBytes: number): Promise<void> {
    return this.#at(path, 'follow', async ({ ino, kind }) => {
      if (kind === 'folder') throw new FsError('EISDIR');
      await this.#setattr(ino, { sizeBytes: checkedLength(sizeBytes) }, null);
    });
  }

  async fsync(descriptor: number, what: 'data' | 'all' = 'all'): Promise<void> {
    const { ino, handle, isFolder } = this.#file(descriptor);
    const dataOnly = what === 'data';
    if (isFolder) await this.#do('fsyncdir', ino, () => this.#ops.fsyncdir(ino, handle, dataOnly, this.#ctx));
    else await this.#do('fsync', ino, () => this.#ops.fsync(ino, handle, dataOnly, this.#ctx));
  }

  /** What close(2) does first, once per descriptor. */
  async flush(descriptor: number): Promise<void> {
    const { ino, handle } = this.#file(descriptor);
    await this.#do('flush', ino, () => this.#ops.flush(ino, handle, this.#ctx));
  }

  /** Flush, then release. @throws what flush throws; the descriptor is gone all the same */
  async close(descriptor: number): Promise<void> {
    const file = this.#file(descriptor);
    this.#open.delete(descriptor);
    const { ino, handle } = file;
    try {
      if (!file.isFolder) await this.#do('flush', ino, () => this.#ops.flush(ino, handle, this.#ctx));
    } finally {
      try {
        if (file.isFolder) await this.#do('releasedir', ino, () => this.#ops.releasedir(ino, handle, this.#ctx));
        else await this.#do('release', ino, () => this.#ops.release(ino, handle, this.#ctx));
      } finally {
        this.#forget(ino, 1);
      }
    }
  }

  mkdir(path: WalkPath, mode = 0o777): Promise<void> {
    return this.#adding(path, async (parent, name, ledger) => {
      const masked = mode & ~this.#ctx.umask & 0o1777;
      const entry = await this.#do('mkdir', parent, () => this.#ops.mkdir(parent, name, masked, this.#ctx));
      ledger.took(entry);
    });
  }

  symlink(target: string, path: WalkPath): Promise<void> {
    return this.#adding(path, async (parent, name, ledger) => {
      const entry = await this.#do('symlink', parent, () => this.#ops.symlink(parent, name, target, this.#ctx));
      ledger.took(entry);
    });
  }

  mknod(path: WalkPath, mode = 0o666, kind: 'file' | SpecialKind = 'file'): Promise<void> {
    return this.#adding(path, async (parent, name, ledger) => {
      const masked = mode & ~this.#ctx.umask & 0o7777;
      const entry = await this.#do('mknod', parent, () => this.#ops.mknod(parent, name, kind, masked, this.#ctx));
      ledger.took(entry);
    });
  }

  link(existing: WalkPath, added: WalkPath): Promise<void> {
    return this.#at(existing, 'stay', ({ ino, kind }) =>
      this.#adding(added, async (parent, name, ledger) => {
        if (kind === 'folder') throw new FsError('EPERM');
        const entry = await this.#do('link', ino, () => this.#ops.link(ino, parent, name, this.#ctx));
        ledger.took(entry);
      }),
    );
  }

  unlink(path: WalkPath): Promise<void> {
    return this.#at(path, 'stay', async ({ kind, parent, name }) => {
      if (kind === 'folder') throw new FsError('EISDIR');
      await this.#do('unlink', parent, () => this.#ops.unlink(parent, name, this.#ctx));
    });
  }

  rmdir(path: WalkPath): Promise<void> {
    return this.#at(path, 'stay', async ({ kind, parent, name }) => {
      if (name === '') throw new FsError('EBUSY');
      if (kind !== 'folder') throw new FsError('ENOTDIR');
      await this.#do('rmdir', parent, () => this.#ops.rmdir(parent, name, this.#ctx));
    });
  }

  /** renameat2(2), with the checks that the kernel makes before it asks (vfs_rename). */
  rename(from: WalkPath, to: WalkPath, mode: RenameMode = 'replace'): Promise<void> {
    return this.#at(from, 'stay', (source) =>
      this.#walk.use(to, 'stay', async (target) => {
        if (source.name === '' || target.name === '') throw new FsError('EBUSY');
        if (target.ino !== null && mode === 'no-replace') throw new FsError('EEXIST');
        if (target.ino === null && mode === 'exchange') throw new FsError('ENOENT');
        if (target.ino === source.ino) return;
        if (source.kind === 'folder' && target.folders.includes(source.ino)) throw new FsError('EINVAL');
        if (target.ino !== null && source.folders.includes(target.ino))
          throw new FsError(mode === 'exchange' ? 'EINVAL' : 'ENOTEMPTY');
        if (target.ino !== null && mode === 'replace') {
          if (target.kind === 'folder' && source.kind !== 'folder') throw new FsError('EISDIR');
          if (target.kind !== 'folder' && source.kind === 'folder') throw new FsError('ENOTDIR');
        }
        await this.#do('rename', source.parent, () =>
          this.#ops.rename(source.parent, source.name, target.parent, target.name, mode, this.#ctx),
        );
      }),
    );
  }

  readlink(path: WalkPath): Promise<string> {
    return this.#at(path, 'stay', ({ ino, kind }) => {
      if (kind !== 'symlink') throw new FsError('EINVAL');
      return this.#do('readlink', ino, () => this.#ops.readlink(ino, this.#ctx));
    });
  }

  chmod(path: WalkPath, mode: number): Promise<void> {
    return this.#at(path, 'follow', ({ ino }) => this.#setattr(ino, { mode: mode & 0o7777 }, null));
  }

  /** lchown(2); -1 leaves one as it is. */
  chown(path: WalkPath, uid: number, gid: number): Promise<void> {
    return this.#at(path, 'stay', ({ ino }) =>
      this.#setattr(ino, { ...(uid >= 0 && { uid }), ...(gid >= 0 && { gid }) }, null),
    );
  }

  utimes(path: WalkPath, atime: Timespec | 'now' | 'omit', mtime: Timespec | 'now' | 'omit'): Promise<void> {
    return this.#at(path, 'follow', ({ ino }) =>
      this.#setattr(ino, { ...(atime !== 'omit' && { atime }), ...(mtime !== 'omit' && { mtime }) }, null),
    );
  }

  getxattr(path: WalkPath, name: string): Promise<Uint8Array> {
    return this.#at(path, 'follow', ({ ino }) =>
      this.#do('getxattr', ino, () => this.#ops.getxattr(ino, name, this.#ctx)),
    );
  }

  setxattr(path: WalkPath, name: string, value: Uint8Array, mode: 'set' | 'create' | 'replace' = 'set'): Promise<void> {
    return this.#at(path, 'follow', ({ ino }) =>
      this.#do('setxattr', ino, () => this.#ops.setxattr(ino, name, value, mode, this.#ctx)),
    );
  }

  listxattr(path: WalkPath): Promise<readonly string[]> {
    return this.#at(path, 'follow', ({ ino }) => this.#do('listxattr', ino, () => this.#ops.listxattr(ino, this.#ctx)));
  }

  removexattr(path: WalkPath, name: string): Promise<void> {
    return this.#at(path, 'follow', ({ ino }) =>
      this.#do('removexattr', ino, () => this.#ops.removexattr(ino, name, this.#ctx)),
    );
  }

  async fallocate(descriptor: number, mode: AllocateMode, offset: number, length: number): Promise<void> {
    const { ino, handle, flags, isFolder } = this.#file(descriptor);
    if (isFolder || (flags & 3) === O_RDONLY) throw new FsError('EBADF');
    if (offset < 0 || length <= 0) throw new FsError('EINVAL');
    await this.#do('fallocate', ino, () => this.#ops.fallocate(ino, handle, mode, offset, length, this.#ctx));
  }

  async lseek(descriptor: number, offset: number, whence: 'data' | 'hole'): Promise<number> {
    const { ino, handle } = this.#file(descriptor);
    if (offset < 0) throw new FsError('ENXIO');
    return this.#do('lseek', ino, () => this.#ops.lseek(ino, handle, offset, whence, this.#ctx));
  }

  statfs(path: WalkPath = ''): Promise<FileSystemStats> {
    return this.#at(path, 'follow', ({ ino }) => this.#do('statfs', ino, () => this.#ops.statfs(ino, this.#ctx)));
  }

  /** Ends the file system; open descriptors are released first. */
  async unmount(): Promise<void> {
    for (const descriptor of [...this.#open.keys()]) await this.close(descriptor);
    this.#ops.destroy?.();
  }

  async #create(walked: Walked, raw: number, mode: number, ledger: LookupLedger): Promise<number> {
    if ((raw & O_DIRECTORY) !== 0) throw new FsError('EINVAL');
    const masked = mode & ~this.#ctx.umask & 0o7777;
    const { parent, name } = walked;
    const entry = await this.#do('create', parent, () =>
      this.#ops.create(parent, name, masked, openFlags(raw), this.#ctx),
    );
    ledger.took(entry);
    ledger.keep(entry.attributes.ino);
    return this.#opened({ ino: entry.attributes.ino, handle: entry.open.handle, flags: raw, isFolder: false });
  }

  async #openExisting(target: { ino: Inode; kind: NodeKind }, raw: number, ledger: LookupLedger): Promise<number> {
    const { ino, kind } = target;
    const isFolder = kind === 'folder';
    if (kind === 'symlink') throw new FsError('ELOOP'); // O_NOFOLLOW
    if (!isFolder && (raw & O_DIRECTORY) !== 0) throw new FsError('ENOTDIR');
    if (isFolder && ((raw & 3) !== O_RDONLY || (raw & O_CREAT) !== 0)) throw new FsError('EISDIR');
    const { handle } = isFolder
      ? await this.#do('opendir', ino, () => this.#ops.opendir(ino, this.#ctx))
      : await this.#do('open', ino, () => this.#ops.open(ino, openFlags(raw & ~(O_CREAT | O_EXCL)), this.#ctx));
    ledger.keep(ino);
    return this.#opened({ ino, handle, flags: raw, isFolder });
  }

  #opened(file: OpenFile): number {
    const descriptor = this.#nextDescriptor++;
    this.#open.set(descriptor, file);
    return descriptor;
  }

  #file(descriptor: number): OpenFile {
    const file = this.#open.get(descriptor);
    if (file === undefined) throw new FsError('EBADF');
    return file;
  }

  /** Walks to something that must exist. */
  #at<T>(path: WalkPath, follow: 'follow' | 'stay', run: (target: Walked & { ino: Inode }) => Answer<T>): Promise<T> {
    return this.#walk.use(path, follow, async (walked) => {
      const { ino } = walked;
      if (ino === null) throw new FsError('ENOENT');
      return run({ ...walked, ino });
    });
  }

  /** Walks to a name that must not exist yet. */
  #adding(path: WalkPath, run: (parent: Inode, name: string, ledger: LookupLedger) => Promise<void>): Promise<void> {
    return this.#walk.use(path, 'stay', async (walked, ledger) => {
      if (walked.ino !== null) throw new FsError('EEXIST');
      await run(walked.parent, walked.name, ledger);
    });
  }

  #getattr(ino: Inode, handle: HandleId | null): Promise<{ attributes: Attributes }> {
    return this.#do('getattr', ino, () => this.#ops.getattr(ino, handle, this.#ctx));
  }

  async #setattr(ino: Inode, change: AttributeChange, handle: HandleId | null): Promise<void> {
    if (Object.keys(change).length > 0)
      await this.#do('setattr', ino, () => this.#ops.setattr(ino, change, handle, this.#ctx));
  }

  #forget(ino: Inode, count: number): void {
    if (ino === ROOT_INODE) return;
    this.#lookups -= count;
    this.#ops.forget(ino, count);
  }

  async #do<T>(op: OpName, ino: Inode, call: () => Answer<T>): Promise<T> {
    const startedMs = this.#boundary.nowMs();
    try {
      const answer = await call();
      this.#boundary.succeeded(op, startedMs);
      return answer;
    } catch (error) {
      throw this.#boundary.failed(op, error, startedMs, { ino });
    }
  }
}

function checkedLength(sizeBytes: number): number {
  if (sizeBytes < 0) throw new FsError('EINVAL');
  return sizeBytes;
}

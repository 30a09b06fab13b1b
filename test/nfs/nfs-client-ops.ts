import { type Errno, FsError } from '../../src/base/errors.ts';
import { type HandleId, type Inode, type NodeKind, ROOT_INODE, type SpecialKind } from '../../src/base/vocabulary.ts';
import type {
  Answer,
  AttributeChange,
  Attributes,
  AttributesReply,
  DirectorySink,
  Entry,
  FileSystemOps,
  FileSystemStats,
  NegativeEntry,
  OpenDirectoryReply,
  OpenFlags,
  OpenReply,
  RenameMode,
  WritePlace,
} from '../../src/kernel/binding.ts';
import { STATUS } from '../../src/nfs/protocol.ts';
import { type XdrReader, XdrWriter } from '../../src/nfs/xdr.ts';
import { type NfsClient, NfsStatus } from './nfs-client.ts';

const KINDS: Readonly<Record<number, NodeKind>> = { 1: 'file', 2: 'folder', 5: 'symlink', 6: 'socket', 7: 'fifo' };
const TYPES = { fifo: 7, socket: 6 } as const;
const ERRNOS: Readonly<Record<number, Errno>> = {
  [STATUS.perm]: 'EPERM',
  [STATUS.noent]: 'ENOENT',
  [STATUS.io]: 'EIO',
  [STATUS.acces]: 'EACCES',
  [STATUS.exist]: 'EEXIST',
  [STATUS.xdev]: 'EXDEV',
  [STATUS.notdir]: 'ENOTDIR',
  [STATUS.isdir]: 'EISDIR',
  [STATUS.inval]: 'EINVAL',
  [STATUS.fbig]: 'EFBIG',
  [STATUS.nospc]: 'ENOSPC',
  [STATUS.rofs]: 'EROFS',
  [STATUS.nametoolong]: 'ENAMETOOLONG',
  [STATUS.notempty]: 'ENOTEMPTY',
  [STATUS.dquot]: 'EDQUOT',
  [STATUS.stale]: 'ESTALE',
  [STATUS.notsupp]: 'EOPNOTSUPP',
};
const UNCACHED = { entryTimeoutMs: 0, attributeTimeoutMs: 0 } as const;
const WRITE_BYTES_MAX = 256 * 1024;
const ENTRIES_BYTES = 32 * 1024;

interface OpenFile {
  readonly ino: Inode;
  readonly isAppend: boolean;
}

/**
 * `FileSystemOps` through an NFS server: a client as in a kernel, without caches. It opens nothing on the server. A file that is removed or
 * replaced while it is open is renamed to `.nfs…`, and removed after its last close.
 */
export class NfsClientOps implements FileSystemOps {
  readonly #client: NfsClient;
  readonly #handles = new Map<Inode, Buffer>();
  readonly #open = new Map<HandleId, OpenFile>();
  /** Removed files that are open. */
  readonly #removed = new Map<Inode, { readonly folder: Inode; readonly name: string }>();
  #next = 1;

  constructor(client: NfsClient, root: Buffer) {
    this.#client = client;
    this.#handles.set(ROOT_INODE, root);
  }

  forget(): void {}

  async lookup(parent: Inode, name: string): Promise<Entry | NegativeEntry> {
    try {
      const reply = await this.#call('lookup', this.#args(parent).text(name));
      return this.#entryOf(reply.opaque(64), reply);
    } catch (error) {
      if (error instanceof FsError && error.errno === 'ENOENT') return { attributes: null, entryTimeoutMs: 0 };
      throw error;
    }
  }

  async getattr(ino: Inode): Promise<AttributesReply> {
    return { attributes: readAttributes(await this.#call('getattr', this.#args(ino))), attributeTimeoutMs: 0 };
  }

  async setattr(ino: Inode, change: AttributeChange): Promise<AttributesReply> {
    const args = this.#args(ino);
    writeChange(args, change);
    await this.#call('setattr', args.bool(false));
    return this.getattr(ino);
  }

  async readlink(ino: Inode): Promise<string> {
    const reply = await this.#call('readlink', this.#args(ino));
    skipAttributes(reply);
    return reply.opaque(4096).toString();
  }

  async symlink(parent: Inode, name: string, target: string): Promise<Entry> {
    const args = this.#args(parent).text(name);
    writeChange(args, {});
    return this.#made(await this.#call('symlink', args.text(target)));
  }

  async mknod(parent: Inode, name: string, kind: 'file' | SpecialKind, mode: number): Promise<Entry> {
    if (kind === 'file') return this.#create(parent, name, mode);
    const args = this.#args(parent).text(name).u32(TYPES[kind]);
    writeChange(args, { mode });
    return this.#made(await this.#call('mknod', args));
  }

  tmpfile(): never {
    throw new FsError('EOPNOTSUPP');
  }

  async mkdir(parent: Inode, name: string, mode: number): Promise<Entry> {
    const args = this.#args(parent).text(name);
    writeChange(args, { mode });
    return this.#made(await this.#call('mkdir', args));
  }

  async unlink(parent: Inode, name: string): Promise<void> {
    const { attributes } = await this.lookup(parent, name);
    if (attributes !== null && this.#isOpen(attributes.ino)) await this.#hide(parent, name, attributes.ino);
    else await this.#call('remove', this.#args(parent).text(name));
  }

  async rmdir(parent: Inode, name: string): Promise<void> {
    await this.#call('rmdir', this.#args(parent).text(name));
  }

  async rename(parent: Inode, name: string, newParent: Inode, newName: string, mode: RenameMode): Promise<void> {
    if (mode !== 'replace') throw new FsError('EINVAL'); // fs/nfs/dir.c
    const { attributes: target } = await this.lookup(newParent, newName);
    if (target !== null && this.#isOpen(target.ino)) await this.#hide(newParent, newName, target.ino);
    const args = this.#args(parent).text(name).opaque(this.#handleOf(newParent)).text(newName);
    await this.#call('rename', args);
  }

  async link(ino: Inode, newParent: Inode, newName: string): Promise<Entry> {
    await this.#call('link', this.#args(ino).opaque(this.#handleOf(newParent)).text(newName));
    return { attributes: (await this.getattr(ino)).attributes, ...UNCACHED };
  }

  async open(ino: Inode, flags: OpenFlags): Promise<OpenReply> {
    if (flags.truncate) await this.setattr(ino, { sizeBytes: 0 });
    return this.#opened(ino, flags);
  }

  async create(parent: Inode, name: string, mode: number, flags: OpenFlags): Promise<Entry & { open: OpenReply }> {
    const entry = await this.#create(parent, name, mode);
    return { ...entry, open: this.#opened(entry.attributes.ino, flags) };
  }

  async read(ino: Inode, _handle: HandleId, offset: number, length: number): Promise<Uint8Array> {
    const pieces: Buffer[] = [];
    for (let done = 0; done < length; ) {
      const { bytes, isEnd } = await this.#told(this.#client.read(this.#handleOf(ino), offset + done, length - done));
      pieces.push(bytes);
      done += bytes.byteLength;
      if (isEnd || bytes.byteLength === 0) break;
    }
    return Buffer.concat(pieces);
  }

  async write(
    ino: Inode,
    handle: HandleId,
    offset: number,
    data: Uint8Array,
    _ctx: unknown,
    place?: WritePlace,
  ): Promise<number> {
    const isAppend = place === 'end' || this.#open.get(handle)?.isAppend === true;
    const from = isAppend ? (await this.getattr(ino)).attributes.sizeBytes : offset;
    for (let done = 0; done < data.byteLength; done += WRITE_BYTES_MAX) {
      const piece = data.subarray(done, done + WRITE_BYTES_MAX);
      await this.#told(this.#client.write(this.#handleOf(ino), from + done, piece));
    }
    return data.byteLength;
  }

  async flush(ino: Inode): Promise<void> {
    await this.#told(this.#client.commit(this.#handleOf(ino)));
  }

  async fsync(ino: Inode): Promise<void> {
    await this.flush(ino);
  }

  async release(ino: Inode, handle: HandleId): Promise<void> {
    this.#open.delete(handle);
    const hidden = this.#removed.get(ino);
    if (hidden === undefined || this.#isOpen(ino)) return;
    this.#removed.delete(ino);
    await this.#call('remove', this.#args(hidden.folder).text(hidden.name));
  }

  fallocate(): never {
    throw new FsError('EOPNOTSUPP');
  }

  /** Version 3 has no such request: Linux seeks as in a file without holes. */
  async lseek(ino: Inode, _handle: HandleId, offset: number, whence: 'data' | 'hole'): Promise<number> {
    const { sizeBytes } = (await this.getattr(ino)).attributes;
    if (offset >= sizeBytes) throw new FsError('ENXIO');
    return whence === 'data' ? offset : sizeBytes;
  }

  opendir(): Answer<OpenDirectoryReply> {
    return { handle: this.#next++ as HandleId, cacheListing: false, keepListing: false };
  }

  async readdir(ino: Inode, _handle: HandleId, cookie: number, sink: DirectorySink): Promise<void> {
    const args = this.#args(ino)
      .u64(cookie)
      .u64(0)
      .u32(ENTRIES_BYTES)
      .u32(4 * ENTRIES_BYTES);
    const reply = await this.#call('readdirplus', args);
    skipAttributes(reply);
    reply.u64(); // verifier
    while (reply.bool()) {
      const child = reply.u64() as Inode;
      const name = reply.opaque(255).toString();
      const next = reply.u64();
      const attributes = reply.bool() ? readAttributes(reply) : null;
      if (reply.bool()) this.#handles.set(child, Buffer.from(reply.opaque(64)));
      const isChild = attributes !== null && name !== '.' && name !== '..';
      const entry = isChild ? { attributes, ...UNCACHED } : null;
      if (!sink.add(name, child, attributes?.kind ?? 'file', next, entry)) return;
    }
  }

  releasedir(): void {}
  fsyncdir(): void {}

  async statfs(ino: Inode): Promise<FileSystemStats> {
    const reply = await this.#call('fsstat', this.#args(ino));
    skipAttributes(reply);
    const BLOCK = 4096;
    const [blocks, blocksFree, blocksAvailable] = [reply.u64(), reply.u64(), reply.u64()].map((bytes) =>
      Math.floor(bytes / BLOCK),
    ) as [number, number, number];
    const [files, filesFree] = [reply.u64(), reply.u64()];
    return { blockBytes: BLOCK, blocks, blocksFree, blocksAvailable, files, filesFree, nameBytesMax: 255 };
  }

  getxattr(): never {
    throw new FsError('EOPNOTSUPP');
  }
  setxattr(): never {
    throw new FsError('EOPNOTSUPP');
  }
  listxattr(): Answer<readonly string[]> {
    return [];
  }
  removexattr(): never {
    throw new FsError('EOPNOTSUPP');
  }

  async #create(parent: Inode, name: string, mode: number): Promise<Entry> {
    const args = this.#args(parent).text(name).u32(1);
    writeChange(args, { mode });
    return this.#made(await this.#call('create', args));
  }

  async #hide(parent: Inode, name: string, ino: Inode): Promise<void> {
    const hidden = `.nfs${ino.toString(16).padStart(16, '0')}${(this.#next++).toString(16).padStart(8, '0')}`;
    await this.#call('rename', this.#args(parent).text(name).opaque(this.#handleOf(parent)).text(hidden));
    this.#removed.set(ino, { folder: parent, name: hidden });
  }

  #opened(ino: Inode, flags: OpenFlags): OpenReply {
    const handle = this.#next++ as HandleId;
    this.#open.set(handle, { ino, isAppend: flags.append });
    return { handle, keepCache: false, directIo: true };
  }

  #isOpen(ino: Inode): boolean {
    return [...this.#open.values()].some((open) => open.ino === ino);
  }

  #args(ino: Inode): XdrWriter {
    return new XdrWriter().opaque(this.#handleOf(ino));
  }

  #handleOf(ino: Inode): Buffer {
    const handle = this.#handles.get(ino);
    if (handle === undefined) throw new FsError('ESTALE');
    return handle;
  }

  #made(reply: XdrReader): Entry {
    if (!reply.bool()) throw new FsError('EIO', 'no handle');
    return this.#entryOf(reply.opaque(64), reply);
  }

  #entryOf(handle: Buffer, reply: XdrReader): Entry {
    if (!reply.bool()) throw new FsError('EIO', 'no attributes');
    const attributes = readAttributes(reply);
    this.#handles.set(attributes.ino, Buffer.from(handle));
    return { attributes, ...UNCACHED };
  }

  #call(procedure: Parameters<NfsClient['nfs']>[0], args: XdrWriter): Promise<XdrReader> {
    return this.#told(this.#client.nfs(procedure, args));
  }

  async #told<T>(call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      if (error instanceof NfsStatus) throw new FsError(ERRNOS[error.status] ?? 'EIO');
      throw error;
    }
  }
}

function readAttributes(reply: XdrReader): Attributes {
  const [type, mode, nlink, uid, gid] = [reply.u32(), reply.u32(), reply.u32(), reply.u32(), reply.u32()];
  const sizeBytes = reply.u64();
  const blocks512 = Math.ceil(reply.u64() / 512);
  reply.u64(); // rdev
  reply.u64(); // fsid
  const ino = reply.u64() as Inode;
  const [atime, mtime, ctime] = [0, 1, 2].map(() => ({ sec: reply.u32(), nsec: reply.u32() }));
  const kind = KINDS[type];
  if (kind === undefined || atime === undefined || mtime === undefined || ctime === undefined) throw new FsError('EIO');
  return { ino, kind, mode, nlink, uid, gid, sizeBytes, blocks512, atime, mtime, ctime };
}

function skipAttributes(reply: XdrReader): void {
  if (reply.bool()) readAttributes(reply);
}

function writeChange(out: XdrWriter, { mode, uid, gid, sizeBytes, atime, mtime }: AttributeChange): void {
  for (const value of [mode, uid, gid]) {
    out.bool(value !== undefined);
    if (value !== undefined) out.u32(value);
  }
  out.bool(sizeBytes !== undefined);
  if (sizeBytes !== undefined) out.u64(sizeBytes);
  for (const time of [atime, mtime]) {
    if (time === undefined) out.u32(0);
    else if (time === 'now') out.u32(1);
    else out.u32(2).u32(time.sec).u32(time.nsec);
  }
}

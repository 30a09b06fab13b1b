import { isUtf8 } from 'node:buffer';
import { FsError } from '../base/errors.ts';
import type { NodeKind, Timespec } from '../base/vocabulary.ts';
import type { Attributes, Entry, FileSystemStats, NegativeEntry, OpenDirectoryReply, OpenReply } from './binding.ts';
import * as P from './protocol.ts';

/**
 * Decodes requests and encodes replies in the shared region: protocol structures at a byte offset.
 *
 * 64-bit numbers are JavaScript numbers: own inodes, handles and sizes stay below 2^53. A larger offset from the kernel is refused
 * (`offset64`), or lies past every end (`place64`).
 */

const TYPE_OF_KIND: Readonly<Record<NodeKind, number>> = {
  file: P.S_IFREG,
  folder: P.S_IFDIR,
  symlink: P.S_IFLNK,
  fifo: P.S_IFIFO,
  socket: P.S_IFSOCK,
};
const DIRENT_TYPE_OF_KIND: Readonly<Record<NodeKind, number>> = {
  file: P.DT_REG,
  folder: P.DT_DIR,
  symlink: P.DT_LNK,
  fifo: P.DT_FIFO,
  socket: P.DT_SOCK,
};
const TWO_32 = 0x1_0000_0000;
/** The longest timeout given to the kernel, which adds it to jiffies: a day is practically unlimited. */
const TIMEOUT_MS_MAX = 86_400_000;

export class Wire {
  readonly bytes: Buffer;
  readonly #view: DataView;

  constructor(region: ArrayBuffer) {
    this.bytes = Buffer.from(region);
    this.#view = new DataView(region);
  }

  // ---- reading ----

  u32(at: number): number {
    return this.#view.getUint32(at, true);
  }

  i32(at: number): number {
    return this.#view.getInt32(at, true);
  }

  /** A number that originates here, or is certainly below 2^53. */
  u64(at: number): number {
    return this.#view.getUint32(at, true) + this.#view.getUint32(at + 4, true) * TWO_32;
  }

  /** Signed seconds and the like. */
  i64(at: number): number {
    return this.#view.getUint32(at, true) + this.#view.getInt32(at + 4, true) * TWO_32;
  }

  /** An offset or length in a file. @throws FsError EFBIG at 2^53 and beyond */
  offset64(at: number): number {
    const value = this.u64(at);
    if (value > Number.MAX_SAFE_INTEGER) throw new FsError('EFBIG');
    return value;
  }

  /** A position that is only read: 2^53 and beyond is past the end of every file and folder, as the position before it is. */
  place64(at: number): number {
    return Math.min(this.u64(at), Number.MAX_SAFE_INTEGER);
  }

  /** Clamps seconds beyond the exact range of a double: the kernel leaves the limit to the file system (s_time_max). */
  timespec(secondsAt: number, nanosecondsAt: number): Timespec {
    const sec = this.i64(secondsAt);
    if (Number.isSafeInteger(sec)) return { sec, nsec: this.u32(nanosecondsAt) };
    return { sec: sec < 0 ? Number.MIN_SAFE_INTEGER : Number.MAX_SAFE_INTEGER, nsec: 0 };
  }

  /** The text [start, end). @throws FsError EILSEQ when it is not UTF-8 */
  text(start: number, end: number): string {
    for (let i = start; i < end; i++) {
      if ((this.bytes[i] as number) < 0x80) continue;
      const part = this.bytes.subarray(start, end);
      if (!isUtf8(part)) throw new FsError('EILSEQ', 'the name is not UTF-8');
      return part.toString('utf8');
    }
    return this.bytes.toString('latin1', start, end);
  }

  /** The name that ends with a NUL before `limit`. @throws FsError EILSEQ, ENAMETOOLONG */
  name(start: number, limit: number): string {
    const end = this.endOfText(start, limit);
    if (end - start > P.NAME_BYTES_MAX) throw new FsError('ENAMETOOLONG');
    return this.text(start, end);
  }

  /** The position of the NUL. */
  endOfText(start: number, limit: number): number {
    const end = this.bytes.indexOf(0, start);
    return end < 0 || end > limit ? limit : end;
  }

  // ---- writing; each returns the length that it wrote ----

  setU32(at: number, value: number): void {
    this.#view.setUint32(at, value, true);
  }

  setI32(at: number, value: number): void {
    this.#view.setInt32(at, value, true);
  }

  /** Also negative numbers, as two's complement. */
  setU64(at: number, value: number): void {
    this.#view.setUint32(at, value % TWO_32, true);
    this.#view.setInt32(at + 4, Math.floor(value / TWO_32), true);
  }

  header(at: number, length: number, negativeErrno: number, uniqueLow: number, uniqueHigh: number): void {
    this.#view.setUint32(at + P.OUT_LENGTH, length, true);
    this.#view.setInt32(at + P.OUT_ERROR, negativeErrno, true);
    this.#view.setUint32(at + P.OUT_UNIQUE, uniqueLow, true);
    this.#view.setUint32(at + P.OUT_UNIQUE + 4, uniqueHigh, true);
  }

  /** struct fuse_attr */
  attributes(at: number, a: Attributes): number {
    this.setU64(at, a.ino);
    this.setU64(at + 8, a.sizeBytes);
    this.setU64(at + 16, a.blocks512);
    this.setU64(at + 24, a.atime.sec);
    this.setU64(at + 32, a.mtime.sec);
    this.setU64(at + 40, a.ctime.sec);
    this.setU32(at + 48, a.atime.nsec);
    this.setU32(at + 52, a.mtime.nsec);
    this.setU32(at + 56, a.ctime.nsec);
    this.setU32(at + 60, (a.mode & 0o7777) | TYPE_OF_KIND[a.kind]);
    this.setU32(at + 64, a.nlink);
    this.setU32(at + 68, a.uid);
    this.setU32(at + 72, a.gid);
    this.setU32(at + 76, 0);
    this.setU32(at + 80, 4096);
    this.setU32(at + 84, 0);
    return P.ATTR_BYTES;
  }

  /** struct fuse_entry_out. A nodeid of 0 is a name that is known to be absent. */
  entry(at: number, entry: Entry | NegativeEntry, nodeId = entry.attributes?.ino ?? 0): number {
    if (entry.attributes === null) {
      this.bytes.fill(0, at, at + P.ENTRY_OUT_BYTES);
      this.#timeout(at + 16, at + 32, entry.entryTimeoutMs);
      return P.ENTRY_OUT_BYTES;
    }
    this.setU64(at, nodeId);
    this.setU64(at + 8, 0); // generation: inodes are never reused
    this.#timeout(at + 16, at + 32, entry.entryTimeoutMs);
    this.#timeout(at + 24, at + 36, entry.attributeTimeoutMs);
    this.attributes(at + 40, entry.attributes);
    return P.ENTRY_OUT_BYTES;
  }

  /** struct fuse_attr_out */
  attributesReply(at: number, attributes: Attributes, timeoutMs: number): number {
    this.#timeout(at, at + 8, timeoutMs);
    this.setU32(at + 12, 0);
    this.attributes(at + 16, attributes);
    return P.ATTR_OUT_BYTES;
  }

  /** struct fuse_open_out */
  open(at: number, open: OpenReply, access: 'read' | 'write'): number {
    // A read-only handle has nothing to flush: this saves the FLUSH request of every close(2).
    const noFlush = access === 'read' ? P.FOPEN_NOFLUSH : 0;
    const flags = (open.keepCache ? P.FOPEN_KEEP_CACHE : 0) | (open.directIo ? P.FOPEN_DIRECT_IO : 0) | noFlush;
    return this.#opened(at, open.handle, flags);
  }

  openDirectory(at: number, open: OpenDirectoryReply): number {
    const flags = (open.cacheListing ? P.FOPEN_CACHE_DIR : 0) | (open.keepListing ? P.FOPEN_KEEP_CACHE : 0);
    return this.#opened(at, open.handle, flags);
  }

  /** struct fuse_kstatfs */
  stats(at: number, s: FileSystemStats): number {
    this.bytes.fill(0, at, at + P.STATFS_OUT_BYTES);
    this.setU64(at, s.blocks);
    this.setU64(at + 8, s.blocksFree);
    this.setU64(at + 16, s.blocksAvailable);
    this.setU64(at + 24, s.files);
    this.setU64(at + 32, s.filesFree);
    this.setU32(at + 40, s.blockBytes);
    this.setU32(at + 44, s.nameBytesMax);
    this.setU32(at + 48, s.blockBytes);
    return P.STATFS_OUT_BYTES;
  }

  /** struct fuse_dirent; its name was written behind it before. */
  dirent(at: number, ino: number, cookie: number, kind: NodeKind, nameBytes: number): void {
    this.setU64(at, ino);
    this.setU64(at + 8, cookie);
    this.setU32(at + 16, nameBytes);
    this.setU32(at + 20, DIRENT_TYPE_OF_KIND[kind]);
  }

  #opened(at: number, handle: number, flags: number): number {
    this.setU64(at, handle);
    this.setU32(at + 8, flags);
    this.setU32(at + 12, 0);
    return P.OPEN_OUT_BYTES;
  }

  #timeout(secondsAt: number, nanosecondsAt: number, ms: number): void {
    const capped = Math.min(Math.max(ms, 0), TIMEOUT_MS_MAX);
    const seconds = Math.floor(capped / 1000);
    this.setU64(secondsAt, seconds);
    this.setU32(nanosecondsAt, Math.floor((capped - seconds * 1000) * 1e6));
  }
}

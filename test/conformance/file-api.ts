import { constants as fsConstants } from 'node:fs';
import { constants as osConstants } from 'node:os';

/**
 * What a file system can be asked, independent of how it is reached: in process over `FileSystemOps`, or by system calls from a
 * child process on a mount or on a plain directory. The conformance suite is written once against this.
 *
 * Paths are relative to the root of what is tested; '' is the root itself. Names that are not UTF-8 are given as bytes.
 * Whatever fails throws `CallError`.
 */
export interface FileApi {
  /** What this way of reaching the file system can do; a case that needs more is skipped in words. */
  readonly can: ReadonlySet<Capability>;
  /** A second process beside this one on the same root, as another user if given. The caller disposes it. */
  another(user?: User): Promise<FileApi>;
  dispose(): Promise<void>;

  open(path: Path, flags: number, mode?: number): Promise<Fd>;
  close(fd: Fd): Promise<void>;
  /** pread(2): fewer bytes than asked for mean the end of the file. */
  read(fd: Fd, offset: number, lengthBytes: number): Promise<Uint8Array>;
  /** pwrite(2). @returns bytes taken */
  write(fd: Fd, offset: number, bytes: Uint8Array): Promise<number>;
  ftruncate(fd: Fd, sizeBytes: number): Promise<void>;
  fsync(fd: Fd): Promise<void>;
  fstat(fd: Fd): Promise<FileStat>;
  fallocate(fd: Fd, mode: number, offset: number, lengthBytes: number): Promise<void>;
  /** lseek(2). @returns the new position */
  lseek(fd: Fd, offset: number, whence: number): Promise<number>;

  stat(path: Path): Promise<FileStat>;
  lstat(path: Path): Promise<FileStat>;
  /** Names with inode and kind, `.` and `..` left out, in the order of the file system. */
  readdir(path: Path): Promise<readonly FolderEntry[]>;
  truncate(path: Path, sizeBytes: number): Promise<void>;
  mkdir(path: Path, mode?: number): Promise<void>;
  rmdir(path: Path): Promise<void>;
  unlink(path: Path): Promise<void>;
  /** renameat2(2). */
  rename(from: Path, to: Path, flags?: number): Promise<void>;
  link(existing: Path, added: Path): Promise<void>;
  symlink(target: string, path: Path): Promise<void>;
  readlink(path: Path): Promise<string>;
  chmod(path: Path, mode: number): Promise<void>;
  /** lchown(2); -1 leaves one as it is. */
  chown(path: Path, uid: number, gid: number): Promise<void>;
  utimes(path: Path, atime: Moment, mtime: Moment): Promise<void>;
  statfs(path: Path): Promise<SpaceStat>;
  getxattr(path: Path, name: string): Promise<Uint8Array>;
  setxattr(path: Path, name: string, value: Uint8Array, flags?: number): Promise<void>;
  listxattr(path: Path): Promise<readonly string[]>;
  removexattr(path: Path, name: string): Promise<void>;

  /** System calls that only a process has; present exactly when `can` has 'process'. */
  readonly process?: ProcessCalls;
}

/** What makes sense only for a process with a kernel below it. */
export interface ProcessCalls {
  /** read(2) and write(2) at the descriptor's own position. */
  readHere(fd: Fd, lengthBytes: number): Promise<Uint8Array>;
  writeHere(fd: Fd, bytes: Uint8Array): Promise<number>;
  dup(fd: Fd): Promise<Fd>;
  fdatasync(fd: Fd): Promise<void>;
  /** ioctl(2) with FS_IOC_GETFLAGS and FS_IOC_SETFLAGS, as lsattr(1) and chattr(1) call it. */
  getFlags(fd: Fd): Promise<number>;
  setFlags(fd: Fd, flags: number): Promise<void>;
  fchmod(fd: Fd, mode: number): Promise<void>;
  futimes(fd: Fd, atime: Moment, mtime: Moment): Promise<void>;
  lutimes(path: Path, atime: Moment, mtime: Moment): Promise<void>;
  access(path: Path, mode: number): Promise<void>;
  mknod(path: Path, mode: number): Promise<void>;
  /** bind(2) of a unix socket, which stays bound until the process ends. */
  bind(path: Path): Promise<void>;
  /** linkat(2) of what a descriptor is open for. */
  linkOpen(fd: Fd, added: Path): Promise<void>;
  copyFileRange(from: Fd, fromOffset: number, to: Fd, toOffset: number, lengthBytes: number): Promise<number>;
  flock(fd: Fd, operation: number): Promise<void>;
  /** fcntl(F_SETLK) of a range. */
  setLock(fd: Fd, type: number, offset: number, lengthBytes: number): Promise<void>;
  /** @returns the mask before */
  umask(mask: number): Promise<number>;
  /** getxattr(2) into a buffer of so many bytes. */
  getxattrInto(path: Path, name: string, capacityBytes: number): Promise<Uint8Array | number>;
  mmap(fd: Fd, offset: number, lengthBytes: number, protection: number, flags: number): Promise<Mapping>;
  peek(mapping: Mapping, offset: number, lengthBytes: number): Promise<Uint8Array>;
  poke(mapping: Mapping, offset: number, bytes: Uint8Array): Promise<void>;
  msync(mapping: Mapping): Promise<void>;
  munmap(mapping: Mapping): Promise<void>;
  opendir(path: Path): Promise<Stream>;
  /** Opens `.` of a folder that a descriptor is open for. */
  opendirAt(fd: Fd): Promise<Stream>;
  /** The next entries, `.` and `..` among them; none at the end. */
  nextEntries(stream: Stream, entriesMax: number): Promise<readonly FolderEntry[]>;
  /** Opaque: ext4 uses all 64 bits, more than a number holds. */
  telldir(stream: Stream): Promise<string>;
  seekdir(stream: Stream, position: string): Promise<void>;
  rewinddir(stream: Stream): Promise<void>;
  closedir(stream: Stream): Promise<void>;
}

/**
 * process: `ProcessCalls`, and what the kernel above a file system sees to (access modes, PATH_MAX, symlinks in the middle of a path).
 * users: becoming another user, and a kernel that checks permissions.
 */
export type Capability = 'process' | 'users';

export type Path = string | Uint8Array;
export type Fd = number & { readonly kind?: 'fd' };
export type Mapping = number & { readonly kind?: 'mapping' };
export type Stream = number & { readonly kind?: 'stream' };

/** Nanoseconds since the epoch, or this moment, or leave it. */
export type Moment = bigint | 'now' | 'omit';

export interface User {
  readonly uid: number;
  readonly gid: number;
}

export interface FileStat {
  readonly kind: 'file' | 'folder' | 'symlink' | 'fifo' | 'socket' | 'other';
  /** Permission bits, 07777. */
  readonly mode: number;
  readonly ino: number;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  readonly blocks512: number;
  readonly atimeNs: bigint;
  readonly mtimeNs: bigint;
  readonly ctimeNs: bigint;
}

export interface FolderEntry {
  readonly name: string;
  readonly ino: number;
  /** 'unknown' is allowed by readdir(3): ask lstat. */
  readonly kind: 'file' | 'folder' | 'symlink' | 'fifo' | 'socket' | 'other' | 'unknown';
}

export interface SpaceStat {
  readonly blockBytes: number;
  readonly blocks: number;
  readonly blocksFree: number;
  readonly blocksAvailable: number;
  readonly files: number;
  readonly filesFree: number;
  readonly nameBytesMax: number;
}

/** A call that failed, with the name of its errno. */
export class CallError extends Error {
  override readonly name = 'CallError';
  readonly errno: string;

  constructor(errno: string, call: string) {
    super(`${call}: ${errno}`);
    this.errno = errno;
  }
}

/** The first name of an errno's number; EWOULDBLOCK and ENOTSUP are told by their other names, EAGAIN and EOPNOTSUPP. */
export function errnoName(number: number): string {
  const names = Object.entries(osConstants.errno).filter(([, value]) => value === number);
  const name = names.map(([key]) => key).find((key) => key !== 'EWOULDBLOCK' && key !== 'ENOTSUP');
  return name ?? names[0]?.[0] ?? `errno ${number}`;
}

/** open(2) flags; those that Node does not know are the generic Linux numbers (asm-generic/fcntl.h: x64 and arm64 agree on these). */
export const {
  O_RDONLY,
  O_WRONLY,
  O_RDWR,
  O_CREAT,
  O_EXCL,
  O_TRUNC,
  O_APPEND,
  O_DIRECTORY,
  O_NOFOLLOW,
  O_SYNC,
  O_DSYNC,
  R_OK,
  W_OK,
  X_OK,
  F_OK,
} = fsConstants;
export const O_TMPFILE = 0o20000000 | O_DIRECTORY;
export const O_PATH = 0o10000000;

export const RENAME_NOREPLACE = 1;
export const RENAME_EXCHANGE = 2;

export const FALLOC_ALLOCATE = 0;
export const FALLOC_KEEP_SIZE = 1;
export const FALLOC_PUNCH_HOLE = 2;
export const FALLOC_ZERO_RANGE = 0x10;

export const SEEK_SET = 0;
export const SEEK_CUR = 1;
export const SEEK_END = 2;
export const SEEK_DATA = 3;
export const SEEK_HOLE = 4;

export const XATTR_CREATE = 1;
export const XATTR_REPLACE = 2;

export const PROT_READ = 1;
export const PROT_WRITE = 2;
export const MAP_SHARED = 1;
export const MAP_PRIVATE = 2;

export const LOCK_SH = 1;
export const LOCK_EX = 2;
export const LOCK_NB = 4;
export const LOCK_UN = 8;
export const F_RDLCK = 0;
export const F_WRLCK = 1;
export const F_UNLCK = 2;

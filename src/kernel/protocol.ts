/**
 * The kernel's FUSE protocol as numbers. Own constants, because a distribution's header is as old as the distribution.
 * Source: include/uapi/linux/fuse.h of the kernel, protocol 7.x; they are ABI and never change.
 */

export const PROTOCOL_MAJOR = 7;
/** The newest minor version with known message layouts; the kernel uses the smaller of the two. */
export const PROTOCOL_MINOR_MAX = 45;
/** Below this (Linux 4.2, 2015) replies have other lengths: refused. */
export const PROTOCOL_MINOR_MIN = 23;

export const Opcode = {
  LOOKUP: 1,
  FORGET: 2,
  GETATTR: 3,
  SETATTR: 4,
  READLINK: 5,
  SYMLINK: 6,
  MKNOD: 8,
  MKDIR: 9,
  UNLINK: 10,
  RMDIR: 11,
  RENAME: 12,
  LINK: 13,
  OPEN: 14,
  READ: 15,
  WRITE: 16,
  STATFS: 17,
  RELEASE: 18,
  FSYNC: 20,
  SETXATTR: 21,
  GETXATTR: 22,
  LISTXATTR: 23,
  REMOVEXATTR: 24,
  FLUSH: 25,
  INIT: 26,
  OPENDIR: 27,
  READDIR: 28,
  RELEASEDIR: 29,
  FSYNCDIR: 30,
  ACCESS: 34,
  CREATE: 35,
  INTERRUPT: 36,
  DESTROY: 38,
  BATCH_FORGET: 42,
  FALLOCATE: 43,
  READDIRPLUS: 44,
  RENAME2: 45,
  LSEEK: 46,
  TMPFILE: 51,
} as const;
export type Opcode = (typeof Opcode)[keyof typeof Opcode];

/** struct fuse_in_header */
export const IN_LENGTH = 0;
export const IN_OPCODE = 4;
export const IN_UNIQUE = 8;
export const IN_NODEID = 16;
export const IN_UID = 24;
export const IN_GID = 28;
export const IN_PID = 32;
export const IN_HEADER_BYTES = 40;

/** struct fuse_out_header; `unique` has the same offset as in the request. */
export const OUT_LENGTH = 0;
export const OUT_ERROR = 4;
export const OUT_UNIQUE = 8;
export const OUT_HEADER_BYTES = 16;

export const ATTR_BYTES = 88;
export const ENTRY_OUT_BYTES = 40 + ATTR_BYTES;
export const ATTR_OUT_BYTES = 16 + ATTR_BYTES;
export const OPEN_OUT_BYTES = 16;
export const STATFS_OUT_BYTES = 80;
/** struct fuse_dirent without its name. */
export const DIRENT_BYTES = 24;
export const INIT_OUT_BYTES = 64;

/** fuse_setattr_in.valid */
export const FATTR_MODE = 1 << 0;
export const FATTR_UID = 1 << 1;
export const FATTR_GID = 1 << 2;
export const FATTR_SIZE = 1 << 3;
export const FATTR_ATIME = 1 << 4;
export const FATTR_MTIME = 1 << 5;
export const FATTR_FH = 1 << 6;
export const FATTR_ATIME_NOW = 1 << 7;
export const FATTR_MTIME_NOW = 1 << 8;
export const FATTR_CTIME = 1 << 10;
export const FATTR_KILL_SUIDGID = 1 << 11;

export const GETATTR_FH = 1 << 0;
/** fuse_write_in.write_flags. CACHE: from a shared mapping, through a handle that the kernel guessed (fuse_writepages). */
export const WRITE_CACHE = 1 << 0;
export const WRITE_KILL_SUIDGID = 1 << 2;
export const OPEN_KILL_SUIDGID = 1 << 0;
export const FSYNC_FDATASYNC = 1 << 0;

export const FOPEN_DIRECT_IO = 1 << 0;
export const FOPEN_KEEP_CACHE = 1 << 1;
export const FOPEN_CACHE_DIR = 1 << 3;
export const FOPEN_NOFLUSH = 1 << 5;

export const RENAME_NOREPLACE = 1 << 0;
export const RENAME_EXCHANGE = 1 << 1;

/** lseek(2) */
export const SEEK_DATA = 3;
export const SEEK_HOLE = 4;

/** fuse_out_header.error of a notification, whose `unique` is 0. */
export const Notify = { INVAL_INODE: 2, INVAL_ENTRY: 3, DELETE: 6 } as const;
export const INVAL_ENTRY_EXPIRE_ONLY = 1 << 0;

/** st_mode's file type. */
export const S_IFMT = 0o170000;
export const S_IFREG = 0o100000;
export const S_IFDIR = 0o040000;
export const S_IFLNK = 0o120000;
export const S_IFIFO = 0o010000;
export const S_IFSOCK = 0o140000;

/** d_type of a directory entry: st_mode's file type shifted down (readdir(3)). */
export const DT_FIFO = 1;
export const DT_DIR = 4;
export const DT_REG = 8;
export const DT_LNK = 10;
export const DT_SOCK = 12;

/** setxattr(2) */
export const XATTR_CREATE = 1;
export const XATTR_REPLACE = 2;

/** The longest accepted name, in bytes. */
export const NAME_BYTES_MAX = 255;

import { type Errno, FsError } from '../base/errors.ts';

/** The numbers of NFS version 3 and its MOUNT protocol (RFC 1813). */

export const NFS_PROGRAM = 100003;
export const MOUNT_PROGRAM = 100005;
export const VERSION = 3;

export const NAME_BYTES_MAX = 255;
export const PATH_BYTES_MAX = 1024;
/** A symlink's target; PATH_MAX of Linux. */
export const TARGET_BYTES_MAX = 4096;
export const VERIFIER_BYTES = 8;
/** The longest READ and WRITE. */
export const TRANSFER_BYTES_MAX = 1024 * 1024;

/** nfsstat3 */
export const STATUS = {
  ok: 0,
  perm: 1,
  noent: 2,
  io: 5,
  nxio: 6,
  acces: 13,
  exist: 17,
  xdev: 18,
  notdir: 20,
  isdir: 21,
  inval: 22,
  fbig: 27,
  nospc: 28,
  rofs: 30,
  mlink: 31,
  nametoolong: 63,
  notempty: 66,
  dquot: 69,
  stale: 70,
  badhandle: 10001,
  notSync: 10002,
  notsupp: 10004,
  toosmall: 10005,
  serverfault: 10006,
  badtype: 10007,
  jukebox: 10008,
} as const;

export type Status = (typeof STATUS)[keyof typeof STATUS];

/** Errnos without a status of their own become EIO. */
const STATUS_OF_ERRNO: Partial<Record<Errno, Status>> = {
  EPERM: STATUS.perm,
  ENOENT: STATUS.noent,
  ENXIO: STATUS.nxio,
  EACCES: STATUS.acces,
  EEXIST: STATUS.exist,
  EXDEV: STATUS.xdev,
  ENOTDIR: STATUS.notdir,
  EISDIR: STATUS.isdir,
  EINVAL: STATUS.inval,
  EILSEQ: STATUS.inval,
  EFBIG: STATUS.fbig,
  ENOSPC: STATUS.nospc,
  EROFS: STATUS.rofs,
  EMLINK: STATUS.mlink,
  ENAMETOOLONG: STATUS.nametoolong,
  ENOTEMPTY: STATUS.notempty,
  EDQUOT: STATUS.dquot,
  ESTALE: STATUS.stale,
  ENOTSUP: STATUS.notsupp,
  EOPNOTSUPP: STATUS.notsupp,
  ENOSYS: STATUS.notsupp,
};

/** A failure that has a status of NFS, and perhaps no errno. */
export class NfsError extends Error {
  override readonly name = 'NfsError';
  readonly status: Status;

  constructor(status: Status) {
    super(`nfsstat3 ${status}`);
    this.status = status;
  }
}

/** The status of a failure that `OpBoundary` or a procedure reported; null for any other exception. */
export function statusOf(error: unknown): Status | null {
  if (error instanceof NfsError) return error.status;
  return error instanceof FsError ? (STATUS_OF_ERRNO[error.errno] ?? STATUS.io) : null;
}

/** ftype3 by the kind of a node. */
export const FILE_TYPE = { file: 1, folder: 2, symlink: 5, socket: 6, fifo: 7 } as const;
/** ftype3 of devices, which are refused. */
export const DEVICE_TYPES: ReadonlySet<number> = new Set([3, 4]);

/** stable_how */
export const UNSTABLE = 0;
export const FILE_SYNC = 2;

/** createmode3 */
export const CREATE_MODE = { unchecked: 0, guarded: 1, exclusive: 2 } as const;

/** The procedures of NFS version 3. */
export const PROCEDURE = {
  null: 0,
  getattr: 1,
  setattr: 2,
  lookup: 3,
  access: 4,
  readlink: 5,
  read: 6,
  write: 7,
  create: 8,
  mkdir: 9,
  symlink: 10,
  mknod: 11,
  remove: 12,
  rmdir: 13,
  rename: 14,
  link: 15,
  readdir: 16,
  readdirplus: 17,
  fsstat: 18,
  fsinfo: 19,
  pathconf: 20,
  commit: 21,
} as const;

import { setImmediate } from 'node:timers/promises';
import { FsError } from '../../src/base/errors.ts';
import type { Timespec } from '../../src/base/vocabulary.ts';
import type { AllocateMode, Attributes, RenameMode } from '../../src/kernel/binding.ts';
import type { InProcessMount } from '../harness/in-process-mount.ts';
import {
  CallError,
  type Capability,
  FALLOC_ALLOCATE,
  FALLOC_KEEP_SIZE,
  FALLOC_PUNCH_HOLE,
  FALLOC_ZERO_RANGE,
  type Fd,
  type FileApi,
  type FileStat,
  type FolderEntry,
  type Moment,
  type Path,
  RENAME_EXCHANGE,
  RENAME_NOREPLACE,
  SEEK_DATA,
  type SpaceStat,
  XATTR_CREATE,
  XATTR_REPLACE,
} from './file-api.ts';

/** A kernel's requests come with the event loop; without a turn now and then nothing else in this process would get one. */
const CALLS_PER_TURN = 32;
let calls = 0;

const NS_PER_SECOND = 1_000_000_000n;

const ALLOCATE_MODES = new Map<number, AllocateMode>([
  [FALLOC_ALLOCATE, 'allocate'],
  [FALLOC_KEEP_SIZE, 'keep-size'],
  [FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 'punch-hole'],
  [FALLOC_ZERO_RANGE, 'zero-range'],
  [FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, 'zero-range-keep-size'],
]);
const RENAME_MODES = new Map<number, RenameMode>([
  [0, 'replace'],
  [RENAME_NOREPLACE, 'no-replace'],
  [RENAME_EXCHANGE, 'exchange'],
]);
const XATTR_MODES = new Map<number, 'set' | 'create' | 'replace'>([
  [0, 'set'],
  [XATTR_CREATE, 'create'],
  [XATTR_REPLACE, 'replace'],
]);

/** `FileApi` over a file system in this process, without a kernel and without its caches. */
export class InProcessApi implements FileApi {
  readonly can: ReadonlySet<Capability> = new Set<Capability>();
  readonly #mount: InProcessMount;

  constructor(mount: InProcessMount) {
    this.#mount = mount;
  }

  async another(): Promise<InProcessApi> {
    return this;
  }

  async dispose(): Promise<void> {
    await this.#mount.unmount();
  }

  open = (path: Path, flags: number, mode = 0o666): Promise<Fd> => told(this.#mount.open(path, flags, mode), 'open');
  close = (fd: Fd): Promise<void> => told(this.#mount.close(fd), 'close');
  read = (fd: Fd, offset: number, lengthBytes: number): Promise<Uint8Array> =>
    told(this.#mount.read(fd, offset, lengthBytes), 'read');
  // A write of nothing never reaches a file system: the kernel answers it.
  write = (fd: Fd, offset: number, bytes: Uint8Array): Promise<number> =>
    bytes.byteLength === 0 ? Promise.resolve(0) : told(this.#mount.write(fd, offset, bytes), 'write');
  ftruncate = (fd: Fd, sizeBytes: number): Promise<void> => told(this.#mount.ftruncate(fd, sizeBytes), 'ftruncate');
  fsync = (fd: Fd): Promise<void> => told(this.#mount.fsync(fd), 'fsync');
  fstat = (fd: Fd): Promise<FileStat> => told(this.#mount.fstat(fd).then(statOf), 'fstat');
  fallocate = (fd: Fd, mode: number, offset: number, lengthBytes: number): Promise<void> =>
    told(this.#mount.fallocate(fd, known(ALLOCATE_MODES, mode), offset, lengthBytes), 'fallocate');
  lseek = (fd: Fd, offset: number, whence: number): Promise<number> =>
    told(this.#mount.lseek(fd, offset, whence === SEEK_DATA ? 'data' : 'hole'), 'lseek');
  stat = (path: Path): Promise<FileStat> => told(this.#mount.stat(path).then(statOf), 'stat');
  lstat = (path: Path): Promise<FileStat> => told(this.#mount.lstat(path).then(statOf), 'lstat');
  readdir = (path: Path): Promise<readonly FolderEntry[]> => told(this.#mount.readdir(path), 'readdir');
  truncate = (path: Path, sizeBytes: number): Promise<void> => told(this.#mount.truncate(path, sizeBytes), 'truncate');
  mkdir = (path: Path, mode?: number): Promise<void> => told(this.#mount.mkdir(path, mode), 'mkdir');
  rmdir = (path: Path): Promise<void> => told(this.#mount.rmdir(path), 'rmdir');
  unlink = (path: Path): Promise<void> => told(this.#mount.unlink(path), 'unlink');
  rename = (from: Path, to: Path, flags = 0): Promise<void> =>
    told(this.#mount.rename(from, to, known(RENAME_MODES, flags)), 'rename');
  link = (existing: Path, added: Path): Promise<void> => told(this.#mount.link(existing, added), 'link');
  symlink = (target: string, path: Path): Promise<void> => told(this.#mount.symlink(target, path), 'symlink');
  readlink = (path: Path): Promise<string> => told(this.#mount.readlink(path), 'readlink');
  chmod = (path: Path, mode: number): Promise<void> => told(this.#mount.chmod(path, mode), 'chmod');
  chown = (path: Path, uid: number, gid: number): Promise<void> => told(this.#mount.chown(path, uid, gid), 'chown');
  utimes = (path: Path, atime: Moment, mtime: Moment): Promise<void> =>
    told(this.#mount.utimes(path, timespecOf(atime), timespecOf(mtime)), 'utimes');
  statfs = (path: Path): Promise<SpaceStat> => told(this.#mount.statfs(path), 'statfs');
  getxattr = (path: Path, name: string): Promise<Uint8Array> => told(this.#mount.getxattr(path, name), 'getxattr');
  setxattr = (path: Path, name: string, value: Uint8Array, flags = 0): Promise<void> =>
    told(this.#mount.setxattr(path, name, value, known(XATTR_MODES, flags)), 'setxattr');
  listxattr = (path: Path): Promise<readonly string[]> => told(this.#mount.listxattr(path), 'listxattr');
  removexattr = (path: Path, name: string): Promise<void> => told(this.#mount.removexattr(path, name), 'removexattr');
}

async function told<T>(call: Promise<T>, name: string): Promise<T> {
  try {
    return await call;
  } catch (error) {
    if (!(error instanceof FsError)) throw error;
    const failed = new CallError(error.errno === 'ENOTSUP' ? 'EOPNOTSUPP' : error.errno, `${name}: ${error.message}`);
    failed.cause = error;
    throw failed;
  } finally {
    if (++calls % CALLS_PER_TURN === 0) await setImmediate();
  }
}

function known<T>(modes: ReadonlyMap<number, T>, flags: number): T {
  const mode = modes.get(flags);
  if (mode === undefined) throw new Error(`a kernel would not let ${flags} through`);
  return mode;
}

function timespecOf(moment: Moment): Timespec | 'now' | 'omit' {
  if (typeof moment === 'string') return moment;
  const sec = (moment - (((moment % NS_PER_SECOND) + NS_PER_SECOND) % NS_PER_SECOND)) / NS_PER_SECOND;
  return { sec: Number(sec), nsec: Number(moment - sec * NS_PER_SECOND) };
}

function nanoseconds({ sec, nsec }: Timespec): bigint {
  return BigInt(sec) * NS_PER_SECOND + BigInt(nsec);
}

function statOf(attributes: Attributes): FileStat {
  const { kind, mode, ino, nlink, uid, gid, sizeBytes, blocks512 } = attributes;
  return {
    kind,
    mode,
    ino,
    nlink,
    uid,
    gid,
    sizeBytes,
    blocks512,
    atimeNs: nanoseconds(attributes.atime),
    mtimeNs: nanoseconds(attributes.mtime),
    ctimeNs: nanoseconds(attributes.ctime),
  };
}

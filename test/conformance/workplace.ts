import { expect } from 'vitest';
import {
  CallError,
  type Fd,
  type FileApi,
  type FileStat,
  type FolderEntry,
  type Moment,
  O_CREAT,
  O_RDONLY,
  O_TRUNC,
  O_WRONLY,
  type Path,
  type ProcessCalls,
  type SpaceStat,
  type User,
} from './file-api.ts';

/** Longest piece that `put` and `get` move in one call. */
const PIECE_BYTES = 1 << 20;
/** Calls that are asked for before the answer to the first of them: fewer than descriptors a process may have. */
const AT_ONCE = 100;

/**
 * A folder of its own for one case: the calls of `FileApi` with paths inside that folder, and what cases need again and
 * again. Forgets nothing: `leave` closes what was left open and ends the processes that the case started.
 */
export class Workplace {
  readonly #api: FileApi;
  readonly #folder: string;
  readonly #fds = new Set<Fd>();
  readonly #others: { api: FileApi; place: Workplace }[] = [];

  constructor(api: FileApi, folder: string) {
    this.#api = api;
    this.#folder = folder;
  }

  /** The calls that only a process has; a case that uses them says so in `needs`. */
  get process(): ProcessCalls {
    const calls = this.#api.process;
    if (calls === undefined) throw new Error('the case uses process calls and does not say so in `needs`');
    const inside = (path: Path) => this.path(path);
    return {
      ...calls,
      lutimes: (path, atime, mtime) => calls.lutimes(inside(path), atime, mtime),
      access: (path, mode) => calls.access(inside(path), mode),
      mknod: (path, mode) => calls.mknod(inside(path), mode),
      bind: (path) => calls.bind(inside(path)),
      linkOpen: (fd, added) => calls.linkOpen(fd, inside(added)),
      getxattrInto: (path, name, capacity) => calls.getxattrInto(inside(path), name, capacity),
      opendir: (path) => calls.opendir(inside(path)),
      dup: async (fd) => this.#opened(await calls.dup(fd)),
    };
  }

  /** The same folder seen by another process, as another user if given. */
  async another(user?: User): Promise<Workplace> {
    const api = await this.#api.another(user);
    const place = new Workplace(api, this.#folder);
    this.#others.push({ api, place });
    return place;
  }

  /** Closes every descriptor and process that the case left. */
  async leave(): Promise<void> {
    for (const { api, place } of this.#others) {
      await place.leave();
      await api.dispose();
    }
    for (const fd of [...this.#fds]) await this.close(fd);
  }

  /** The path as the file system gets it. */
  path(path: Path): Path {
    if (typeof path === 'string') return path === '' ? this.#folder : `${this.#folder}/${path}`;
    return Buffer.concat([Buffer.from(`${this.#folder}/`), path]);
  }

  async open(path: Path, flags: number, mode?: number): Promise<Fd> {
    return this.#opened(await this.#api.open(this.path(path), flags, mode));
  }
  async close(fd: Fd): Promise<void> {
    this.#fds.delete(fd);
    await this.#api.close(fd);
  }
  read = (fd: Fd, offset: number, lengthBytes: number): Promise<Uint8Array> => this.#api.read(fd, offset, lengthBytes);
  write = (fd: Fd, offset: number, bytes: Uint8Array | string): Promise<number> =>
    this.#api.write(fd, offset, Buffer.from(bytes));
  ftruncate = (fd: Fd, sizeBytes: number): Promise<void> => this.#api.ftruncate(fd, sizeBytes);
  fsync = (fd: Fd): Promise<void> => this.#api.fsync(fd);
  fstat = (fd: Fd): Promise<FileStat> => this.#api.fstat(fd);
  fallocate = (fd: Fd, mode: number, offset: number, lengthBytes: number): Promise<void> =>
    this.#api.fallocate(fd, mode, offset, lengthBytes);
  lseek = (fd: Fd, offset: number, whence: number): Promise<number> => this.#api.lseek(fd, offset, whence);
  stat = (path: Path): Promise<FileStat> => this.#api.stat(this.path(path));
  lstat = (path: Path): Promise<FileStat> => this.#api.lstat(this.path(path));
  readdir = (path: Path): Promise<readonly FolderEntry[]> => this.#api.readdir(this.path(path));
  truncate = (path: Path, sizeBytes: number): Promise<void> => this.#api.truncate(this.path(path), sizeBytes);
  mkdir = (path: Path, mode?: number): Promise<void> => this.#api.mkdir(this.path(path), mode);
  rmdir = (path: Path): Promise<void> => this.#api.rmdir(this.path(path));
  unlink = (path: Path): Promise<void> => this.#api.unlink(this.path(path));
  rename = (from: Path, to: Path, flags?: number): Promise<void> =>
    this.#api.rename(this.path(from), this.path(to), flags);
  link = (existing: Path, added: Path): Promise<void> => this.#api.link(this.path(existing), this.path(added));
  symlink = (target: string, path: Path): Promise<void> => this.#api.symlink(target, this.path(path));
  readlink = (path: Path): Promise<string> => this.#api.readlink(this.path(path));
  chmod = (path: Path, mode: number): Promise<void> => this.#api.chmod(this.path(path), mode);
  chown = (path: Path, uid: number, gid: number): Promise<void> => this.#api.chown(this.path(path), uid, gid);
  utimes = (path: Path, atime: Moment, mtime: Moment): Promise<void> => this.#api.utimes(this.path(path), atime, mtime);
  statfs = (path: Path): Promise<SpaceStat> => this.#api.statfs(this.path(path));
  getxattr = (path: Path, name: string): Promise<Uint8Array> => this.#api.getxattr(this.path(path), name);
  setxattr = (path: Path, name: string, value: Uint8Array | string, flags?: number): Promise<void> =>
    this.#api.setxattr(this.path(path), name, Buffer.from(value), flags);
  listxattr = (path: Path): Promise<readonly string[]> => this.#api.listxattr(this.path(path));
  removexattr = (path: Path, name: string): Promise<void> => this.#api.removexattr(this.path(path), name);

  /** Writes a whole file, creating or replacing its bytes. */
  async put(path: Path, bytes: Uint8Array | string = '', mode?: number): Promise<void> {
    const data = Buffer.from(bytes);
    const fd = await this.open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    for (let offset = 0; offset < data.byteLength; offset += PIECE_BYTES) {
      await this.write(fd, offset, data.subarray(offset, offset + PIECE_BYTES));
    }
    await this.close(fd);
  }

  /** Makes empty files. One after the other as the file system sees it, without a way there and back for each. */
  async putEmpty(paths: readonly string[]): Promise<void> {
    await inRows(paths, async (row) => {
      const fds = await Promise.all(row.map((path) => this.open(path, O_WRONLY | O_CREAT | O_TRUNC)));
      await Promise.all(fds.map((fd) => this.close(fd)));
    });
  }

  /** `unlink` of each, as `putEmpty`. */
  async unlinkAll(paths: readonly string[]): Promise<void> {
    await inRows(paths, (row) => Promise.all(row.map((path) => this.unlink(path))));
  }

  /** All bytes of a file. */
  async get(path: Path): Promise<Buffer> {
    const fd = await this.open(path, O_RDONLY);
    const pieces: Uint8Array[] = [];
    for (let offset = 0; ; ) {
      const piece = await this.read(fd, offset, PIECE_BYTES);
      if (piece.byteLength === 0) break;
      pieces.push(piece);
      offset += piece.byteLength;
    }
    await this.close(fd);
    return Buffer.concat(pieces);
  }

  async text(path: Path): Promise<string> {
    return (await this.get(path)).toString();
  }

  /** Sorted names in a folder. */
  async names(path: Path = ''): Promise<string[]> {
    return (await this.readdir(path)).map(({ name }) => name).sort();
  }

  async exists(path: Path): Promise<boolean> {
    return this.lstat(path).then(
      () => true,
      (error: unknown) => {
        if (error instanceof CallError && error.errno === 'ENOENT') return false;
        throw error;
      },
    );
  }

  /** Returns once the file system's own clock has moved on: what changes now gets a later time than everything before. */
  async tick(): Promise<void> {
    const probe = '.tick';
    await this.put(probe, '0');
    const { mtimeNs } = await this.stat(probe);
    const fd = await this.open(probe, O_WRONLY);
    // 1,000 writes take longer than any granularity in use (4 ms); a file system that never moves fails the case below.
    for (let turn = 0; turn < 100_000; turn++) {
      await this.write(fd, 0, '1');
      if ((await this.fstat(fd)).mtimeNs > mtimeNs) break;
    }
    expect((await this.fstat(fd)).mtimeNs, 'the clock of the file system moves').toBeGreaterThan(mtimeNs);
    await this.close(fd);
    await this.unlink(probe);
  }

  /** Removes the folder and what is in it. */
  async clear(path: Path = ''): Promise<void> {
    for (const { name } of await this.readdir(path)) {
      const child = path === '' ? name : `${path}/${name}`;
      if ((await this.lstat(child)).kind === 'folder') await this.clear(child);
      else await this.unlink(child);
    }
    await this.rmdir(path);
  }

  #opened(fd: Fd): Fd {
    this.#fds.add(fd);
    return fd;
  }
}

/** `AT_ONCE` at a time. */
async function inRows(paths: readonly string[], each: (row: readonly string[]) => Promise<unknown>): Promise<void> {
  for (let at = 0; at < paths.length; at += AT_ONCE) await each(paths.slice(at, at + AT_ONCE));
}

/** Asserts that a call fails with one of these errnos. */
export async function fails(errno: string | readonly string[], call: Promise<unknown>): Promise<void> {
  const allowed = typeof errno === 'string' ? [errno] : errno;
  const outcome = await call.then(
    () => 'success',
    (error: unknown) => {
      if (error instanceof CallError) return error.errno;
      throw error;
    },
  );
  expect(allowed, `expected ${allowed.join(' or ')}, got ${outcome}`).toContain(outcome);
}

/** `length` bytes that differ from their neighbours and from those of another `seed`. */
export function pattern(lengthBytes: number, seed = 1): Buffer {
  const bytes = Buffer.alloc(lengthBytes);
  let state = (seed * 2654435761) >>> 0 || 1;
  for (let at = 0; at < lengthBytes; at++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes[at] = state;
  }
  return bytes;
}

/** Equality of long rows of bytes, told by the first difference instead of by megabytes of text. */
export function expectSameBytes(found: Uint8Array, wanted: Uint8Array, what = 'bytes'): void {
  const a = Buffer.from(found.buffer, found.byteOffset, found.byteLength);
  const b = Buffer.from(wanted.buffer, wanted.byteOffset, wanted.byteLength);
  if (a.equals(b)) return;
  let at = 0;
  while (at < Math.min(a.byteLength, b.byteLength) && a[at] === b[at]) at++;
  expect.fail(
    `${what}: ${a.byteLength} bytes found, ${b.byteLength} wanted, first difference at ${at}: ` +
      `${a.subarray(at, at + 16).toString('hex')} instead of ${b.subarray(at, at + 16).toString('hex')}`,
  );
}

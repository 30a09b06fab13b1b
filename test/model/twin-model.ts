import { createHash } from 'node:crypto';
import {
  CallError,
  FALLOC_ALLOCATE,
  FALLOC_KEEP_SIZE,
  FALLOC_PUNCH_HOLE,
  FALLOC_ZERO_RANGE,
  type Fd,
  type FileApi,
  type FileStat,
  MAP_SHARED,
  O_APPEND,
  O_CREAT,
  O_EXCL,
  O_RDONLY,
  O_RDWR,
  O_TRUNC,
  O_WRONLY,
  PROT_READ,
  PROT_WRITE,
  RENAME_EXCHANGE,
  RENAME_NOREPLACE,
} from '../conformance/file-api.ts';
import { expectSameBytes } from '../conformance/workplace.ts';
import type { SeededRandom } from '../store/seeded-random.ts';

/** Few names, so that operations meet; some long, some in scripts. */
const NAMES = ['a', 'b', 'c', 'd', 'Größe 文件', 'n'.repeat(255)];
const HANDLES_MAX = 8;
const PATHS_MAX = 12;
const FILE_BYTES_MAX = 400_000;
const WRITE_BYTES_MAX = 30_000;
const TRACE_SHOWN = 40;

/** One open(2), on both sides. */
interface Handle {
  readonly plain: Fd;
  readonly tested: Fd;
  readonly flags: number;
  /** In the trace: which open it was, and of what. */
  readonly name: string;
}

type Step = (model: TwinModel) => Promise<void>;

/** What the tested side cannot do: `fallocate`, `xattr` and flags of renameat2(2), and `nlink` 0 of removed open files. */
export type TwinLimit = 'fallocate' | 'xattr' | 'rename flags' | 'nlink';

/**
 * The same random operations on a plain directory and on what is tested; after each, both must have answered the same:
 * the same bytes, the same attributes, or the same errno. What users believe of a file system is what ext4 does.
 */
export class TwinModel {
  readonly #plain: FileApi;
  readonly #tested: FileApi;
  readonly #random: SeededRandom;
  readonly #lacks: readonly TwinLimit[];
  readonly #handles: Handle[] = [];
  readonly #trace: string[] = [];
  #opens = 0;
  readonly #files: string[] = [];
  readonly #folders: string[] = [];

  constructor(sides: { plain: FileApi; tested: FileApi; random: SeededRandom; lacks?: readonly TwinLimit[] }) {
    this.#lacks = sides.lacks ?? [];
    this.#plain = sides.plain;
    this.#tested = sides.tested;
    this.#random = sides.random;
  }

  /** The last operations, to be shown beside a failure. */
  get trace(): string {
    return this.#trace.slice(-TRACE_SHOWN).join('\n');
  }

  get wholeTrace(): string {
    return this.#trace.join('\n');
  }

  async run(steps: number): Promise<void> {
    for (let step = 0; step < steps; step++) {
      await this.#random.pick(STEPS)(this);
      if (step % 200 === 199) await this.compareTrees();
    }
  }

  async closeAll(): Promise<void> {
    for (const handle of this.#handles.splice(0)) await this.#close(handle);
  }

  /** Names, kinds, modes, sizes, links and bytes of everything. */
  async compareTrees(): Promise<void> {
    const walk = async (path: string): Promise<void> => {
      const [plain, tested] = await Promise.all([this.#plain.readdir(path), this.#tested.readdir(path)]);
      const names = plain.map(({ name }) => name).sort();
      this.#same(`names in '${path}'`, tested.map(({ name }) => name).sort(), names);
      for (const name of names) {
        const child = path === '' ? name : `${path}/${name}`;
        await this.#both(`lstat ${child}`, async (api) => this.#seen(await api.lstat(child)));
        const { kind } = await this.#plain.lstat(child);
        if (kind === 'folder') await walk(child);
        else if (kind === 'symlink') await this.#both(`readlink ${child}`, (api) => api.readlink(child));
        else await this.#bytesOf(child);
      }
    };
    await walk('');
  }

  // --- steps ---

  async open(): Promise<void> {
    const { path } = this;
    const access = this.#random.pick([O_RDONLY, O_WRONLY, ...Array<number>(8).fill(O_RDWR)]);
    const extra = this.#random.pick([0, O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_CREAT | O_TRUNC, O_APPEND]);
    const flags = access | extra;
    const fds: Fd[] = [];
    // Through a symlink open(2) may end anywhere, also at a folder: the outcome is compared like any other.
    const opened = await this.#both(`open ${path} 0${flags.toString(8)}`, async (api) => {
      fds.push(await api.open(path, flags, 0o644));
      return 'opened';
    });
    const [plain, tested] = fds;
    if (opened !== 'opened' || plain === undefined || tested === undefined) return;
    this.#remember(this.#files, path);
    this.#handles.push({ plain, tested, flags, name: `#${++this.#opens} ${shortened(path)}` });
    if (this.#handles.length > HANDLES_MAX) await this.close();
  }

  async close(): Promise<void> {
    const [handle] = this.#handles.splice(this.#random.below(this.#handles.length), 1);
    if (handle !== undefined) await this.#close(handle);
  }

  async write(): Promise<void> {
    const bytes = this.#random.bytes(this.#random.below(this.#random.pick([10, 5_000, WRITE_BYTES_MAX])));
    const offset = this.#offset();
    await this.#withHandle(`write ${bytes.byteLength} at ${offset}`, (api, fd) => api.write(fd, offset, bytes));
  }

  async append(): Promise<void> {
    const bytes = this.#random.bytes(this.#random.below(3_000));
    await this.#withHandle(
      `append ${bytes.byteLength}`,
      async (api, fd) => api.process?.writeHere(fd, bytes),
      ({ flags }) => (flags & O_APPEND) !== 0,
    );
  }

  async read(): Promise<void> {
    const [offset, length] = [this.#offset(), this.#random.below(60_000)];
    await this.#withHandle(`read ${length} at ${offset}`, async (api, fd) =>
      digestOf(await api.read(fd, offset, length)),
    );
  }

  async ftruncate(): Promise<void> {
    const size = this.#offset();
    await this.#withHandle(`ftruncate ${size}`, (api, fd) => api.ftruncate(fd, size));
  }

  async fallocate(): Promise<void> {
    if (this.#lacks.includes('fallocate')) return;
    const mode = this.#random.pick([
      FALLOC_ALLOCATE,
      FALLOC_KEEP_SIZE,
      FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE,
      FALLOC_ZERO_RANGE,
      FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE,
    ]);
    const [offset, length] = [this.#offset(), 1 + this.#random.below(100_000)];
    await this.#withHandle(`fallocate ${mode} ${offset}+${length}`, (api, fd) =>
      api.fallocate(fd, mode, offset, length),
    );
  }

  /** A shared mapping of what is there, written in the middle and given back. */
  async map(): Promise<void> {
    const [at, bytes] = [this.#random.next(), this.#random.bytes(1 + this.#random.below(5_000))];
    await this.#withHandle(
      `map and store ${bytes.byteLength}`,
      async (api, fd) => {
        const { sizeBytes } = await api.fstat(fd);
        if (sizeBytes < bytes.byteLength || api.process === undefined) return 'too short';
        const mapping = await api.process.mmap(fd, 0, sizeBytes, PROT_READ | PROT_WRITE, MAP_SHARED);
        await api.process.poke(mapping, Math.floor(at * (sizeBytes - bytes.byteLength)), bytes);
        await api.process.munmap(mapping);
        return 'stored';
      },
      ({ flags }) => (flags & 3) === O_RDWR,
    );
  }

  async fsync(): Promise<void> {
    await this.#withHandle('fsync', (api, fd) => api.fsync(fd));
  }

  async fstat(): Promise<void> {
    await this.#withHandle('fstat', async (api, fd) => this.#seen(await api.fstat(fd)));
  }

  async stat(): Promise<void> {
    const { path } = this;
    await this.#both(`stat ${path}`, async (api) => this.#seen(await api.stat(path)));
  }

  async readdir(): Promise<void> {
    const { path } = this;
    await this.#both(`readdir ${path}`, async (api) => (await api.readdir(path)).map(({ name }) => name).sort());
  }

  async mkdir(): Promise<void> {
    const path = this.#newPath;
    const made = await this.#both(`mkdir ${path}`, (api) => api.mkdir(path, 0o755));
    if (made === undefined) this.#remember(this.#folders, path);
  }

  async rmdir(): Promise<void> {
    const path = this.#random.pick([...this.#folders, this.#newPath]);
    await this.#both(`rmdir ${path}`, (api) => api.rmdir(path));
  }

  async unlink(): Promise<void> {
    const { path } = this;
    await this.#both(`unlink ${path}`, (api) => api.unlink(path));
  }

  async rename(): Promise<void> {
    const [from, to] = [this.path, this.path];
    const wanted = this.#random.pick([0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE]);
    const flags = this.#lacks.includes('rename flags') ? 0 : wanted;
    const done = await this.#both(`rename ${from} ${to} ${flags}`, (api) => api.rename(from, to, flags));
    if (done === undefined) this.#remember(this.#folders.includes(from) ? this.#folders : this.#files, to);
  }

  async symlink(): Promise<void> {
    const { path } = this;
    const target = this.#random.pick(['a', 'b/c', '../d', 'nowhere', '.']);
    await this.#both(`symlink ${target} ${path}`, (api) => api.symlink(target, path));
  }

  async truncate(): Promise<void> {
    const [{ path }, size] = [this, this.#offset()];
    await this.#both(`truncate ${path} ${size}`, (api) => api.truncate(path, size));
  }

  async chmod(): Promise<void> {
    const [{ path }, mode] = [this, this.#random.pick([0o644, 0o600, 0o755, 0o700, 0o400])];
    await this.#both(`chmod ${path} 0${mode.toString(8)}`, (api) => api.chmod(path, mode));
  }

  async utimes(): Promise<void> {
    const [{ path }, mtime] = [this, BigInt(this.#random.below(2 ** 31)) * 1_000_000_007n];
    await this.#both(`utimes ${path}`, async (api) => {
      await api.utimes(path, 5n, mtime);
      return (await api.stat(path)).mtimeNs;
    });
  }

  async xattr(): Promise<void> {
    if (this.#lacks.includes('xattr')) return;
    const [{ path }, name, value] = [this, `user.${this.#random.pick(NAMES.slice(0, 3))}`, this.#random.bytes(20)];
    await this.#both(`setxattr ${path}`, async (api) => {
      if ((await api.lstat(path)).kind === 'symlink') return 'not for links';
      await api.setxattr(path, name, value);
      return Buffer.from(await api.getxattr(path, name)).toString('hex');
    });
  }

  /** A path that named a file, a folder or nothing a while ago. */
  get path(): string {
    return this.#random.next() < 0.5 ? this.#filePath : this.#newPath;
  }

  get #filePath(): string {
    return this.#files.length === 0 ? this.#newPath : this.#random.pick(this.#files);
  }

  get #newPath(): string {
    const folder =
      this.#random.next() < 0.5 || this.#folders.length === 0 ? '' : `${this.#random.pick(this.#folders)}/`;
    return `${folder}${this.#random.pick(NAMES)}`;
  }

  /** Remembers what was made, so that most steps meet something. Some of it is gone by then: that is a case too. */
  #remember(paths: string[], path: string): void {
    if (path.length > 900) return;
    paths.push(path);
    if (paths.length > PATHS_MAX) paths.splice(this.#random.below(PATHS_MAX), 1);
  }

  // --- both sides ---

  /** Calls on both sides, one after the other, and compares what came: a value or an errno. @returns the value, or the errno */
  async #both<T>(what: string, call: (api: FileApi) => Promise<T>): Promise<T | string> {
    const outcome = async (api: FileApi): Promise<T | string> => {
      try {
        return await call(api);
      } catch (error) {
        if (error instanceof CallError) return error.errno;
        throw error;
      }
    };
    const plain = await outcome(this.#plain);
    const told = typeof plain === 'string' ? plain.slice(0, 60) : JSON.stringify(plain, bigintText)?.slice(0, 60);
    this.#trace.push(`${shortened(what)} → ${told ?? 'done'}`);
    this.#same(what, await outcome(this.#tested), plain);
    return plain;
  }

  async #withHandle(
    what: string,
    call: (api: FileApi, fd: Fd) => Promise<unknown>,
    fits: (handle: Handle) => boolean = () => true,
  ): Promise<void> {
    const fitting = this.#handles.filter(fits);
    if (fitting.length === 0) return;
    const handle = this.#random.pick(fitting);
    await this.#both(`${what} [${handle.name}]`, (api) =>
      call(api, api === this.#plain ? handle.plain : handle.tested),
    );
  }

  async #close(handle: Handle): Promise<void> {
    await this.#both(`close [${handle.name}]`, (api) => api.close(api === this.#plain ? handle.plain : handle.tested));
  }

  async #bytesOf(path: string): Promise<void> {
    const whole = async (api: FileApi): Promise<Uint8Array> => {
      const fd = await api.open(path, O_RDONLY);
      const pieces: Uint8Array[] = [];
      for (let at = 0; ; at += 1 << 20) {
        const piece = await api.read(fd, at, 1 << 20);
        if (piece.byteLength === 0) break;
        pieces.push(piece);
      }
      await api.close(fd);
      return Buffer.concat(pieces);
    };
    expectSameBytes(await whole(this.#tested), await whole(this.#plain), `bytes of ${path} after\n${this.trace}\n`);
  }

  /** Attributes in which both sides must agree: not times, inodes and blocks. */
  #seen({ kind, mode, nlink, uid, gid, sizeBytes }: FileStat) {
    // Sizes and links of folders are each file system's own affair.
    const links = this.#lacks.includes('nlink') ? Math.max(1, nlink) : nlink;
    return { kind, mode, uid, gid, ...(kind !== 'folder' && { nlink: links, sizeBytes }) };
  }

  #same(what: string, found: unknown, wanted: unknown): void {
    const [a, b] = [JSON.stringify(found, bigintText), JSON.stringify(wanted, bigintText)];
    if (a === b) return;
    throw new Error(`${what}: ${String(a).slice(0, 300)} instead of ${String(b).slice(0, 300)}, after\n${this.trace}`);
  }

  #offset(): number {
    return this.#random.below(this.#random.pick([10, 20_000, 140_000, FILE_BYTES_MAX]));
  }
}

function shortened(path: string): string {
  return path.replaceAll(NAMES.at(-1) ?? '', 'nnn…');
}

function digestOf(bytes: Uint8Array): string {
  return `${bytes.byteLength} bytes, ${createHash('sha256').update(bytes).digest('hex').slice(0, 16)}`;
}

function bigintText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}

/** Steps by weight: as often as they stand here. */
const STEPS: readonly Step[] = [
  ...Array<Step>(6).fill((model) => model.open()),
  ...Array<Step>(2).fill((model) => model.close()),
  ...Array<Step>(14).fill((model) => model.write()),
  ...Array<Step>(10).fill((model) => model.read()),
  ...Array<Step>(4).fill((model) => model.append()),
  ...Array<Step>(3).fill((model) => model.ftruncate()),
  ...Array<Step>(2).fill((model) => model.fallocate()),
  ...Array<Step>(2).fill((model) => model.map()),
  ...Array<Step>(3).fill((model) => model.fstat()),
  ...Array<Step>(3).fill((model) => model.stat()),
  ...Array<Step>(2).fill((model) => model.readdir()),
  ...Array<Step>(3).fill((model) => model.mkdir()),
  ...Array<Step>(5).fill((model) => model.rename()),
  ...Array<Step>(3).fill((model) => model.unlink()),
  (model) => model.rmdir(),
  (model) => model.fsync(),
  (model) => model.symlink(),
  (model) => model.truncate(),
  (model) => model.chmod(),
  (model) => model.utimes(),
  (model) => model.xattr(),
];

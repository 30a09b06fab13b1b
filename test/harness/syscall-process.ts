import { type ChildProcessWithoutNullStreams, execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, readFile, rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import {
  CallError,
  type Capability,
  errnoName,
  type Fd,
  type FileApi,
  type FileStat,
  type FolderEntry,
  type Mapping,
  type Moment,
  type Path,
  type ProcessCalls,
  type SpaceStat,
  type Stream,
  type User,
} from '../conformance/file-api.ts';

/** A call that has no answer for so long counts as hung: the process is killed and the call fails. */
const CALL_DEADLINE_MS = 60_000;
/** Enough for any attribute a Linux file system keeps (limits.h XATTR_SIZE_MAX). */
const XATTR_BYTES_MAX = 65_536;
const SOURCE = new URL('./syscalls.c', import.meta.url).pathname;

/**
 * `FileApi` by real system calls of a child process (`syscalls.c`) in `root`. Calls of one process are answered in order.
 *
 * The child's working directory is `root`: dispose before unmounting.
 */
export class SyscallProcess implements FileApi {
  readonly can: ReadonlySet<Capability>;
  readonly #root: string;
  readonly #child: ChildProcessWithoutNullStreams;
  /** Calls without an answer yet, oldest first. */
  readonly #waiting: { call: string; answer(words: string[]): void; fail(error: Error): void }[] = [];
  #ended: Error | null = null;
  #errorText = '';

  private constructor(root: string, child: ChildProcessWithoutNullStreams) {
    this.#root = root;
    this.#child = child;
    this.can = new Set<Capability>(process.getuid?.() === 0 ? ['process', 'users'] : ['process']);
    createInterface({ input: child.stdout }).on('line', (line) => {
      const first = this.#waiting.shift();
      const words = line.split(' ');
      if (words[0] === '+') first?.answer(words.slice(1));
      else first?.fail(new CallError(errnoName(Number(words[1])), first.call));
    });
    child.stderr.on('data', (text: Buffer) => {
      this.#errorText += text.toString();
    });
    child.stdin.on('error', () => {}); // the exit below tells it better
    child.once('exit', (code, signal) => {
      this.#ended = new Error(`syscalls in ${root} ended: ${signal ?? code} ${this.#errorText}`);
      for (const { fail } of this.#waiting.splice(0)) fail(this.#ended);
    });
  }

  /** Compiles `syscalls.c` if that was not done yet and starts a process in `root`. @throws Error without a C compiler */
  static async start(root: string, user?: User): Promise<SyscallProcess> {
    const program = await compiled();
    const who = user === undefined ? [] : [String(user.uid), String(user.gid)];
    const child = spawn(program, [root, ...who], { stdio: 'pipe' });
    const process = new SyscallProcess(root, child);
    await process.#call('umask', 0o022);
    return process;
  }

  another(user?: User): Promise<SyscallProcess> {
    return SyscallProcess.start(this.#root, user);
  }

  async dispose(): Promise<void> {
    if (this.#ended !== null) return;
    const exited = new Promise<void>((resolve) => this.#child.once('exit', () => resolve()));
    this.#child.stdin.end();
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 5_000);
    await exited;
    clearTimeout(timer);
  }

  open(path: Path, flags: number, mode = 0o666): Promise<Fd> {
    return this.#number('open', hexOf(path), flags, mode);
  }
  async close(fd: Fd): Promise<void> {
    await this.#call('close', fd);
  }
  read(fd: Fd, offset: number, lengthBytes: number): Promise<Uint8Array> {
    return this.#bytes('pread', fd, offset, lengthBytes);
  }
  write(fd: Fd, offset: number, bytes: Uint8Array): Promise<number> {
    return this.#number('pwrite', fd, offset, hexOf(bytes));
  }
  async ftruncate(fd: Fd, sizeBytes: number): Promise<void> {
    await this.#call('ftruncate', fd, sizeBytes);
  }
  async fsync(fd: Fd): Promise<void> {
    await this.#call('fsync', fd);
  }
  async fstat(fd: Fd): Promise<FileStat> {
    return statOf(await this.#call('fstat', fd));
  }
  async fallocate(fd: Fd, mode: number, offset: number, lengthBytes: number): Promise<void> {
    await this.#call('fallocate', fd, mode, offset, lengthBytes);
  }
  lseek(fd: Fd, offset: number, whence: number): Promise<number> {
    return this.#number('lseek', fd, offset, whence);
  }
  async stat(path: Path): Promise<FileStat> {
    return statOf(await this.#call('stat', hexOf(path)));
  }
  async lstat(path: Path): Promise<FileStat> {
    return statOf(await this.#call('lstat', hexOf(path)));
  }
  async readdir(path: Path): Promise<readonly FolderEntry[]> {
    const stream = await this.process.opendir(path);
    try {
      const entries: FolderEntry[] = [];
      for (;;) {
        const some = await this.process.nextEntries(stream, 20_000);
        if (some.length === 0) return entries.filter(({ name }) => name !== '.' && name !== '..');
        entries.push(...some);
      }
    } finally {
      await this.process.closedir(stream);
    }
  }
  async truncate(path: Path, sizeBytes: number): Promise<void> {
    await this.#call('truncate', hexOf(path), sizeBytes);
  }
  async mkdir(path: Path, mode = 0o777): Promise<void> {
    await this.#call('mkdir', hexOf(path), mode);
  }
  async rmdir(path: Path): Promise<void> {
    await this.#call('rmdir', hexOf(path));
  }
  async unlink(path: Path): Promise<void> {
    await this.#call('unlink', hexOf(path));
  }
  async rename(from: Path, to: Path, flags = 0): Promise<void> {
    await this.#call('rename', hexOf(from), hexOf(to), flags);
  }
  async link(existing: Path, added: Path): Promise<void> {
    await this.#call('link', hexOf(existing), hexOf(added));
  }
  async symlink(target: string, path: Path): Promise<void> {
    await this.#call('symlink', hexOf(Buffer.from(target)), hexOf(path));
  }
  async readlink(path: Path): Promise<string> {
    return Buffer.from(await this.#bytes('readlink', hexOf(path))).toString();
  }
  async chmod(path: Path, mode: number): Promise<void> {
    await this.#call('chmod', hexOf(path), mode);
  }
  async chown(path: Path, uid: number, gid: number): Promise<void> {
    await this.#call('chown', hexOf(path), uid, gid);
  }
  async utimes(path: Path, atime: Moment, mtime: Moment): Promise<void> {
    await this.#call('utimens', hexOf(path), momentWord(atime), momentWord(mtime));
  }
  async statfs(path: Path): Promise<SpaceStat> {
    const [blockBytes, , blocks, blocksFree, blocksAvailable, files, filesFree, nameBytesMax] = (
      await this.#call('statfs', hexOf(path))
    ).map(Number) as [number, number, number, number, number, number, number, number];
    return { blockBytes, blocks, blocksFree, blocksAvailable, files, filesFree, nameBytesMax };
  }
  getxattr(path: Path, name: string): Promise<Uint8Array> {
    return this.#bytes('getxattr', hexOf(path), hexOf(Buffer.from(name)), XATTR_BYTES_MAX);
  }
  async setxattr(path: Path, name: string, value: Uint8Array, flags = 0): Promise<void> {
    await this.#call('setxattr', hexOf(path), hexOf(Buffer.from(name)), hexOf(value), flags);
  }
  async listxattr(path: Path): Promise<readonly string[]> {
    const names = Buffer.from(await this.#bytes('listxattr', hexOf(path))).toString();
    return names.split('\0').filter((name) => name !== '');
  }
  async removexattr(path: Path, name: string): Promise<void> {
    await this.#call('removexattr', hexOf(path), hexOf(Buffer.from(name)));
  }

  readonly process: ProcessCalls = {
    readHere: (fd, lengthBytes) => this.#bytes('read', fd, lengthBytes),
    writeHere: (fd, bytes) => this.#number('write', fd, hexOf(bytes)),
    dup: (fd) => this.#number('dup', fd),
    getFlags: (fd) => this.#number('getflags', fd),
    setFlags: async (fd, flags) => void (await this.#call('setflags', fd, flags)),
    fdatasync: async (fd) => void (await this.#call('fdatasync', fd)),
    fchmod: async (fd, mode) => void (await this.#call('fchmod', fd, mode)),
    futimes: async (fd, atime, mtime) => void (await this.#call('futimens', fd, momentWord(atime), momentWord(mtime))),
    lutimes: async (path, atime, mtime) =>
      void (await this.#call('lutimens', hexOf(path), momentWord(atime), momentWord(mtime))),
    access: async (path, mode) => void (await this.#call('access', hexOf(path), mode)),
    bind: async (path) => void (await this.#call('bind', hexOf(path))),
    linkOpen: async (fd, added) => void (await this.#call('linkopen', fd, hexOf(added))),
    opendirAt: (fd) => this.#number('opendirat', fd),
    mknod: async (path, mode) => void (await this.#call('mknod', hexOf(path), mode)),
    copyFileRange: (from, fromOffset, to, toOffset, lengthBytes) =>
      this.#number('copyrange', from, fromOffset, to, toOffset, lengthBytes),
    flock: async (fd, operation) => void (await this.#call('flock', fd, operation)),
    setLock: async (fd, type, offset, lengthBytes) => void (await this.#call('setlk', fd, type, offset, lengthBytes)),
    umask: (mask) => this.#number('umask', mask),
    getxattrInto: (path, name, capacityBytes) => {
      const words = ['getxattr', hexOf(path), hexOf(Buffer.from(name)), capacityBytes] as const;
      return capacityBytes === 0 ? this.#number(...words) : this.#bytes(...words);
    },
    mmap: (fd, offset, lengthBytes, protection, flags): Promise<Mapping> =>
      this.#number('mmap', fd, offset, lengthBytes, protection, flags),
    peek: (mapping, offset, lengthBytes) => this.#bytes('peek', mapping, offset, lengthBytes),
    poke: async (mapping, offset, bytes) => void (await this.#call('poke', mapping, offset, hexOf(bytes))),
    msync: async (mapping) => void (await this.#call('msync', mapping)),
    munmap: async (mapping) => void (await this.#call('munmap', mapping)),
    opendir: (path): Promise<Stream> => this.#number('opendir', hexOf(path)),
    nextEntries: async (stream, entriesMax) => (await this.#call('readdir', stream, entriesMax)).map(entryOf),
    telldir: async (stream) => (await this.#call('telldir', stream))[0] ?? '',
    seekdir: async (stream, position) => void (await this.#call('seekdir', stream, position)),
    rewinddir: async (stream) => void (await this.#call('rewinddir', stream)),
    closedir: async (stream) => void (await this.#call('closedir', stream)),
  };

  async #number(...words: readonly (string | number)[]): Promise<number> {
    return Number((await this.#call(...words))[0]);
  }

  async #bytes(...words: readonly (string | number)[]): Promise<Uint8Array> {
    const [hex] = await this.#call(...words);
    return hex === undefined || hex === '-' ? new Uint8Array() : Buffer.from(hex, 'hex');
  }

  /** What is asked for in one turn goes in one write. */
  #send(line: string): void {
    const { stdin } = this.#child;
    if (stdin.writableCorked === 0) {
      stdin.cork();
      process.nextTick(() => stdin.uncork());
    }
    stdin.write(line);
  }

  #call(...words: readonly (string | number)[]): Promise<string[]> {
    if (this.#ended !== null) return Promise.reject(this.#ended);
    const call = words.map((word) => (String(word).length > 80 ? `${String(word).slice(0, 80)}…` : word)).join(' ');
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#ended ??= new Error(`no answer within ${CALL_DEADLINE_MS} ms: ${call}`);
        this.#child.kill('SIGKILL');
        for (const { fail } of this.#waiting.splice(0)) fail(this.#ended);
      }, CALL_DEADLINE_MS);
      this.#waiting.push({
        call,
        answer: (answer) => {
          clearTimeout(timer);
          resolve(answer);
        },
        fail: (error) => {
          clearTimeout(timer);
          reject(error);
        },
      });
      this.#send(`${words.join(' ')}\n`);
    });
  }
}

let compilation: Promise<string> | null = null;

/** The program, compiled once per source text and kept among the temporary files. */
function compiled(): Promise<string> {
  compilation ??= (async () => {
    const digest = createHash('sha256')
      .update(await readFile(SOURCE))
      .digest('hex')
      .slice(0, 16);
    const folder = path.join(tmpdir(), `cfs-syscalls-${process.getuid?.() ?? 0}`);
    const program = path.join(folder, digest);
    const found = await access(program).then(
      () => true,
      () => false,
    );
    if (found) return program;
    await mkdir(folder, { recursive: true, mode: 0o755 });
    const draft = `${program}.${process.pid}`;
    await promisify(execFile)(process.env.CC ?? 'cc', ['-O1', '-Wall', '-Wextra', '-o', draft, SOURCE], {
      timeout: 60_000,
    });
    await rename(draft, program); // two test processes may compile at once
    return program;
  })();
  return compilation;
}

function hexOf(path: Path): string {
  const bytes = typeof path === 'string' ? Buffer.from(path === '' ? '.' : path) : Buffer.from(path);
  return bytes.byteLength === 0 ? '-' : bytes.toString('hex');
}

function momentWord(moment: Moment): string {
  if (typeof moment === 'string') return moment;
  const sec = moment >= 0n ? moment / 1_000_000_000n : -((-moment + 999_999_999n) / 1_000_000_000n);
  return `${sec}.${moment - sec * 1_000_000_000n}`;
}

/** By S_IFMT of inode(7), shifted down. */
const KIND_OF_TYPE = new Map<number, FileStat['kind']>([
  [8, 'file'],
  [4, 'folder'],
  [10, 'symlink'],
  [1, 'fifo'],
  [12, 'socket'],
]);

function statOf(words: readonly string[]): FileStat {
  const [mode, ino, nlink, uid, gid, sizeBytes, blocks512] = words.slice(0, 7).map(Number) as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [atime, atimeN, mtime, mtimeN, ctime, ctimeN] = words.slice(7, 13).map(BigInt) as [
    bigint,
    bigint,
    bigint,
    bigint,
    bigint,
    bigint,
  ];
  return {
    kind: KIND_OF_TYPE.get(mode >> 12) ?? 'other',
    mode: mode & 0o7777,
    ino,
    nlink,
    uid,
    gid,
    sizeBytes,
    blocks512,
    atimeNs: atime * 1_000_000_000n + atimeN,
    mtimeNs: mtime * 1_000_000_000n + mtimeN,
    ctimeNs: ctime * 1_000_000_000n + ctimeN,
  };
}

/** `name:inode:type` with the type of dirent.h, which is S_IFMT shifted down; 0 is unknown. */
function entryOf(word: string): FolderEntry {
  const [name, ino, type] = word.split(':') as [string, string, string];
  const kind = type === '0' ? 'unknown' : (KIND_OF_TYPE.get(Number(type)) ?? 'other');
  return { name: Buffer.from(name, 'hex').toString(), ino: Number(ino), kind };
}

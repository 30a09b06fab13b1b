import { spawnSync } from 'node:child_process';
import { readdirSync, readlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { FsError, UsageError } from '../../base/errors.ts';
import { type Channel, Port } from '../../base/port.ts';
import type { Timespec } from '../../base/vocabulary.ts';
import type { Attributes, FileSystemStats } from '../binding.ts';
import { MOUNT_REFUSAL } from '../mount-refusal.ts';
import { type MountEntry, mountOn } from '../mount-table.ts';
import type { PathOperations } from './path-operations.ts';

/**
 * The process that hosts the package fuse-native (2.2.6, on libfuse 2.9) for a mount with `--binding fuse-native`. `fuse-native-mount`
 * starts it, and serves every call at the other end of the IPC channel. It is a separate process because the package runs its callbacks in
 * `uv_default_loop()`, whichever thread loaded it: in a Worker that is another isolate's loop. A crash in here, an assertion of the package
 * included, ends this process and does not affect the store.
 *
 * This file works around the package's faults; each remark below was found in its index.js and fuse-native.c. The faults that remain are
 * listed in docs/semantics.md.
 */

/** The parameters that `fuse-native-mount` passes. */
export interface FuseNativeStart {
  readonly directory: string;
  readonly fsname: string;
  readonly subtype: string;
  /** The options, as in `-o`. */
  readonly words: readonly string[];
}

/** The interface of this process, named `library`. */
export interface FuseNativeProcess {
  /** @throws UsageError with a message */
  mount(start: FuseNativeStart): Promise<void>;
}

/** The interfaces of the other side, named `files` and `watcher`. */
export type PathFiles = Omit<PathOperations, 'lookups' | 'closeAll'>;
export interface FuseNativeWatcher {
  /** The library has closed the device: no further request follows. */
  ended(): Promise<void>;
}

/** Calls back with an errno below 0, with a count, or with 0 and a result. */
type Callback = (result: number, value?: unknown, more?: unknown) => void;
type Operation = (...args: never[]) => void;

interface Library {
  mount(done: (error: Error | null) => void): void;
}
type LibraryClass = new (
  directory: string,
  operations: Readonly<Record<string, Operation>>,
  options: Readonly<Record<string, unknown>>,
) => Library;

/** libfuse's name for a file whose name was removed while it is open: `.fuse_hidden`, its node and a counter (hidden_name, fuse.c). */
const HIDDEN = /^\.fuse_hidden[0-9a-f]{16}$/;
const BLOCKS_MAX = 0xffff_ffff;
/** The package's buffer (fuse_native_mount: 1024 with the final NUL); it truncates silently. */
const TEXT_BYTES_MAX = 1023;
const LOOK_EVERY_MS = 200;
const UNMOUNT_MS_MAX = 5000;
const { EILSEQ, EIO, ENODATA, ENOENT, ERANGE } = constants.errno;
const KIND_BITS = { file: 0o100000, folder: 0o040000, symlink: 0o120000, fifo: 0o010000, socket: 0o140000 } as const;

/**
 * fuse-native's operations over `files`.
 *
 * - Callers, open flags at create, interrupts, fallocate, lseek and rename flags never arrive: the package does not support them.
 * - `fgetattr` is left out: index.js would call `getattr` anyway.
 */
export function fuseNativeOperations(files: PathFiles): Record<string, Operation> {
  /** Runs one call. Names that are not UTF-8 arrive with U+FFFD in them (napi_create_string_utf8): they can be neither found nor created. */
  const answer = <T>(
    path: string,
    done: Callback,
    call: () => Promise<T>,
    reply: (value: T) => void,
    adds = false,
  ): void => {
    if (path.includes('\ufffd')) done(adds ? -EILSEQ : -ENOENT);
    else call().then(reply, (error: unknown) => done(errnoOf(error)));
  };
  const plain = (path: string, done: Callback, call: () => Promise<unknown>, adds = false): void =>
    answer(path, done, call, () => done(0), adds);

  return {
    getattr: (path: string, done: Callback) =>
      answer(
        path,
        done,
        () => files.getattr(path),
        (attributes) => done(0, statOf(attributes)),
      ),
    readdir: (path: string, done: Callback) =>
      answer(
        path,
        done,
        () => files.readdir(path),
        // libfuse uses only kind and inode of the stats.
        (entries) =>
          done(
            0,
            entries.map(({ name }) => name),
            entries.map(({ ino, kind }) => ({ mode: KIND_BITS[kind], ino })),
          ),
      ),
    open: (path: string, flags: number, done: Callback) =>
      answer(
        path,
        done,
        () => files.open(path, flags),
        (descriptor) => done(0, descriptor),
      ),
    // The flags of open(2) stay in C: the handle must serve every access mode.
    create: (path: string, mode: number, done: Callback) =>
      answer(
        path,
        done,
        () => files.create(path, mode, OPEN_READ_WRITE),
        (descriptor) => done(0, descriptor),
        true,
      ),
    read: (path: string, descriptor: number, buffer: Buffer, length: number, offset: number, done: Callback) =>
      answer(
        path,
        done,
        () => files.read(descriptor, offset, length),
        (bytes) => {
          buffer.set(bytes);
          done(bytes.length);
        },
      ),
    // `buffer` is libfuse's memory, valid until `done`.
    write: (path: string, descriptor: number, buffer: Buffer, length: number, offset: number, done: Callback) =>
      answer(
        path,
        done,
        () => files.write(descriptor, offset, Buffer.from(buffer.subarray(0, length))),
        (taken) => done(taken),
      ),
    flush: (path: string, descriptor: number, done: Callback) => plain(path, done, () => files.flush(descriptor)),
    release: (path: string, descriptor: number, done: Callback) => plain(path, done, () => files.release(descriptor)),
    fsync: (path: string, dataOnly: number, descriptor: number, done: Callback) =>
      plain(path, done, () => files.fsync(descriptor, dataOnly !== 0)),
    fsyncdir: (path: string, dataOnly: number, _handle: number, done: Callback) =>
      plain(path, done, () => files.fsyncdir(path, dataOnly !== 0)),
    truncate: (path: string, sizeBytes: number, done: Callback) =>
      plain(path, done, () => files.change(path, { sizeBytes })),
    ftruncate: (path: string, descriptor: number, sizeBytes: number, done: Callback) =>
      plain(path, done, () => files.ftruncate(descriptor, sizeBytes)),
    // The package passes atime twice (fuse_native_dispatch utimens), in milliseconds.
    utimens: (path: string, atimeMs: number, _atimeAgain: number, done: Callback) => {
      const time = timespecOf(atimeMs);
      plain(path, done, () => files.change(path, { atime: time, mtime: time }));
    },
    chmod: (path: string, mode: number, done: Callback) =>
      plain(path, done, () => files.change(path, { mode: mode & 0o7777 })),
    chown: (path: string, uid: number, gid: number, done: Callback) =>
      plain(path, done, () => files.change(path, { ...(uid !== NO_ID && { uid }), ...(gid !== NO_ID && { gid }) })),
    mknod: (path: string, mode: number, _device: number, done: Callback) =>
      plain(path, done, () => files.mknod(path, mode), true),
    mkdir: (path: string, mode: number, done: Callback) => plain(path, done, () => files.mkdir(path, mode), true),
    symlink: (target: string, path: string, done: Callback) =>
      plain(target.includes('\ufffd') ? target : path, done, () => files.symlink(target, path), true),
    link: (existing: string, added: string, done: Callback) =>
      plain(added, done, () => files.link(existing, added), true),
    readlink: (path: string, done: Callback) =>
      answer(
        path,
        done,
        () => files.readlink(path),
        (target) => done(0, target),
      ),
    unlink: (path: string, done: Callback) => plain(path, done, () => unlinked(files, path)),
    rmdir: (path: string, done: Callback) => plain(path, done, () => files.rmdir(path)),
    rename: (from: string, to: string, done: Callback) => plain(to, done, () => renamed(files, from, to), true),
    statfs: (path: string, done: Callback) =>
      answer(
        path,
        done,
        () => files.statfs(path),
        (stats) => done(0, statfsOf(stats)),
      ),
    setxattr: (path: string, name: string, value: Buffer, _position: number, flags: number, done: Callback) =>
      name.includes('\ufffd')
        ? done(-EILSEQ)
        : plain(path, done, () => files.setxattr(path, name, Buffer.from(value), XATTR_MODES[flags & 3] ?? 'set')),
    removexattr: (path: string, name: string, done: Callback) =>
      name.includes('\ufffd') ? done(-ENODATA) : plain(path, done, () => files.removexattr(path, name)),
    // `withRoomForXattrs` handles both; without them here the package would not request them.
    getxattr: () => undefined,
    listxattr: () => undefined,
  };
}

const OPEN_READ_WRITE = 2;
const NO_ID = 0xffff_ffff;
const XATTR_MODES = ['set', 'create', 'replace'] as const;

/**
 * The package does not pass the buffer size to getxattr and listxattr, and reports the length of a value that did not fit: libfuse then sends
 * the memory behind its buffer. The package's own methods know the buffer, so they are replaced.
 */
function withRoomForXattrs(library: Library, files: PathFiles): Library {
  type Signal = (result: number, buffer: ArrayBufferLike) => void;
  const fill = (room: Buffer, signal: Signal, asked: Promise<Uint8Array>): void => {
    asked.then(
      (value) => {
        const tooLong = room.length > 0 && value.length > room.length;
        if (room.length > 0 && !tooLong) room.set(value); // no room: the caller asks how much it needs
        signal(tooLong ? -ERANGE : value.length, room.buffer);
      },
      (error: unknown) => signal(errnoOf(error), room.buffer),
    );
  };
  return Object.assign(library, {
    _op_getxattr: (signal: Signal, path: string, name: string, room: Buffer) =>
      fill(room, signal, files.getxattr(path, name)),
    _op_listxattr: (signal: Signal, path: string, room: Buffer) =>
      fill(
        room,
        signal,
        files.listxattr(path).then((names) => Buffer.from(names.map((name) => `${name}\0`).join(''))),
      ),
  });
}

/** Without `hard_remove` (which passes garbage instead of paths) an open file is renamed first, and unlinked on close. */
async function renamed(files: PathFiles, from: string, to: string): Promise<void> {
  const alias = nameOf(to);
  if (HIDDEN.test(alias) && (await files.unlinkOpen(from, alias))) return;
  await files.rename(from, to);
}

async function unlinked(files: PathFiles, path: string): Promise<void> {
  const name = nameOf(path);
  if (HIDDEN.test(name) && (await files.forgetAlias(name))) return;
  await files.unlink(path);
}

/** `files` fails with FsErrors; any other error means a broken channel. */
function errnoOf(error: unknown): number {
  return error instanceof FsError ? -error.code : -EIO;
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Times are passed as milliseconds, never negative; inode numbers as 32 bits. */
function statOf(attributes: Attributes): Record<string, unknown> {
  const { kind, mode, nlink, uid, gid, sizeBytes, blocks512, ino, atime, mtime, ctime } = attributes;
  return {
    ...{ mode: KIND_BITS[kind] | mode, uid, gid, ino, size: sizeBytes, blocks: blocks512, blksize: 4096 },
    // 0 means "unset", and becomes 1.
    nlink,
    ...{ atime: msOf(atime), mtime: msOf(mtime), ctime: msOf(ctime) },
  };
}

function msOf({ sec, nsec }: Timespec): number {
  return Math.max(0, sec * 1000 + Math.floor(nsec / 1e6));
}

/** Times before 1970 arrive as unsigned 64 bits, rounded to two seconds: more precision is lost. */
function timespecOf(ms: number): Timespec {
  if (ms >= 2 ** 63) return { sec: 0, nsec: 0 };
  return { sec: Math.floor(ms / 1000), nsec: (ms % 1000) * 1e6 };
}

/** Every field has 32 bits: the block size grows until the number of blocks fits. */
function statfsOf(stats: FileSystemStats): Record<string, number> {
  let shift = 1;
  while (stats.blocks / shift > BLOCKS_MAX) shift *= 2;
  const bsize = stats.blockBytes * shift;
  const of = (blocks: number): number => Math.floor(blocks / shift);
  const count = (files: number): number => Math.min(files, BLOCKS_MAX);
  return {
    ...{
      bsize,
      frsize: bsize,
      blocks: of(stats.blocks),
      bfree: of(stats.blocksFree),
      bavail: of(stats.blocksAvailable),
    },
    ...{
      files: count(stats.files),
      ffree: count(stats.filesFree),
      favail: count(stats.filesFree),
      namemax: stats.nameBytesMax,
    },
  };
}

/** Loads the package. @throws UsageError when it, or one of its dependencies, is missing */
function loadLibrary(): LibraryClass {
  try {
    return createRequire(import.meta.url)('fuse-native') as LibraryClass;
  } catch (error) {
    throw new UsageError(whyNotLoaded(error), MOUNT_REFUSAL.noFuse, { cause: error });
  }
}

/** The missing dependency, as a message. */
export function whyNotLoaded(error: unknown): string {
  const text = String((error as Error | null)?.message ?? error);
  if (/libfuse\.so\.2/.test(text))
    return '--binding fuse-native needs libfuse 2; on Debian and Ubuntu: apt-get install libfuse2';
  if ((error as NodeJS.ErrnoException | null)?.code === 'MODULE_NOT_FOUND' && text.includes('fuse-native'))
    return '--binding fuse-native needs the package fuse-native, which is not installed: npm install fuse-native@2.2.6';
  if (/No native build was found/.test(text))
    return `--binding fuse-native has no build for ${process.platform}-${process.arch}`;
  return `--binding fuse-native could not be loaded: ${text.split('\n')[0]}`;
}

/** Mounts and serves calls by `files`. Resolves after INIT. @throws UsageError with a message */
export async function mountWithFuseNative(start: FuseNativeStart, files: PathFiles): Promise<void> {
  // Options unknown to the package go behind a comma of a known one. Without big_writes every write is 4 KiB; without use_ino libfuse
  // invents inode numbers. Without atomic_o_trunc an open(2) with O_TRUNC arrives as truncate(2), which is durable immediately: an
  // interrupted save would leave half a file.
  const fsname = [
    start.fsname.replace(/[\\,]/g, '\\$&'),
    `subtype=${start.subtype}`,
    'big_writes',
    'use_ino',
    'atomic_o_trunc',
    ...start.words,
  ].join(',');
  // It would mount on the truncated directory, with truncated options: without default_permissions, which come last.
  if ([start.directory, `-ofsname=${fsname}`].some((text) => Buffer.byteLength(text) > TEXT_BYTES_MAX))
    throw new UsageError(
      `--binding fuse-native takes ${TEXT_BYTES_MAX} bytes for the directory and for the options: shorten them`,
      MOUNT_REFUSAL.mountPoint,
    );
  const FuseNative = loadLibrary();
  const mounting = withRoomForXattrs(
    // The package's own timer would reply to a call that still uses the buffers.
    new FuseNative(start.directory, fuseNativeOperations(files), { timeout: false, fsname }),
    files,
  );
  await new Promise<void>((resolve, reject) => {
    mounting.mount((error) => {
      if (error === null || error === undefined) resolve();
      else reject(new UsageError(`could not mount on ${start.directory}: ${error.message}`, MOUNT_REFUSAL.noFuse));
    });
  });
}

/** The library does not report an unmount. It closes the device after its last thread has ended. */
function holdsDevice(): boolean {
  return readdirSync('/proc/self/fd').some((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`) === '/dev/fuse';
    } catch {
      return false;
    }
  });
}

function serve(): void {
  const channel: Channel = {
    postMessage: (message) => process.send?.(message, () => undefined),
    on: (event, listener) => process.on(event, listener),
  };
  const port = new Port(channel);
  const files = port.remote<PathFiles>('files');
  const watcher = port.remote<FuseNativeWatcher>('watcher');
  // Signals of the terminal are for the mounting process: it unmounts.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
  let mounted: MountEntry | null = null;
  // The serving process is gone. Close the device too, or callers hang, and unmount the directory, or it stays a dead mount.
  process.on('disconnect', () => {
    if (mounted !== null && mountOn(mounted.directory)?.device === mounted.device)
      spawnSync('fusermount3', ['-uzq', '--', mounted.directory], { timeout: UNMOUNT_MS_MAX });
    process.exit(0);
  });
  port.offer('library', {
    mount: async (start) => {
      await mountWithFuseNative(start, files);
      mounted = mountOn(start.directory);
      const looking = setInterval(() => {
        if (mountOn(start.directory)?.device === mounted?.device || holdsDevice()) return;
        clearInterval(looking);
        void watcher.ended().finally(() => process.disconnect());
      }, LOOK_EVERY_MS);
    },
  } satisfies FuseNativeProcess);
}

if (process.env.CFS_FUSE_NATIVE_PROCESS === '1' && process.send !== undefined) serve();

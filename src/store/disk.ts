import {
  closeSync,
  fdatasync,
  fstatSync,
  fsync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  statSync,
  unlinkSync,
  write,
  writeSync,
} from 'node:fs';
import { open, statfs } from 'node:fs/promises';
import { promisify } from 'node:util';
import { StorageError, systemCodeOf } from '../base/errors.ts';
import { NativeFiles } from '../base/native.ts';

/**
 * The file system operations of the store. Failures are StorageErrors. Tests replace it to fill the disk or to cut the power.
 *
 * Synchronous operations take microseconds (page cache). Operations that may wait for a device run in libuv's pool and return promises.
 */
export interface Disk {
  makeDirectory(path: string): void;
  /** Names in a directory, unordered; empty if it does not exist. */
  list(path: string): string[];
  /** @returns the descriptor. `create` makes an empty file, or truncates an existing one. */
  open(path: string, how: 'read' | 'write' | 'create'): number;
  close(fd: number): void;
  /** Fills `target` from `position` on. @returns the bytes read: fewer at the end of the file */
  read(fd: number, target: Uint8Array, position: number): number;
  /** Writes all of `bytes`, or throws after an unknown part of them. @throws StorageError */
  write(fd: number, bytes: Uint8Array, position: number): void;
  /** As `write`, in the pool. `bytes` and the descriptor must stay valid until the promise settles. */
  writeLater(fd: number, bytes: Uint8Array, position: number): Promise<void>;
  truncate(fd: number, sizeBytes: number): void;
  sizeBytes(fd: number): number;
  /** Disk space of a file (its blocks, not its length); 0 if the file does not exist. */
  diskBytes(path: string): number;
  rename(from: string, to: string): void;
  /** Removes a file, if it exists. */
  remove(path: string): void;
  /** fdatasync(2), in the pool. */
  sync(fd: number): Promise<void>;
  /** Makes creations, renames and removals in a directory survive a power cut; in the pool. */
  syncDirectory(path: string): Promise<void>;
  /** Makes a file of `sizeBytes` zeros whose blocks are allocated and on the disk; in the pool. @throws StorageError */
  allocate(path: string, sizeBytes: number): Promise<void>;
  /** Free space for unprivileged programs (statfs(2) f_bavail); in the pool. @throws StorageError */
  freeBytes(path: string): Promise<number>;
  /** Reserves `sizeBytes` for an empty file, all or nothing, without waiting for a device. @throws StorageError */
  reserve(fd: number, sizeBytes: number): void;
}

const FULL: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT']);
/** The folder above is missing, or the directory itself exists. */
const MAYBE_DIRECTORY: ReadonlySet<string | undefined> = new Set(['ENOENT', 'EEXIST']);
const ZEROS = new Uint8Array(256 * 1024);
const flagsOf = { read: 'r', write: 'r+', create: 'w+' } as const;
const fdatasyncInPool = promisify(fdatasync);
const fsyncInPool = promisify(fsync);
const writeInPool = promisify(write);

/** The failure of a system call on the store's files as a StorageError; `full` for ENOSPC and EDQUOT. */
export function storageErrorOf(error: unknown, what: string): StorageError {
  if (error instanceof StorageError) return error;
  const code = systemCodeOf(error) ?? 'unknown failure';
  return new StorageError(`${what}: ${code}`, { cause: error, full: FULL.has(code) });
}

export const systemDisk: Disk = {
  makeDirectory: (path) =>
    attempt(`cannot create ${path}`, () => {
      try {
        mkdirSync(path, { mode: 0o700 });
      } catch (error) {
        // `recursive` from the start would hide the reason: on a read-only disk Node reports ENOENT then.
        if (!MAYBE_DIRECTORY.has(systemCodeOf(error))) throw error;
        mkdirSync(path, { recursive: true, mode: 0o700 });
      }
    }),
  list: (path) => {
    try {
      return readdirSync(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
      throw storageErrorOf(error, `cannot list ${path}`);
    }
  },
  open: (path, how) => attempt(`cannot open ${path}`, () => openSync(path, flagsOf[how], 0o600)),
  close: (fd) => closeSync(fd),
  read: (fd, target, position) =>
    attempt('read failed', () => {
      let done = 0;
      while (done < target.byteLength) {
        const count = readSync(fd, target, done, target.byteLength - done, position + done);
        if (count === 0) break;
        done += count;
      }
      return done;
    }),
  write: (fd, bytes, position) =>
    attempt('write failed', () => {
      let done = 0;
      while (done < bytes.byteLength) done += writeSync(fd, bytes, done, bytes.byteLength - done, position + done);
    }),
  writeLater: async (fd, bytes, position) => {
    try {
      for (let done = 0; done < bytes.byteLength; )
        done += (await writeInPool(fd, bytes, done, bytes.byteLength - done, position + done)).bytesWritten;
    } catch (error) {
      throw storageErrorOf(error, 'write failed');
    }
  },
  truncate: (fd, sizeBytes) => attempt('truncate failed', () => ftruncateSync(fd, sizeBytes)),
  sizeBytes: (fd) => attempt('stat failed', () => fstatSync(fd).size),
  diskBytes: (path) => attempt('stat failed', () => (statSync(path, { throwIfNoEntry: false })?.blocks ?? 0) * 512),
  rename: (from, to) => attempt(`cannot rename ${from}`, () => renameSync(from, to)),
  remove: (path) => {
    try {
      unlinkSync(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw storageErrorOf(error, `cannot remove ${path}`);
    }
  },
  sync: async (fd) => {
    try {
      await fdatasyncInPool(fd);
    } catch (error) {
      throw storageErrorOf(error, 'sync failed');
    }
  },
  syncDirectory: async (path) => {
    const fd = attempt(`cannot open ${path}`, () => openSync(path, 'r'));
    try {
      await fsyncInPool(fd);
    } catch (error) {
      throw storageErrorOf(error, `cannot sync ${path}`);
    } finally {
      closeSync(fd);
    }
  },
  allocate: async (path, sizeBytes) => {
    try {
      const file = await open(path, 'w', 0o600);
      try {
        // Written, not fallocated: the first fdatasync of an unwritten extent would wait for the file system's own journal.
        for (let at = 0; at < sizeBytes; ) {
          const { bytesWritten } = await file.write(ZEROS, 0, Math.min(ZEROS.byteLength, sizeBytes - at), at);
          at += bytesWritten;
        }
        await file.datasync();
      } finally {
        await file.close();
      }
    } catch (error) {
      throw storageErrorOf(error, `cannot allocate ${path}`);
    }
  },
  freeBytes: async (path) => {
    try {
      const { bavail, bsize } = await statfs(path);
      return bavail * bsize;
    } catch (error) {
      throw storageErrorOf(error, `cannot query the free space at ${path}`);
    }
  },
  reserve: (fd, sizeBytes) => {
    try {
      new NativeFiles().allocate(fd, 0, sizeBytes, 'grow');
    } catch (error) {
      const { errno } = error as { errno?: unknown };
      if (typeof errno === 'string' && FULL.has(errno)) {
        throw new StorageError(`no room for ${sizeBytes} bytes`, { cause: error, full: true });
      }
      // Without the addon or fallocate(2): zeros take space on every file system.
      systemDisk.write(fd, Buffer.alloc(sizeBytes), 0);
    }
  },
};

function attempt<T>(what: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw storageErrorOf(error, what);
  }
}

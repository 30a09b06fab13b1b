import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';

/** What one log may take on the disk: (LOG_FILES_KEPT + 1) × LOG_BYTES_MAX, and a line. */
export const LOG_BYTES_MAX = 10 * 1024 ** 2;
export const LOG_FILES_KEPT = 3;
/** Renaming takes microseconds: a lock that is so much older than the log belongs to a process that died in between. */
const LOCK_MS_MAX = 60_000;

/**
 * A file that lines are appended to and that is put aside when it is full: `mount.log` becomes `mount.log.1`, that one
 * `mount.log.2`, and the oldest goes. Synchronous, so that the last line before a crash is there.
 *
 * Several threads and processes may write the same log: each sees by the file's inode that another one put it aside, and a lock
 * file keeps two from doing so at once. Never throws: a disk without room for a log line must not end a mount.
 */
export class LogFile {
  readonly #path: string;
  readonly #bytesMax: number;
  #fd: number | null = null;

  /** @param bytesMax for tests */
  constructor(path: string, bytesMax: number = LOG_BYTES_MAX) {
    this.#path = path;
    this.#bytesMax = bytesMax;
  }

  write(line: string): void {
    try {
      const fd = this.#current();
      writeSync(fd, line);
      const { size, ino } = fstatSync(fd);
      if (size >= this.#bytesMax) this.#putAside(ino);
    } catch (error) {
      // A pipe that is full stays open: whoever reads it may see its end otherwise, and go.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') this.#close();
    }
  }

  close(): void {
    this.#close();
  }

  /** The descriptor of what has the name now. */
  #current(): number {
    const named = statSync(this.#path, { throwIfNoEntry: false });
    if (this.#fd !== null) {
      if (named?.ino === fstatSync(this.#fd).ino) return this.#fd;
      this.#close();
    }
    if (named === undefined) mkdirSync(dirname(this.#path), { recursive: true, mode: 0o700 });
    this.#fd = openLog(this.#path);
    return this.#fd;
  }

  #putAside(ino: number): void {
    const place = placeOf(this.#path);
    if (place === null) return;
    const lock = `${place}.lock`;
    this.#removeOldLock(lock);
    let held: number;
    try {
      held = openSync(lock, 'wx', 0o600);
    } catch {
      return; // another one is at it
    }
    try {
      const named = statSync(this.#path);
      // It was done meanwhile; and a terminal or a pipe has no end.
      if (named.ino !== ino || !named.isFile()) return;
      for (let number = LOG_FILES_KEPT; number > 1; number--) rename(`${place}.${number - 1}`, `${place}.${number}`);
      rename(place, `${place}.1`);
      this.#close();
    } finally {
      closeSync(held);
      rmSync(lock, { force: true });
    }
  }

  #removeOldLock(lock: string): void {
    const held = statSync(lock, { throwIfNoEntry: false });
    if (held === undefined) return;
    // Both times by the same clock, that of the disk: the log was written just now.
    if (statSync(this.#path).mtimeMs - held.mtimeMs > LOCK_MS_MAX) rmSync(lock, { force: true });
  }

  #close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }
}

/**
 * Opens a log to append to. A terminal that was stopped (Ctrl-S), or a pipe that is not read, takes no more and says so (EAGAIN) instead of
 * making whoever writes wait: that would be the thread that answers the kernel. For files it is all the same.
 */
export function openLog(path: string): number {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NONBLOCK, O_NOCTTY } = constants;
  return openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY, 0o600);
}

function rename(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/**
 * Where the file lies that a path leads to: a link to it stays what it is. Null for an open file of a process (/dev/stdout, /dev/fd/3), whoever
 * writes it: such a link has no place of its own, and /dev is the whole machine's.
 */
function placeOf(path: string): string | null {
  const folder = realpathSync(dirname(path));
  if (folder.startsWith('/proc/')) return null;
  const place = join(folder, basename(path));
  return lstatSync(place).isSymbolicLink() ? placeOf(resolve(folder, readlinkSync(place))) : place;
}

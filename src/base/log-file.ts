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

/** Disk space of one log: (LOG_FILES_KEPT + 1) × LOG_BYTES_MAX, plus one line. */
export const LOG_BYTES_MAX = 10 * 1024 ** 2;
export const LOG_FILES_KEPT = 3;
/** Renaming takes microseconds: a lock older than this belongs to a process that died. */
const LOCK_MS_MAX = 60_000;

/**
 * A log file with rotation: when full, `mount.log` becomes `mount.log.1`, that one `mount.log.2`, and the oldest is
 * deleted. Synchronous, so that the last line before a crash is written.
 *
 * Several threads and processes may write the same log: each detects a rotation by the file's inode, and a lock file
 * serializes rotations. Never throws: a full disk must not end a mount.
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
      // A full pipe stays open: after a close its reader might see the end and exit.
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') this.#close();
    }
  }

  close(): void {
    this.#close();
  }

  /** The descriptor of the file that has the name now. */
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
      return; // another process is rotating
    }
    try {
      const named = statSync(this.#path);
      // Another process has rotated it; terminals and pipes are not rotated.
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
    // Both times come from the disk's clock: the log was written just now.
    if (statSync(this.#path).mtimeMs - held.mtimeMs > LOCK_MS_MAX) rmSync(lock, { force: true });
  }

  #close(): void {
    if (this.#fd !== null) closeSync(this.#fd);
    this.#fd = null;
  }
}

/**
 * Opens a log for appending, without blocking: a stopped terminal (Ctrl-S) or an unread pipe then fails with EAGAIN
 * instead of blocking the thread that answers the kernel. No effect on regular files.
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
 * Resolves a path to the file's location, so that a symlink to it is preserved. Null for an open file of a process
 * (/dev/stdout, /dev/fd/3): such a link has no location of its own, and /dev is shared by the whole machine.
 */
function placeOf(path: string): string | null {
  const folder = realpathSync(dirname(path));
  if (folder.startsWith('/proc/')) return null;
  const place = join(folder, basename(path));
  return lstatSync(place).isSymbolicLink() ? placeOf(resolve(folder, readlinkSync(place))) : place;
}

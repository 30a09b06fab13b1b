import { closeSync, fstatSync, linkSync, openSync, readFileSync, statSync, unlinkSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { StorageError, UsageError } from '../base/errors.ts';
import { NativeFiles } from '../base/native.ts';
import { processLife, processStart } from '../base/process-life.ts';
import { currentBootId } from './boot-id.ts';
import { storageErrorOf } from './disk.ts';

/** Exit code: another process has this account mounted. */
const IN_USE = 5;

/** A start waits this long for a killed owner to end, and for another start that removes its lock. */
const ENDING_MS_MAX = 5_000;
const LOOK_AGAIN_MS = 10;

/**
 * One store has one owner. The lock file names the owning process by pid and start time, because pids are reused. It also names its own
 * inode number, so a copy of the directory is not locked.
 *
 * A container has its own pids (pid_namespaces(7)): outside of it, its processes seem to have ended. The owner therefore also holds the
 * file by flock(2), which works across containers if the file system supports it.
 */
export class OwnerLock {
  readonly #path: string;
  readonly #inode: number;
  /** Open while the store is owned. */
  readonly #fd: number;

  private constructor(path: string, inode: number, fd: number) {
    this.#path = path;
    this.#inode = inode;
    this.#fd = fd;
  }

  /**
   * @param makeRoom frees a disk block for the lock; false if it has none to free
   * @param predecessor a process that is being killed: its lock is void, even if it has not ended yet. 0: none
   * @throws UsageError naming the pid when a living process owns the store · StorageError full
   */
  static take(directory: string, makeRoom: () => boolean = () => false, predecessor = 0): OwnerLock {
    const path = join(directory, 'owner');
    // Written under a temporary name and then linked, so that no process reads an incomplete lock.
    const draft = `${path}.${process.pid}.${process.hrtime.bigint()}`;
    const fd = openSync(draft, 'wx', 0o600);
    let taken: OwnerLock | null = null;
    try {
      hold(fd);
      const inode = fstatSync(fd).ino;
      try {
        writeName(fd, `${process.pid} ${startTimeOf(process.pid) ?? 0} ${inode}\n`, makeRoom);
      } catch (error) {
        const owner = livingOwner(path, predecessor);
        throw owner === null ? error : inUse(directory, owner);
      }
      for (let waitedMs = 0; ; ) {
        try {
          linkSync(draft, path);
          taken = new OwnerLock(path, inode, fd);
          return taken;
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
        }
        const owner = livingOwner(path, predecessor);
        if (owner !== null && processLife(owner) === 'ending' && waitedMs < ENDING_MS_MAX) {
          pause(LOOK_AGAIN_MS);
          waitedMs += LOOK_AGAIN_MS;
          continue;
        }
        if (owner !== null) {
          throw inUse(directory, owner);
        }
        removeStale(path, draft, predecessor);
      }
    } finally {
      if (taken === null) closeSync(fd);
      unlinkSync(draft);
    }
  }

  /** Never throws. On a read-only disk the lock file stays; it is void once this process has ended. */
  release(): void {
    try {
      if (statSync(this.#path).ino === this.#inode) unlinkSync(this.#path);
    } catch {
      // The file is already removed, or cannot be.
    }
    closeSync(this.#fd);
  }
}

function inUse(directory: string, owner: number): UsageError {
  return new UsageError(`the store in ${directory} is in use by process ${owner}`, IN_USE);
}

/** @throws StorageError full */
function writeName(fd: number, text: string, makeRoom: () => boolean): void {
  for (;;) {
    try {
      writeSync(fd, text, 0);
      return;
    } catch (error) {
      const failure = storageErrorOf(error, 'no room for the lock of the store');
      if (!failure.full) throw error;
      if (!makeRoom()) throw new StorageError('the disk of the store is full', { cause: error, full: true });
    }
  }
}

/** The pid of the process that has the store in `directory` open; null if none has. */
export function ownerOf(directory: string): number | null {
  return livingOwner(join(directory, 'owner'));
}

/** @param predecessor a process that counts as ended */
function livingOwner(path: string, predecessor = 0): number | null {
  let text: string;
  let inode: number;
  try {
    text = readFileSync(path, 'utf8');
    inode = statSync(path).ino;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
  const [pid = 0, started = '', lockInode = 0] = text
    .trim()
    .split(' ')
    .map((part, at) => (at === 1 ? part : Number(part))) as [number?, string?, number?];
  if (lockInode !== inode || !Number.isInteger(pid) || pid <= 0 || pid === predecessor) return null;
  const startedNow = startTimeOf(pid);
  if (startedNow !== null && startedNow === started) return pid;
  return isHeld(path) ? pid : null;
}

/** Without the addon, or without locks, processes of other containers are not detected. */
function hold(fd: number): void {
  try {
    new NativeFiles().lock(fd, 'alone');
  } catch {
    // Only the pid protects the store then.
  }
}

/** Whether a process holds the lock by flock(2), in this pid namespace or another. */
function isHeld(path: string): boolean {
  let fd: number | null = null;
  try {
    fd = openSync(path, 'r');
    return !new NativeFiles().lock(fd, 'shared');
  } catch {
    return false;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}

/**
 * Removes the lock of a process that has ended. Several starts may find it, and one of them may own the store before another gets here, so
 * only the stale lock itself may be removed. A start therefore first takes a guard lock, which is named after the inode of the stale lock,
 * and then checks again. While it holds the guard, no other start removes that lock. A stale guard is removed in the same way.
 */
function removeStale(path: string, draft: string, predecessor = 0): void {
  const inode = statSync(path, { throwIfNoEntry: false })?.ino;
  if (inode === undefined) return;
  const guard = `${path}.${inode}.gone`;
  for (let waitedMs = 0; ; waitedMs += LOOK_AGAIN_MS) {
    try {
      linkSync(draft, guard);
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const remover = livingOwner(guard);
    if (remover === null) removeStale(guard, draft);
    else if (waitedMs < ENDING_MS_MAX) pause(LOOK_AGAIN_MS);
    else throw new UsageError(`the store in ${dirname(path)} is about to be used by process ${remover}`, IN_USE);
  }
  try {
    const isThere = statSync(path, { throwIfNoEntry: false })?.ino === inode;
    if (isThere && livingOwner(path, predecessor) === null) unlinkSync(path);
  } finally {
    unlinkSync(guard);
  }
}

/** The start time of a process, with the boot id; null if the process does not exist or has ended. */
function startTimeOf(pid: number): string | null {
  if (processLife(pid) === 'ended') return null;
  const started = processStart(pid);
  return started === null ? 'unknown' : `${started}@${currentBootId()}`;
}

function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

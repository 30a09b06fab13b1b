import { closeSync, fstatSync, linkSync, openSync, readFileSync, statSync, unlinkSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { StorageError, UsageError } from '../base/errors.ts';
import { NativeFiles } from '../base/native.ts';
import { processLife, processStart } from '../base/process-life.ts';
import { currentBootId } from './boot-id.ts';
import { storageErrorOf } from './disk.ts';

/** Exit code: another process has this account mounted. */
const IN_USE = 5;

/** How long a start waits for a killed owner to be gone, and for another start that removes its lock. */
const ENDING_MS_MAX = 5_000;
const LOOK_AGAIN_MS = 10;

/**
 * One store has one owner. The lock file names the owning process by pid and start time (a pid is given again, both together
 * are not) and itself by its inode number: in a copy of the directory it means nothing.
 *
 * A container has pids of its own (pid_namespaces(7)): to whoever shares the directory with it its processes look as if they were gone. So the
 * owner also holds the file by flock(2), which is one for all of them, where the file system knows that.
 */
export class OwnerLock {
  readonly #path: string;
  readonly #inode: number;
  /** Open for as long as it is owned. */
  readonly #fd: number;

  private constructor(path: string, inode: number, fd: number) {
    this.#path = path;
    this.#inode = inode;
    this.#fd = fd;
  }

  /**
   * @param makeRoom gives the disk a block back for the lock; false where there is none to give
   * @throws UsageError naming the pid when a living process owns the store · StorageError full
   */
  static take(directory: string, makeRoom: () => boolean = () => false): OwnerLock {
    const path = join(directory, 'owner');
    // Written under a name of its own and then linked: nobody ever sees half a lock.
    const draft = `${path}.${process.pid}.${process.hrtime.bigint()}`;
    const fd = openSync(draft, 'wx', 0o600);
    let taken: OwnerLock | null = null;
    try {
      hold(fd);
      const inode = fstatSync(fd).ino;
      try {
        writeName(fd, `${process.pid} ${startTimeOf(process.pid) ?? 0} ${inode}\n`, makeRoom);
      } catch (error) {
        const owner = livingOwner(path);
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
        const owner = livingOwner(path);
        if (owner !== null && processLife(owner) === 'ending' && waitedMs < ENDING_MS_MAX) {
          pause(LOOK_AGAIN_MS);
          waitedMs += LOOK_AGAIN_MS;
          continue;
        }
        if (owner !== null) {
          throw inUse(directory, owner);
        }
        removeStale(path, draft);
      }
    } finally {
      if (taken === null) closeSync(fd);
      unlinkSync(draft);
    }
  }

  /** Never fails: on a disk that takes no change any more the lock stays, and means nothing once this process has ended. */
  release(): void {
    try {
      if (statSync(this.#path).ino === this.#inode) unlinkSync(this.#path);
    } catch {
      // Gone, or left behind.
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

/** The process that has the store in `directory` open; null for none. */
export function ownerOf(directory: string): number | null {
  return livingOwner(join(directory, 'owner'));
}

function livingOwner(path: string): number | null {
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
  if (lockInode !== inode || !Number.isInteger(pid) || pid <= 0) return null;
  const startedNow = startTimeOf(pid);
  if (startedNow !== null && startedNow === started) return pid;
  return isHeld(path) ? pid : null;
}

/** Without the addon, or without locks, processes of other containers are not known of. */
function hold(fd: number): void {
  try {
    new NativeFiles().lock(fd, 'alone');
  } catch {
    // The pid has to do.
  }
}

/** Whether somebody holds it: here or where pids are others. */
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
 * Removes the lock of a process that is gone. Several starts may find it, and one of them has the store before another gets here: what is
 * removed must still be that lock. So whoever removes it holds another one meanwhile, named after the inode of this one, and looks again:
 * nobody else may take away what is found then. That of a start that died in between is removed in the same way.
 */
function removeStale(path: string, draft: string): void {
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
    if (isThere && livingOwner(path) === null) unlinkSync(path);
  } finally {
    unlinkSync(guard);
  }
}

/** When a process began, with the boot's id; null when there is no such process, or nothing of it runs any more. */
function startTimeOf(pid: number): string | null {
  if (processLife(pid) === 'ended') return null;
  const started = processStart(pid);
  return started === null ? 'unknown' : `${started}@${currentBootId()}`;
}

function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

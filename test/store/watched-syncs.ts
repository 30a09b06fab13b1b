import type { Disk } from '../../src/store/disk.ts';
import { systemDisk } from '../../src/store/disk.ts';

/** A disk that tells which files and folders were synced, and on which a sync ends when the test says so, and how. */
export class WatchedSyncs {
  /** Of which paths the syncs wait until `letThrough`. */
  isHeld: (path: string) => boolean = () => false;
  /** Of which paths a sync fails: asked once for each. */
  isFailing: (path: string) => boolean = () => false;
  /** Paths of the syncs that began, and of those that ended well, in order. */
  readonly begun: string[] = [];
  readonly ended: string[] = [];
  readonly #paths = new Map<number, string>();
  readonly #waiting: (() => void)[] = [];
  readonly disk: Disk = {
    ...systemDisk,
    open: (path, how) => {
      const fd = systemDisk.open(path, how);
      this.#paths.set(fd, path);
      return fd;
    },
    sync: (fd) => this.#watched(this.#paths.get(fd) ?? '', () => systemDisk.sync(fd)),
    syncDirectory: (path) => this.#watched(path, () => systemDisk.syncDirectory(path)),
  };

  /** How many wait for `letThrough`. */
  get held(): number {
    return this.#waiting.length;
  }

  /** From here on no sync waits. */
  letThrough(): void {
    this.isHeld = () => false;
    for (const go of this.#waiting.splice(0)) go();
  }

  async #watched(path: string, sync: () => Promise<void>): Promise<void> {
    this.begun.push(path);
    const fails = this.isFailing(path);
    if (this.isHeld(path)) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    // As Linux does it: the file's error is told to one fdatasync(2), the next one of that descriptor is fine.
    if (fails) throw Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO' });
    await sync();
    this.ended.push(path);
  }
}

/** Whether a path is that of a draft's file. */
export function isDraftFile(path: string): boolean {
  return /\/drafts\/..\/\d+$/.test(path);
}

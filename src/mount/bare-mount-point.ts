import { closeSync, constants, fchmodSync, fstatSync, openSync, readdirSync } from 'node:fs';
import { mountOn } from '../kernel/mount-table.ts';

const OWNER_WRITES = 0o200;
const ALL_WRITE = 0o222;

/**
 * The directory below a mount. While nothing is mounted it refuses new files (EACCES), because a file that is saved there after an eject
 * is in no cloud, and prevents the next mount. Only an empty directory of an ordinary user is changed: no mode stops root.
 *
 * The descriptor comes from before the mount, so that no call reaches the mount itself.
 */
export class BareMountPoint {
  readonly #descriptor: number;
  readonly #mode: number;

  private constructor(descriptor: number, mode: number) {
    this.#descriptor = descriptor;
    this.#mode = mode;
  }

  /**
   * Makes the directory writable for its owner until `close`: fusermount3 refuses another one (check_perm in util/fusermount.c).
   *
   * @returns null for a directory that stays as it is
   */
  static open(directory: string, uid: number = process.geteuid?.() ?? 0): BareMountPoint | null {
    if (uid === 0 || /^(fuse|nfs)/.test(mountOn(directory)?.type ?? '')) return null; // a dead mount; one may hang
    let descriptor = -1;
    try {
      descriptor = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
      const { mode, uid: owner } = fstatSync(descriptor);
      if (owner === uid && readdirSync(directory).length === 0) {
        fchmodSync(descriptor, (mode & 0o7777) | OWNER_WRITES);
        return new BareMountPoint(descriptor, mode & 0o7777);
      }
    } catch {
      // The mount itself reports what is wrong with the directory. A file system without modes refuses chmod.
    }
    if (descriptor >= 0) closeSync(descriptor);
    return null;
  }

  /** Makes the directory writable for its owner while `mount` mounts on it. @throws what `mount` throws */
  static async during(directory: string, mount: () => Promise<void>): Promise<void> {
    const bare = BareMountPoint.open(directory);
    try {
      await mount();
    } catch (error) {
      bare?.close(false);
      throw error;
    }
    bare?.close(true);
  }

  /** @param isMounted false: the directory gets the mode that it had */
  close(isMounted: boolean): void {
    try {
      fchmodSync(this.#descriptor, isMounted ? this.#mode & ~ALL_WRITE : this.#mode);
    } catch {
      // As before the mount: the protection is missing, and the mount works.
    } finally {
      closeSync(this.#descriptor);
    }
  }
}

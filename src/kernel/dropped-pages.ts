import type { Clock } from '../base/clock.ts';
import type { Extent, Inode } from '../base/vocabulary.ts';

const PAGE_BYTES = 4096;
/** The kernel has dropped the pages, and received every write(2) that was under way then. */
const SETTLED_MS = 1000;

interface Dropped {
  readonly settledMs: number;
  /** Around all that was read since. */
  readStart: number;
  readEnd: number;
}

/**
 * The inodes whose pages the kernel has just dropped, or is about to.
 *
 * For write(2) the kernel copies the bytes into its pages, and sends WRITE afterwards. It does not hold the pages in between if they are
 * complete (fuse_fill_write_pages). If they are dropped then, and another program reads the file, READ brings what the file had before:
 * the kernel would keep that, or zeros behind the former end. Such pages are dropped once more.
 */
export class DroppedPages {
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  /** Oldest first. */
  readonly #inodes = new Map<Inode, Dropped>();

  constructor(deps: { clock: Pick<Clock, 'elapsedMs'> }) {
    this.#clock = deps.clock;
  }

  /** Whether `read` and `written` have nothing to do. */
  get isEmpty(): boolean {
    return this.#inodes.size === 0;
  }

  /** A reply or notification drops pages of the inode. */
  dropped(ino: Inode): void {
    this.#settle();
    this.#inodes.delete(ino);
    this.#inodes.set(ino, {
      settledMs: this.#clock.elapsedMs() + SETTLED_MS,
      readStart: Number.POSITIVE_INFINITY,
      readEnd: 0,
    });
  }

  /** READ: offset and length, bytes. */
  read(ino: Inode, offset: number, length: number): void {
    const dropped = this.#inodes.get(ino);
    if (dropped === undefined) return;
    dropped.readStart = Math.min(dropped.readStart, offset);
    dropped.readEnd = Math.max(dropped.readEnd, offset + length);
  }

  /**
   * WRITE was carried out. The kernel sends one write(2) of an inode at a time.
   *
   * @returns the pages to be dropped once more; null: none
   */
  written(ino: Inode, offset: number, length: number): Extent | null {
    const dropped = this.#inodes.get(ino);
    if (dropped === undefined) return null;
    const start = offset - (offset % PAGE_BYTES);
    const end = Math.ceil((offset + length) / PAGE_BYTES) * PAGE_BYTES;
    const wasRead = dropped.readStart < end && dropped.readEnd > start;
    dropped.readStart = Number.POSITIVE_INFINITY;
    dropped.readEnd = 0;
    this.#settle();
    return wasRead ? { start, end } : null;
  }

  #settle(): void {
    const nowMs = this.#clock.elapsedMs();
    for (const [ino, { settledMs }] of this.#inodes) {
      if (settledMs > nowMs) return;
      this.#inodes.delete(ino);
    }
  }
}

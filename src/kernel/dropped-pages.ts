import type { Clock } from '../base/clock.ts';
import type { Extent, Inode } from '../base/vocabulary.ts';

const PAGE_BYTES = 4096;
/** The kernel has dropped the pages, and received every write(2) that was under way then: also on a machine that is overloaded. */
const SETTLED_MS = 10_000;
/** The most parts of a file that are remembered apart. */
const EXTENTS_MAX = 16;

interface Dropped {
  readonly settledMs: number;
  /** What was read since. */
  reads: Extent[];
}

/**
 * The files whose pages the kernel dropped, or is about to drop, while a program has them open for writing.
 *
 * For write(2) the kernel copies the bytes into its pages, and sends WRITE afterwards. It does not hold the pages in between if they are
 * complete (fuse_fill_write_pages). If they are dropped then, and another program reads the file, READ brings what the file had before:
 * the kernel would keep that, or zeros behind the former end. Such pages are dropped once more.
 */
export class DroppedPages {
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  /** The number of descriptors that may write, by file. */
  readonly #writers = new Map<Inode, number>();
  /** Oldest first. */
  readonly #inodes = new Map<Inode, Dropped>();

  constructor(deps: { clock: Pick<Clock, 'elapsedMs'> }) {
    this.#clock = deps.clock;
  }

  /** Whether `read` and `written` have nothing to do. */
  get isEmpty(): boolean {
    return this.#inodes.size === 0;
  }

  /** A program gets a descriptor that may write. */
  openedToWrite(ino: Inode): void {
    this.#writers.set(ino, (this.#writers.get(ino) ?? 0) + 1);
  }

  /** It was closed. */
  closedByWriter(ino: Inode): void {
    const left = (this.#writers.get(ino) ?? 1) - 1;
    if (left > 0) this.#writers.set(ino, left);
    else this.#writers.delete(ino);
  }

  /** A reply or notification drops pages of the file. */
  dropped(ino: Inode): void {
    this.#settle();
    this.#inodes.delete(ino);
    if (this.#writers.has(ino)) this.#inodes.set(ino, { settledMs: this.#clock.elapsedMs() + SETTLED_MS, reads: [] });
  }

  /** READ: offset and length, bytes. */
  read(ino: Inode, offset: number, length: number): void {
    const dropped = this.#inodes.get(ino);
    if (dropped === undefined) return;
    const { reads } = dropped;
    const last = reads.at(-1);
    const [start, end] = [offset, offset + length];
    if (last !== undefined && (reads.length === EXTENTS_MAX || (last.start <= end && last.end >= start)))
      reads[reads.length - 1] = { start: Math.min(last.start, start), end: Math.max(last.end, end) };
    else reads.push({ start, end });
  }

  /**
   * WRITE was carried out. The kernel sends one write(2) of a file at a time.
   *
   * @returns the pages to be dropped once more
   */
  written(ino: Inode, offset: number, length: number): readonly Extent[] {
    const dropped = this.#inodes.get(ino);
    if (dropped === undefined) return [];
    const from = offset - (offset % PAGE_BYTES);
    const to = Math.ceil((offset + length) / PAGE_BYTES) * PAGE_BYTES;
    const stale = dropped.reads
      .map(({ start, end }) => ({ start: Math.max(start, from), end: Math.min(end, to) }))
      .filter(({ start, end }) => start < end);
    dropped.reads = [];
    this.#settle();
    return stale;
  }

  #settle(): void {
    const nowMs = this.#clock.elapsedMs();
    for (const [ino, { settledMs }] of this.#inodes) {
      if (settledMs > nowMs) return;
      this.#inodes.delete(ino);
    }
  }
}

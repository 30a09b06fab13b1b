import type { Inode } from '../base/vocabulary.ts';

/**
 * The inodes that were added last: at least `rowMax` of them, at most twice as many. They stand in two rows; when the newer one is full
 * it becomes the older one, and that is forgotten. (One set that gives up its first member for each new one is slow: V8 looks for the
 * first one through the places of all that were given up.)
 */
export class RecentInodes {
  readonly #rowMax: number;
  #newer = new Set<Inode>();
  #older = new Set<Inode>();

  constructor(rowMax: number) {
    this.#rowMax = rowMax;
  }

  has(ino: Inode): boolean {
    return this.#newer.has(ino) || this.#older.has(ino);
  }

  /** One that is there already is as new as any from now on. */
  add(ino: Inode): void {
    this.#older.delete(ino);
    this.#newer.add(ino);
    if (this.#newer.size < this.#rowMax) return;
    this.#older = this.#newer;
    this.#newer = new Set();
  }

  /** @returns whether it was there */
  delete(ino: Inode): boolean {
    return this.#newer.delete(ino) || this.#older.delete(ino);
  }

  get size(): number {
    return this.#newer.size + this.#older.size;
  }
}

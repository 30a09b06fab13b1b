import type { Inode } from '../base/vocabulary.ts';

/**
 * The inodes added last: at least `rowMax`, at most twice as many. Two generations: when the newer one is full it becomes the older one,
 * whose members are dropped. (One set that drops its first member for each new one is slow: V8 scans the places of deleted members.)
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

  /** Adding a known inode makes it the newest again. */
  add(ino: Inode): void {
    this.#older.delete(ino);
    this.#newer.add(ino);
    if (this.#newer.size < this.#rowMax) return;
    this.#older = this.#newer;
    this.#newer = new Set();
  }

  /** @returns whether it was a member */
  delete(ino: Inode): boolean {
    return this.#newer.delete(ino) || this.#older.delete(ino);
  }

  get size(): number {
    return this.#newer.size + this.#older.size;
  }
}

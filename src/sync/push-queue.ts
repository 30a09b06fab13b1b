import type { Inode } from '../base/vocabulary.ts';

/**
 * What is ready to be pushed, in two lanes: names and small files, and large files. Small ones go first; but large ones always
 * have a place as soon as one is waiting, so that none starves behind a stream of small ones, and they never take all.
 */
export class PushQueue {
  readonly #places: number;
  readonly #largePlaces: number;
  readonly #small = new Set<Inode>();
  readonly #large = new Set<Inode>();
  #running = 0;
  #largeRunning = 0;

  /** @param places how many pushes run at the same time, from 1 on */
  constructor(places: number) {
    this.#places = places;
    this.#largePlaces = Math.max(1, places - 2);
  }

  get size(): number {
    return this.#small.size + this.#large.size;
  }

  get running(): number {
    return this.#running;
  }

  add(ino: Inode, weight: 'small' | 'large'): void {
    this.delete(ino);
    (weight === 'small' ? this.#small : this.#large).add(ino);
  }

  delete(ino: Inode): void {
    if (!this.#small.delete(ino)) this.#large.delete(ino);
  }

  /** The next one and what it weighs, taken out and counted as running until `ended`; null when there is none, or no place. */
  take(): { readonly ino: Inode; readonly weight: 'small' | 'large' } | null {
    if (this.#running >= this.#places) return null;
    const isLarge =
      this.#large.size > 0 &&
      this.#largeRunning < this.#largePlaces &&
      (this.#small.size === 0 || this.#largeRunning === 0);
    const lane = isLarge ? this.#large : this.#small;
    const [ino] = lane;
    if (ino === undefined) return null;
    lane.delete(ino);
    this.#running++;
    if (isLarge) this.#largeRunning++;
    return { ino, weight: isLarge ? 'large' : 'small' };
  }

  ended(weight: 'small' | 'large'): void {
    this.#running--;
    if (weight === 'large') this.#largeRunning--;
  }
}

import type { Inode } from '../base/vocabulary.ts';

/**
 * What is ready to be pushed, in two lanes: names and small files, and large files. Small ones go first; but large ones always
 * have a place as soon as one is waiting, so that none starves behind a stream of small ones, and they never take all.
 *
 * A large file takes a place, two small pushes share one: a new file is two requests, and while one is given its name the bytes
 * of another travel (`transfer/` counts the bodies). A distant service takes half of the time then.
 */
export class PushQueue {
  /** In halves of a place. */
  readonly #room: number;
  readonly #largeMax: number;
  readonly #small = new Set<Inode>();
  readonly #large = new Set<Inode>();
  #smallRunning = 0;
  #largeRunning = 0;
  /** Of what lane the last one was. */
  #wasLarge = false;

  /** @param places how many files are pushed at the same time, from 1 on */
  constructor(places: number) {
    this.#room = places * LARGE;
    this.#largeMax = Math.max(1, places - 2);
  }

  get size(): number {
    return this.#small.size + this.#large.size;
  }

  get running(): number {
    return this.#smallRunning + this.#largeRunning;
  }

  add(ino: Inode, weight: 'small' | 'large'): void {
    this.delete(ino);
    (weight === 'small' ? this.#small : this.#large).add(ino);
  }

  delete(ino: Inode): void {
    if (!this.#small.delete(ino)) this.#large.delete(ino);
  }

  /**
   * The next one and what it weighs, taken out and counted as running until `ended`; null when there is none, or no place.
   *
   * @param how `probe`: one alone tries whether there is an answer. From the lanes in turn, so that one that never gets any, for a
   * reason of its own, does not keep the others from being tried
   */
  take(how: 'flow' | 'probe' = 'flow'): { readonly ino: Inode; readonly weight: 'small' | 'large' } | null {
    const free = this.#room - this.#smallRunning * SMALL - this.#largeRunning * LARGE;
    const isLarge =
      how === 'flow' ? this.#isLargeNext : this.#small.size === 0 || (this.#large.size > 0 && !this.#wasLarge);
    if (free < (isLarge ? LARGE : SMALL)) return null;
    const lane = isLarge ? this.#large : this.#small;
    const [ino] = lane;
    if (ino === undefined) return null;
    lane.delete(ino);
    this.#wasLarge = isLarge;
    if (isLarge) this.#largeRunning++;
    else this.#smallRunning++;
    return { ino, weight: isLarge ? 'large' : 'small' };
  }

  get #isLargeNext(): boolean {
    if (this.#large.size === 0 || this.#largeRunning >= this.#largeMax) return false;
    return this.#small.size === 0 || this.#largeRunning === 0;
  }

  ended(weight: 'small' | 'large'): void {
    if (weight === 'large') this.#largeRunning--;
    else this.#smallRunning--;
  }
}

const SMALL = 1;
const LARGE = 2;

import type { Inode } from '../base/vocabulary.ts';

/**
 * Pushes that are ready, in two lanes: names and small files, and large files. Small ones go first. As soon as a large file waits, one place
 * is reserved for large files, so that small ones cannot starve them. Large files never get all places.
 *
 * A large file takes a place, two small pushes share one: a new file needs two requests, and the name of one file is created while the bytes
 * of another are sent (`transfer/` counts the bodies). With a distant service this halves the time.
 */
export class PushQueue {
  /** In halves of a place. */
  readonly #room: number;
  readonly #largeMax: number;
  readonly #small = new Set<Inode>();
  readonly #large = new Set<Inode>();
  #smallRunning = 0;
  #largeRunning = 0;
  /** The lane of the last push. */
  #wasLarge = false;

  /** @param places number of files that are pushed in parallel, at least 1 */
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

  /** A push that is in the same lane already keeps its place there. */
  add(ino: Inode, weight: 'small' | 'large'): void {
    (weight === 'small' ? this.#large : this.#small).delete(ino);
    (weight === 'small' ? this.#small : this.#large).add(ino);
  }

  delete(ino: Inode): void {
    if (!this.#small.delete(ino)) this.#large.delete(ino);
  }

  /**
   * The next push that may start; undefined if none is ready or no place is free.
   *
   * @param how `probe`: a single push tests whether the service answers. The lanes take turns, so that a push that never gets an answer, for
   *   a reason of its own, does not block the test
   */
  next(how: 'flow' | 'probe' = 'flow'): Inode | undefined {
    const free = this.#room - this.#smallRunning * SMALL - this.#largeRunning * LARGE;
    const isLarge =
      how === 'flow' ? this.#isLargeNext : this.#small.size === 0 || (this.#large.size > 0 && !this.#wasLarge);
    if (free < (isLarge ? LARGE : SMALL)) return undefined;
    const [ino] = isLarge ? this.#large : this.#small;
    return ino;
  }

  /** Takes a push out and counts it as running until `ended`. @returns its weight */
  start(ino: Inode): 'small' | 'large' {
    this.#wasLarge = this.#large.has(ino);
    this.delete(ino);
    if (this.#wasLarge) this.#largeRunning++;
    else this.#smallRunning++;
    return this.#wasLarge ? 'large' : 'small';
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

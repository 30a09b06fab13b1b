import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';

/**
 * The version throttle. The service keeps only a few versions (docs/service.md 13.7): a file that is saved every half minute would drop this
 * morning's version within three minutes. So the interval between two pushes of a file grows with its number of versions in the last hour,
 * from 2 s to 5 min. It grows fourfold each time: doubling would make ten versions of 40 saves in 20 minutes.
 */
export class VersionThrottle {
  readonly #clock: Clock;
  /** Moments of the latest versions of each file, oldest first, by `elapsedMs`. */
  readonly #made = new Map<Inode, number[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The file got a new version. */
  note(ino: Inode): void {
    const times = this.#recent(ino);
    times.push(this.#clock.elapsedMs());
    if (times.length > TIMES_MAX) times.shift();
    this.#made.delete(ino);
    this.#made.set(ino, times);
    if (this.#made.size > FILES_MAX) {
      const oldest = this.#made.keys().next().value;
      if (oldest !== undefined) this.#made.delete(oldest);
    }
  }

  /** The moment before which the file should get no other version, by `elapsedMs`; 0 for none. */
  notBeforeMs(ino: Inode): number {
    const times = this.#recent(ino);
    const last = times.at(-1);
    if (last === undefined) return 0;
    return last + Math.min(INTERVAL_MAX_MS, INTERVAL_FIRST_MS * 4 ** (times.length - 1));
  }

  #recent(ino: Inode): number[] {
    const times = this.#made.get(ino);
    if (times === undefined) return [];
    const since = this.#clock.elapsedMs() - HOUR_MS;
    while (times.length > 0 && (times[0] as number) < since) times.shift();
    if (times.length === 0) this.#made.delete(ino);
    return times;
  }
}

const HOUR_MS = 3_600_000;
const INTERVAL_FIRST_MS = 2_000;
const INTERVAL_MAX_MS = 5 * 60_000;
/** A longer history does not change the interval. */
const TIMES_MAX = 16;
/** Files whose history is kept. The file that was not pushed for the longest time is dropped first. */
const FILES_MAX = 10_000;

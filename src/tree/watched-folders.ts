import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';

/** Folders that are refreshed without being asked for: the ones used last. */
export const WATCHED_MAX = 16;
/** How long after its last use a folder is refreshed by itself. */
const WATCHED_MS = 5 * 60_000;
/** However short the TTL is: what nobody asked for, and what has just failed, is not asked for more often. */
const UNASKED_MS_MIN = 1_000;
/** The longest pause before a folder is asked for again of which the service says two things. */
const DOUBT_MS_MAX = 10 * 60_000;
/** A folder whose listings show nothing new is asked for less often, up to this many times the TTL. */
const SLOWDOWN_MAX = 4;

interface Watched {
  /** By `elapsedMs`. */
  usedMs: number;
  /** How many times `unaskedMs` its listing is believed before it is refreshed unasked. */
  slowdown: number;
  /** Not asked for again before this (by `elapsedMs`): the last listing failed. */
  retryAtMs: number;
  /** Listings in a row that were 404 while the folder above listed it. */
  doubts: number;
}

/** The folders in use: which to refresh even when the kernel, which keeps names for long, has no reason to ask. */
export class WatchedFolders {
  /** What nobody asked for is asked no sooner than this after its listing, and what failed after its failure. */
  readonly unaskedMs: number;
  readonly #clock: Clock;
  /** Least recently used first. */
  readonly #folders = new Map<Inode, Watched>();

  constructor(deps: { readonly clock: Clock; readonly ttlMs: number }) {
    this.#clock = deps.clock;
    this.unaskedMs = Math.max(deps.ttlMs, UNASKED_MS_MIN);
  }

  get all(): Iterable<Inode> {
    return this.#folders.keys();
  }

  get isEmpty(): boolean {
    return this.#folders.size === 0;
  }

  /** Somebody looks at the folder. */
  use(folder: Inode): void {
    const known = this.#folders.get(folder) ?? { slowdown: 1, retryAtMs: 0, doubts: 0 };
    this.#folders.delete(folder);
    this.#folders.set(folder, { ...known, usedMs: this.#clock.elapsedMs() });
    for (const oldest of this.#folders.keys()) {
      if (this.#folders.size <= WATCHED_MAX) break;
      this.#folders.delete(oldest);
    }
  }

  /** Its listing came, and showed something new or not. */
  listed(folder: Inode, what: 'new' | 'nothing new'): void {
    const watched = this.#folders.get(folder);
    if (watched === undefined) return;
    watched.doubts = 0;
    watched.slowdown = what === 'new' ? 1 : Math.min(watched.slowdown * 2, SLOWDOWN_MAX);
  }

  /** Its listing failed: once in a TTL, or in some minutes where that is long, is enough to learn that again. */
  failed(folder: Inode): void {
    const watched = this.#folders.get(folder);
    if (watched !== undefined) watched.retryAtMs = this.#clock.elapsedMs() + Math.min(this.unaskedMs, WATCHED_MS);
  }

  /** Its listing was 404, and the folder above lists it: asked for again after pauses that grow. */
  doubted(folder: Inode): void {
    const watched = this.#folders.get(folder);
    if (watched === undefined) return;
    const pauseMs = Math.min(this.unaskedMs * 2 ** watched.doubts, DOUBT_MS_MAX);
    watched.doubts += 1;
    watched.retryAtMs = this.#clock.elapsedMs() + pauseMs;
  }

  isPausing(folder: Inode): boolean {
    return this.#clock.elapsedMs() < (this.#folders.get(folder)?.retryAtMs ?? 0);
  }

  /** Those whose listing is due unasked. `listedMs`: when a folder was listed last (wall); null for never. */
  due(listedMs: (folder: Inode) => number | null): readonly Inode[] {
    const due: Inode[] = [];
    for (const [folder, { usedMs, slowdown }] of this.#folders) {
      if (this.#clock.elapsedMs() - usedMs > WATCHED_MS) {
        this.#folders.delete(folder);
        continue;
      }
      const lastMs = listedMs(folder);
      if (lastMs === null) continue;
      const ageMs = this.#clock.nowMs() - lastMs;
      // Younger than now: the wall clock was set back, and nobody knows how old it is.
      if (ageMs < 0 || ageMs >= this.unaskedMs * slowdown) due.push(folder);
    }
    return due;
  }
}

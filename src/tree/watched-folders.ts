import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';

/** Limit of folders refreshed without a request: the most recently used ones. */
export const WATCHED_MAX = 16;
/** Time after its last use during which a folder is refreshed automatically. */
const WATCHED_MS = 5 * 60_000;
/** Watchers are looked for at most this often, and once in the second half of `WATCHED_MS`. */
const LOOK_MS_MIN = 2 * 60_000;
/** Shortest interval of automatic refreshes and of retries after a failure, even if the TTL is shorter. */
const UNASKED_MS_MIN = 1_000;
/** Longest pause before a folder with contradictory responses is listed again. */
const DOUBT_MS_MAX = 10 * 60_000;
/** A folder without changes is refreshed less often, up to this many times the TTL. */
const SLOWDOWN_MAX = 4;

interface Watched {
  /** By `elapsedMs`. */
  usedMs: number;
  /** Multiple of `unaskedMs` after which its listing is refreshed automatically. */
  slowdown: number;
  /** Not listed again before this (`elapsedMs`): the last listing failed. */
  retryAtMs: number;
  /** Consecutive listings with 404 while the parent's listing contains the folder. */
  doubts: number;
}

/** The folders in use, to be refreshed even when the kernel, which caches names for long, sends no request. */
export class WatchedFolders {
  /** Shortest interval between a listing, or its failure, and the next automatic one. */
  readonly unaskedMs: number;
  readonly #clock: Clock;
  /** Least recently used first. */
  readonly #folders = new Map<Inode, Watched>();
  /** The folder used last. */
  #latest: Inode | null = null;
  /** By `elapsedMs`: when watchers were looked for. */
  #lookedMs = Number.NEGATIVE_INFINITY;
  /** More recently used folders have replaced one since then. */
  #hasReplaced = false;

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

  has(folder: Inode): boolean {
    const watched = this.#folders.get(folder);
    return watched !== undefined && this.#clock.elapsedMs() - watched.usedMs <= WATCHED_MS;
  }

  /** A program uses the folder. */
  use(folder: Inode): void {
    const known = this.#folders.get(folder);
    const usedMs = this.#clock.elapsedMs();
    // A program that empties a folder uses it thousands of times in sequence.
    if (known !== undefined && folder === this.#latest) {
      known.usedMs = usedMs;
      return;
    }
    this.#latest = folder;
    this.#folders.delete(folder);
    this.#folders.set(folder, { slowdown: 1, retryAtMs: 0, doubts: 0, ...known, usedMs });
    for (const oldest of this.#folders.keys()) {
      if (this.#folders.size <= WATCHED_MAX) break;
      this.#folders.delete(oldest);
      this.#hasReplaced = true;
    }
  }

  /** Whether a folder that a program still watches may be dropped soon, or was: its watchers are to be looked for. */
  get wantsLook(): boolean {
    const nowMs = this.#clock.elapsedMs();
    if (nowMs - this.#lookedMs < LOOK_MS_MIN) return false;
    return this.#hasReplaced || [...this.#folders.values()].some(({ usedMs }) => nowMs - usedMs > WATCHED_MS / 2);
  }

  /** Watchers are looked for now. */
  looks(): void {
    this.#lookedMs = this.#clock.elapsedMs();
    this.#hasReplaced = false;
  }

  /** The listing of a folder arrived, with or without changes. */
  listed(folder: Inode, what: 'new' | 'nothing new'): void {
    const watched = this.#folders.get(folder);
    if (watched === undefined) return;
    watched.doubts = 0;
    watched.slowdown = what === 'new' ? 1 : Math.min(watched.slowdown * 2, SLOWDOWN_MAX);
  }

  /** The listing of a folder failed: retry after one TTL, or some minutes if that is shorter. */
  failed(folder: Inode): void {
    const watched = this.#folders.get(folder);
    if (watched !== undefined) watched.retryAtMs = this.#clock.elapsedMs() + Math.min(this.unaskedMs, WATCHED_MS);
  }

  /** The listing of a folder was 404 although the parent's listing contains it: retried after growing pauses. */
  doubted(folder: Inode): void {
    const watched = this.#folders.get(folder);
    if (watched === undefined) return;
    watched.doubts += 1;
    const pauseMs = backoffMs(watched.doubts, 1, { firstMs: this.unaskedMs, maxMs: DOUBT_MS_MAX });
    watched.retryAtMs = this.#clock.elapsedMs() + pauseMs;
  }

  isPausing(folder: Inode): boolean {
    return this.#clock.elapsedMs() < (this.#folders.get(folder)?.retryAtMs ?? 0);
  }

  /** Folders due for an automatic refresh. `listedMs`: the time of a folder's last listing (wall); null for never. */
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
      // A time in the future: the wall clock was set back, and the age is unknown.
      if (ageMs < 0 || ageMs >= this.unaskedMs * slowdown) due.push(folder);
    }
    return due;
  }
}

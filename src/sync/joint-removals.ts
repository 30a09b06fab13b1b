import type { Inode } from '../base/vocabulary.ts';

/** Removals from one folder, from the first until none followed for the settle delay. */
interface Removals {
  readonly folder: Inode;
  readonly inos: Set<Inode>;
  readonly sinceMs: number;
  dueMs: number;
}

/**
 * Removed nodes, which settle together with the other removals from their folder. A program that empties a folder usually removes the
 * folder too, and one request then deletes everything. If each node settled alone, `rm -r` of a large folder would send two requests for
 * each of its first entries, while it removes the others.
 *
 * All moments are by `elapsedMs`.
 */
export class JointRemovals {
  readonly #settleMs: number;
  /** The removals that further ones from the same folder join. */
  readonly #open = new Map<Inode, Removals>();
  /** In the order of `dueMs`: the delay is the same for all. */
  readonly #all = new Set<Removals>();
  /** The last of `#all`: a further removal leaves the order as it is. */
  #last: Removals | null = null;
  readonly #of = new Map<Inode, Removals>();

  constructor(settleMs: number) {
    this.#settleMs = settleMs;
  }

  /** @param folder the folder that had the node */
  add(ino: Inode, folder: Inode, nowMs: number): void {
    this.delete(ino);
    let removals = this.#open.get(folder);
    if (removals === undefined || removals.dueMs <= nowMs || nowMs - removals.sinceMs >= JOINT_MS_MAX) {
      removals = { folder, inos: new Set(), sinceMs: nowMs, dueMs: 0 };
      this.#open.set(folder, removals);
    }
    removals.inos.add(ino);
    removals.dueMs = nowMs + this.#settleMs;
    if (this.#last !== removals) {
      this.#all.delete(removals);
      this.#all.add(removals);
      this.#last = removals;
    }
    this.#of.set(ino, removals);
  }

  delete(ino: Inode): void {
    this.#of.get(ino)?.inos.delete(ino);
    this.#of.delete(ino);
  }

  has(ino: Inode): boolean {
    return this.#of.has(ino);
  }

  /** The end of the node's settle delay; undefined if it is not here. */
  dueMs(ino: Inode): number | undefined {
    return this.#of.get(ino)?.dueMs;
  }

  /** The earliest end of a settle delay. */
  get nextMs(): number {
    for (const { dueMs } of this.#all) return dueMs;
    return Number.POSITIVE_INFINITY;
  }

  /** Removes and returns nodes whose settle delay has ended; the rest of many with the next call. */
  takeDue(nowMs: number): readonly Inode[] {
    const due: Inode[] = [];
    for (const removals of this.#all) {
      if (removals.dueMs > nowMs) break;
      for (const ino of removals.inos) {
        if (due.length === TAKEN_MAX) return due;
        due.push(ino);
        this.delete(ino);
      }
      this.#all.delete(removals);
      if (this.#last === removals) this.#last = null;
      if (this.#open.get(removals.folder) === removals) this.#open.delete(removals.folder);
    }
    return due;
  }
}

/** Removals that follow one another for longer are pushed in parts. */
const JOINT_MS_MAX = 60_000;
/** Bounds a turn of the event loop. */
const TAKEN_MAX = 1_000;

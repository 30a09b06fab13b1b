import type { Inode } from '../base/vocabulary.ts';

/** More entries than one reply to the kernel holds. */
const HANDED_OUT_MIN = 4096;
/** A program that empties a folder reads up to this many entries before it removes the first (fts(3), FTS_MAX_READDIR_ENTRIES). */
const LEFT_MIN = 100_000;

/** One opendir(2): remembers former names, by which a listing continues after an entry that was renamed or removed. */
export class FolderHandle {
  readonly kind = 'folder';
  readonly ino: Inode;
  readonly #handedOut = new RecentNames(HANDED_OUT_MIN);
  /** Entries that left the folder since it was opened and were not handed out: the kernel may have served them from its own cache. */
  readonly #left = new RecentNames(LEFT_MIN);

  /** Called at each `rewound`. */
  onRewind: (() => void) | null = null;

  constructor(ino: Inode) {
    this.ino = ino;
  }

  handedOut(entry: Inode, name: string): void {
    this.#handedOut.add(entry, name);
  }

  /**
   * `entry` no longer has `name` in this folder. The first of several names counts: the first change ends the kernel's cache, and later
   * entries come from here.
   */
  left(entry: Inode, name: string): void {
    if (this.nameOf(entry) === undefined) this.#left.add(entry, name);
  }

  /** The name of `entry` when the reader passed it; undefined if no change of it is known. */
  nameOf(entry: Inode): string | undefined {
    return this.#handedOut.of(entry) ?? this.#left.of(entry);
  }

  /** Reading restarts at the beginning: earlier positions are no longer needed. */
  rewound(): void {
    this.#handedOut.clear();
    this.#left.clear();
    this.onRewind?.();
  }
}

/** The names of the latest entries: at least `min`, at most twice as many. */
class RecentNames {
  readonly #min: number;
  #newer = new Map<Inode, string>();
  #older = new Map<Inode, string>();

  constructor(min: number) {
    this.#min = min;
  }

  add(entry: Inode, name: string): void {
    if (this.#newer.size >= this.#min) {
      this.#older = this.#newer;
      this.#newer = new Map();
    }
    this.#newer.set(entry, name);
  }

  of(entry: Inode): string | undefined {
    return this.#newer.get(entry) ?? this.#older.get(entry);
  }

  clear(): void {
    this.#newer.clear();
    this.#older.clear();
  }
}

import type { Inode } from '../base/vocabulary.ts';

/** More than one answer to the kernel holds. */
const HANDED_OUT_MIN = 4096;
/** A program that reads a folder to remove what is in it reads so many entries before it begins (fts(3), FTS_MAX_READDIR_ENTRIES). */
const LEFT_MIN = 100_000;

/** One opendir(2): the names by which a listing goes on behind an entry that is no longer called so. */
export class FolderHandle {
  readonly kind = 'folder';
  readonly ino: Inode;
  readonly #handedOut = new RecentNames(HANDED_OUT_MIN);
  /** Of what left the folder since it was opened, and was not handed out: the kernel may have given it out of its own cache. */
  readonly #left = new RecentNames(LEFT_MIN);

  constructor(ino: Inode) {
    this.ino = ino;
  }

  handedOut(entry: Inode, name: string): void {
    this.#handedOut.add(entry, name);
  }

  /**
   * `entry` was called `name` in this folder, and is not any more. Of several names the first one counts: the kernel's cache ends with the first
   * change, and what is given out after it comes from here.
   */
  left(entry: Inode, name: string): void {
    if (this.nameOf(entry) === undefined) this.#left.add(entry, name);
  }

  /** What `entry` was called when the reader came by it; undefined where it is not known to have another name now. */
  nameOf(entry: Inode): string | undefined {
    return this.#handedOut.of(entry) ?? this.#left.of(entry);
  }

  /** It is read from the start: to no place of before is gone back. */
  rewound(): void {
    this.#handedOut.clear();
    this.#left.clear();
  }
}

/** The names of the latest entries, of `min` at least and twice as many at most. */
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

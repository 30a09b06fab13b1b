import type { Inode } from '../base/vocabulary.ts';

/** Limit of concurrent listings without a waiting reader: half of the connections for documents stay free for readers. */
export const BACKGROUND_LISTINGS_MAX = 4;
/** Limit of folders that wait for one. A dropped folder is listed at its next use. */
export const BACKGROUND_WAITING_MAX = 1_000;

/**
 * Refreshes folders that programs use and no program waits for, most recent use first. A program that walks a large
 * tree uses thousands of stale folders in a second.
 */
export class BackgroundListings {
  readonly #isDue: (folder: Inode) => boolean;
  readonly #list: (folder: Inode) => Promise<void>;
  /** Most recent use last. */
  readonly #waiting: Inode[] = [];
  #running = 0;

  /** @param deps.isDue whether the folder still needs a listing, and none of it runs · `list`: never rejects */
  constructor(deps: { readonly isDue: (folder: Inode) => boolean; readonly list: (folder: Inode) => Promise<void> }) {
    this.#isDue = deps.isDue;
    this.#list = deps.list;
  }

  /** Lists the folder now, or when its turn comes. */
  add(folder: Inode): void {
    const at = this.#waiting.indexOf(folder);
    if (at !== -1) this.#waiting.splice(at, 1);
    this.#waiting.push(folder);
    if (this.#waiting.length > BACKGROUND_WAITING_MAX) this.#waiting.shift();
    this.#startNext();
  }

  clear(): void {
    this.#waiting.length = 0;
  }

  #startNext(): void {
    while (this.#running < BACKGROUND_LISTINGS_MAX) {
      const folder = this.#waiting.pop();
      if (folder === undefined) return;
      if (!this.#isDue(folder)) continue;
      this.#running += 1;
      void this.#list(folder).then(() => {
        this.#running -= 1;
        this.#startNext();
      });
    }
  }
}

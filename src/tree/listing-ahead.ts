import type { Logger } from '../base/log.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { Tree } from './tree.ts';

/** Limit of concurrent speculative listings: one document connection stays free for requested ones. */
const UNDER_WAY_MAX = 7;
/** Largest read-ahead, in folders that were never listed. */
const WINDOW_MAX = 16;
/** Limit of siblings scanned for such folders. */
const SIBLINGS_MAX = 2000;
/** Limit of tracked parents. */
const WALKS_MAX = 32;
/** Limit of remembered folders that no reader has visited: the windows of all walks. */
export const AHEAD_MAX = WALKS_MAX * WINDOW_MAX;

/**
 * Lists folders ahead of a reader that walks through siblings (`ls -R`, `find`, `cp -r`, a file manager's tree), so
 * that it does not wait for one listing after another. The second folder opened in the same parent starts the
 * read-ahead.
 */
export class ListingAhead {
  readonly #tree: Pick<Tree, 'node' | 'children' | 'isComplete'>;
  readonly #list: (folder: Inode) => Promise<void>;
  readonly #log: Logger;
  /** Number of folders visited, by parent; least recently used first. */
  readonly #walks = new Map<Inode, { steps: number }>();
  /** Listed ahead, not yet visited; oldest first. */
  readonly #ahead = new Set<Inode>();
  #underWay = 0;

  constructor(deps: {
    readonly tree: Pick<Tree, 'node' | 'children' | 'isComplete'>;
    readonly list: (folder: Inode) => Promise<void>;
    readonly log: Logger;
  }) {
    this.#tree = deps.tree;
    this.#list = deps.list;
    this.#log = deps.log;
  }

  /** A reader opened a folder. `first`: it was never listed. */
  looked(folder: Inode, first: boolean): void {
    if (!first && !this.#ahead.delete(folder)) return;
    const local = this.#tree.node(folder)?.local;
    if (local == null || folder === ROOT_INODE) return;
    const walk = this.#walks.get(local.parent) ?? { steps: 0 };
    this.#walks.delete(local.parent);
    this.#walks.set(local.parent, walk);
    for (const oldest of this.#walks.keys()) {
      if (this.#walks.size <= WALKS_MAX) break;
      this.#walks.delete(oldest);
    }
    walk.steps += 1;
    if (walk.steps > 1) this.#fill(local.parent, local.name);
  }

  /** Number of folders that were listed ahead and not visited yet. */
  get remembered(): number {
    return this.#ahead.size;
  }

  /**
   * As `#listBehind`. A damaged row of a sibling ends the read-ahead without an error for the reader of an intact
   * folder.
   */
  #fill(parent: Inode, name: string): void {
    try {
      this.#listBehind(parent, name);
    } catch (err) {
      this.#log.debug({ err, folder: parent }, 'not listed ahead');
    }
  }

  /** Lists the folders of `parent` after `name`: the longer the walk, the more. */
  #listBehind(parent: Inode, name: string): void {
    const walk = this.#walks.get(parent);
    if (walk === undefined || this.#underWay >= UNDER_WAY_MAX) return;
    let window = Math.min(2 * walk.steps, WINDOW_MAX);
    let looked = 0;
    for (const { node } of this.#tree.children(parent, name)) {
      if (window === 0 || this.#underWay >= UNDER_WAY_MAX || looked++ > SIBLINGS_MAX) return;
      if (node.kind !== 'folder') continue;
      if (this.#ahead.has(node.ino)) window -= 1;
      if (this.#ahead.has(node.ino) || this.#tree.isComplete(node.ino)) continue;
      window -= 1;
      this.#start(parent, name, node.ino);
    }
  }

  #start(parent: Inode, name: string, folder: Inode): void {
    this.#ahead.add(folder);
    for (const oldest of this.#ahead) {
      if (this.#ahead.size <= AHEAD_MAX) break;
      this.#ahead.delete(oldest);
    }
    this.#underWay += 1;
    const ended = () => {
      this.#underWay -= 1;
    };
    this.#list(folder).then(
      () => {
        ended();
        this.#fill(parent, name);
      },
      () => {
        // The reader will request it and get the error.
        this.#ahead.delete(folder);
        ended();
      },
    );
  }
}

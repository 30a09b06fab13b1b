import type { Logger } from '../base/log.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { Tree } from './tree.ts';

/** Limit of concurrent speculative listings: one document connection stays free for requested ones. */
const UNDER_WAY_MAX = 7;
/** Largest read-ahead, in folders that were never listed. */
const WINDOW_MAX = 32;
/** Limit of siblings that one scan looks at. */
const SIBLINGS_MAX = 2000;
/** Limit of folders that one visit looks at. */
const LOOKED_AT_MAX = 256;
/** Limit of tracked parents. */
const WALKS_MAX = 32;
/** Limit of remembered folders that no reader has visited: the windows of all walks. */
export const AHEAD_MAX = WALKS_MAX * WINDOW_MAX;

/** A reader that visits folders of one parent. */
interface Walk {
  readonly parent: Inode;
  /** Number of folders visited. */
  steps: number;
  /** Sibling folders in the order of their names, by the last scan. */
  folders: readonly Inode[];
  /** Index of the last visited folder in `folders`. */
  at: number;
  isBackward: boolean;
}

/**
 * Lists folders ahead of a reader that walks through siblings (`ls -R`, `find`, `cp -r`, a file manager's tree), so
 * that it does not wait for one listing after another. The second folder opened in the same parent starts the
 * read-ahead. It lists the nearest folders in the direction of the walk first, then the nearest on the other side: some
 * programs walk backward, or with several threads.
 */
export class ListingAhead {
  readonly #tree: Pick<Tree, 'node' | 'children' | 'isComplete'>;
  readonly #list: (folder: Inode) => Promise<void>;
  readonly #log: Logger;
  /** By parent; least recently used first. */
  readonly #walks = new Map<Inode, Walk>();
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
    const isAhead = this.#ahead.delete(folder);
    if (!first && !isAhead) return;
    const local = this.#tree.node(folder)?.local;
    if (local == null || folder === ROOT_INODE) return;
    const { parent, name } = local;
    const walk = this.#walks.get(parent) ?? { parent, steps: 0, folders: [], at: 0, isBackward: false };
    this.#walks.delete(parent);
    this.#walks.set(parent, walk);
    for (const oldest of this.#walks.keys()) {
      if (this.#walks.size <= WALKS_MAX) break;
      this.#walks.delete(oldest);
    }
    walk.steps += 1;
    if (walk.steps === 1) return;
    this.#unlessDamaged(walk, () => {
      this.#step(walk, folder, name);
      this.#fill(walk);
    });
  }

  /** Number of folders that were listed ahead and not visited yet. */
  get remembered(): number {
    return this.#ahead.size;
  }

  /** A damaged row of a sibling ends the read-ahead without an error for the reader of an intact folder. */
  #unlessDamaged(walk: Walk, act: () => void): void {
    try {
      act();
    } catch (err) {
      this.#log.debug({ err, folder: walk.parent }, 'not listed ahead');
    }
  }

  /** Finds the visited folder among its siblings, and the direction of the walk. */
  #step(walk: Walk, folder: Inode, name: string): void {
    let at = walk.folders.indexOf(folder);
    if (at !== -1) {
      walk.isBackward = at < walk.at;
    } else {
      if (walk.folders.length === 0) walk.folders = this.#foldersIn(walk.parent);
      at = walk.folders.indexOf(folder);
      if (at === -1) {
        walk.folders = [folder, ...this.#foldersIn(walk.parent, name)];
        at = 0;
      }
      walk.isBackward = false;
    }
    walk.at = at;
  }

  #foldersIn(parent: Inode, after?: string): Inode[] {
    const folders: Inode[] = [];
    let looked = 0;
    for (const { node } of this.#tree.children(parent, after)) {
      if (looked++ === SIBLINGS_MAX) break;
      if (node.kind === 'folder') folders.push(node.ino);
    }
    return folders;
  }

  /** Lists folders of the walk: each visit doubles their number, up to a limit. */
  #fill(walk: Walk): void {
    let window = Math.min(2 ** walk.steps, WINDOW_MAX);
    let looked = 0;
    for (const folder of nextOf(walk)) {
      if (window === 0 || this.#underWay >= UNDER_WAY_MAX || looked++ === LOOKED_AT_MAX) return;
      if (this.#ahead.has(folder)) window -= 1;
      else if (!this.#tree.isComplete(folder)) {
        window -= 1;
        this.#start(walk, folder);
      }
    }
  }

  #start(walk: Walk, folder: Inode): void {
    this.#ahead.add(folder);
    for (const oldest of this.#ahead) {
      if (this.#ahead.size <= AHEAD_MAX) break;
      this.#ahead.delete(oldest);
    }
    this.#underWay += 1;
    this.#list(folder).then(
      () => {
        this.#underWay -= 1;
        if (this.#walks.get(walk.parent) === walk) this.#unlessDamaged(walk, () => this.#fill(walk));
      },
      () => {
        // The reader will request it and get the error.
        this.#ahead.delete(folder);
        this.#underWay -= 1;
      },
    );
  }
}

/** The folders behind the last visited one, nearest first, then those before it. */
function* nextOf({ folders, at, isBackward }: Walk): Generator<Inode, void> {
  for (const step of isBackward ? [-1, 1] : [1, -1]) {
    for (let index = at + step; index >= 0 && index < folders.length; index += step) yield folders[index] as Inode;
  }
}

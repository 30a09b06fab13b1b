import type { Logger } from '../base/log.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { Tree } from './tree.ts';

/** Listings under way at once that nobody has asked for yet: one connection of those for documents stays free for who asks. */
const UNDER_WAY_MAX = 7;
/** How far ahead of the reader, in folders that were never listed. */
const WINDOW_MAX = 16;
/** Looked through for such folders, at most. */
const SIBLINGS_MAX = 2000;
/** Parents whose folders are being walked through at the same time. */
const WALKS_MAX = 32;

/**
 * Lists folders ahead of a reader who walks through siblings (`ls -R`, `find`, `cp -r`, a file manager's tree), so that he waits
 * for one listing and not for one after another. One folder alone is no walk; the second one in the same parent is.
 */
export class ListingAhead {
  readonly #tree: Pick<Tree, 'node' | 'children' | 'isComplete'>;
  readonly #list: (folder: Inode) => Promise<void>;
  readonly #log: Logger;
  /** By parent, least recently used first: how many of its folders were looked at. */
  readonly #walks = new Map<Inode, { steps: number }>();
  /** Listed ahead, not looked at yet. */
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

  /** Somebody looks at a folder. `first`: it was never listed. */
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

  /** As `#listBehind`. Nobody asked for it: a damaged row of a sibling ends it, and is no error for whoever looks at a sound one. */
  #fill(parent: Inode, name: string): void {
    try {
      this.#listBehind(parent, name);
    } catch (err) {
      this.#log.debug({ err, folder: parent }, 'not listed ahead');
    }
  }

  /** Lists folders of `parent` behind `name`: the longer the walk, the more. */
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
        // The reader will ask for it himself, and get the error.
        this.#ahead.delete(folder);
        ended();
      },
    );
  }
}

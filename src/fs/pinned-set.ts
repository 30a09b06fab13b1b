import { type ContentId, type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import { soundNode } from '../store/node-table.ts';
import { pinnedNodes } from '../store/pinned-nodes.ts';
import type { StoreReader } from '../store/tables.ts';

/** How much of a pinned file or folder is on this machine, as of its last round. */
export interface PinState {
  readonly ino: Inode;
  readonly files: number;
  readonly bytes: number;
  readonly filesHere: number;
  readonly bytesHere: number;
  /** Everything that the last round found is on this machine. */
  readonly isComplete: boolean;
  /** The first failure of the last round, or the one that ended it; kept until a round completes or is requested anew. */
  readonly trouble: string | null;
}

export interface Pin {
  state: PinState;
  /** Not stored: it ends with the fetch (`Pins.endOnce`). */
  isOnce: boolean;
  /** A new round of it is due, even if one is running. */
  isStale: boolean;
}

const FOLDERS_DEEP_MAX = 4096;

/**
 * The pins, and the contents that they exclude from eviction. It reads the store alone, so the byte store can ask it before
 * anything else of a mount exists; `Pins` completes the files.
 */
export class PinnedSet {
  readonly #store: StoreReader;
  readonly #pins = new Map<Inode, Pin>();
  /** Contents that this run has seen complete. Pinned ones are never evicted. */
  readonly #whole = new Map<Inode, ContentId>();
  /** The node of each content: the service may have given a file another URL since its content was fetched. */
  readonly #holders = new Map<ContentId, Inode>();

  /** Begins with the pins of the store. */
  constructor(store: StoreReader) {
    this.#store = store;
    for (const ino of pinnedNodes(store)) this.add(ino);
  }

  get size(): number {
    return this.#pins.size;
  }

  get(ino: Inode): Pin | undefined {
    return this.#pins.get(ino);
  }

  /** A pin of which nothing is known yet. */
  add(ino: Inode, how: 'always' | 'once' = 'always'): void {
    this.#pins.set(ino, { state: unknownState(ino), isStale: true, isOnce: how === 'once' });
  }

  remove(ino: Inode): void {
    this.#pins.delete(ino);
    if (this.#pins.size > 0) return;
    this.#whole.clear();
    this.#holders.clear();
  }

  /** The inodes that are pinned themselves. */
  inos(): readonly Inode[] {
    return [...this.#pins.keys()];
  }

  pins(): Iterable<Pin> {
    return this.#pins.values();
  }

  /** The pin of the node, or of its nearest pinned ancestor. */
  over(ino: Inode): Pin | undefined {
    for (let at = ino, deep = 0; deep < FOLDERS_DEEP_MAX; deep++) {
      const pin = this.#pins.get(at);
      if (pin !== undefined || at === ROOT_INODE) return pin;
      const parent = soundNode(this.#store, at)?.local?.parent;
      if (parent === undefined) return undefined;
      at = parent;
    }
    return undefined;
  }

  /** The pin that keeps a node here: its own, that of a folder above it, or none. */
  kindOf(ino: Inode): 'itself' | 'folder' | 'none' {
    if (this.#pins.get(ino)?.isOnce === false) return 'itself';
    const pin = this.over(ino);
    return pin === undefined || pin.isOnce ? 'none' : 'folder';
  }

  /** Whether this run has seen the file complete with that content. */
  isWhole(ino: Inode, content: ContentId): boolean {
    return this.#whole.get(ino) === content;
  }

  /** The file is complete with that content. */
  completed(ino: Inode, content: ContentId): void {
    this.#holders.delete(this.#whole.get(ino) ?? content);
    this.#whole.set(ino, content);
    this.#holders.set(content, ino);
  }

  /** The content belongs to that file: its bytes on this machine are kept if the file is pinned. */
  holds(ino: Inode, content: ContentId): void {
    this.#holders.set(content, ino);
  }

  /** Whether a pinned file has this content, which excludes it from eviction. */
  keeps(content: ContentId): boolean {
    if (this.#pins.size === 0) return false;
    const resource = this.#store.get('content', content)?.resource;
    const ino = (resource == null ? undefined : this.#store.get('resource', resource)) ?? this.#holders.get(content);
    if (ino === undefined) return false;
    if (soundNode(this.#store, ino)?.local?.content === content && this.over(ino) !== undefined) return true;
    // It may be evicted from here on: a later pin, or a discarded edit, must not report it as complete.
    if (this.#whole.get(ino) === content) this.#whole.delete(ino);
    this.#holders.delete(content);
    return false;
  }
}

function unknownState(ino: Inode): PinState {
  return { ino, files: 0, bytes: 0, filesHere: 0, bytesHere: 0, isComplete: false, trouble: null };
}

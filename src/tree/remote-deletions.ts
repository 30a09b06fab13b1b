import type { Logger } from '../base/log.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import { isContentDirty, isDirty, soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import type { NodeChange } from './listing-merge.ts';
import { isWithin } from './live-folder.ts';
import { planRecreate } from './plan-recreate.ts';
import { planRemoteDelete } from './plan-remote-delete.ts';

/** An open file. */
export interface OpenHere {
  readonly ino: Inode;
  /** Whether any of its handles can write. */
  readonly isWritten: boolean;
}

/**
 * `held`: the removal waits for the user's confirmation. `open`: a program reads inside it. In both cases nothing is
 * removed, and changed nodes lose their resource.
 */
export type RemoteDeletionOutcome = 'kept' | 'open' | 'removed' | 'held';

/** Limit of nodes removed in one journal record. */
const STEP_NODES_MAX = 500;

/**
 * Handles nodes whose resources were deleted remotely, and remembers those retained for now. Changes in retained nodes
 * must not be pushed to the deleted place: the service would accept them, and no user would see them. In memory only:
 * after a restart, listings report the deletions again.
 */
export class RemoteDeletions {
  readonly #deps: RemoteDeletionsDeps;
  /** Roots of retained subtrees; descendants are found through their ancestors. */
  readonly #kept = new Set<Inode>();

  constructor(deps: RemoteDeletionsDeps) {
    this.#deps = deps;
  }

  /** Whether the node is retained although its resource was deleted, or may have been. */
  has(ino: Inode): boolean {
    return this.#kept.has(ino);
  }

  /** A listing lacks the node, and its removal waits for the user's confirmation. */
  suspected(ino: Inode): void {
    this.#kept.add(ino);
  }

  /** The resource exists after all. */
  found(ino: Inode): void {
    this.#kept.delete(ino);
  }

  /** Number of nodes that the removal of `node` would remove, up to `max`. */
  countOf(node: NodeRecord, max: number): number {
    return planRemoteDelete(this.#view(this.#writtenHere()), node, max).removed;
  }

  /**
   * The resource is not in the mounted tree any more. `isBelieved`: false while the removal waits for the user's
   * confirmation.
   */
  settle(node: NodeRecord, isBelieved: boolean): RemoteDeletionOutcome {
    const { store, log, openFiles } = this.#deps;
    if (node.ino === ROOT_INODE) {
      log.error('the root folder was deleted on the service; everything is kept here');
      return 'held';
    }
    const open = [...openFiles()];
    const written = this.#writtenHere();
    const view = this.#view(written);
    // Open readers keep the node until the first listing after they close. Local changes are retained in any case.
    const isOnlyRead = (ino: Inode): boolean => {
      const read = store.get('node', ino);
      return !view.isBeingWritten(ino) && !(read !== undefined && isContentDirty(read));
    };
    const isOpen = open.some(({ ino }) => isOnlyRead(ino) && isWithin(store, ino, node.ino));
    if (isOpen || !isBelieved) {
      // planRecreate scans all dirty nodes: skip it for nodes without children.
      const recreated = node.kind === 'folder' ? planRecreate(view, node, this.#changedHere(written)) : [];
      for (let at = 0; at < recreated.length; at += STEP_NODES_MAX)
        this.#apply(recreated.slice(at, at + STEP_NODES_MAX));
      if (store.get('node', node.ino)?.remote != null) this.#kept.add(node.ino);
      return isOpen ? 'open' : 'held';
    }
    for (let at: NodeRecord | undefined = node; at !== undefined; ) {
      const { changes, complete } = planRemoteDelete(view, at, STEP_NODES_MAX);
      this.#apply(changes);
      if (complete) break;
      at = store.get('node', node.ino);
    }
    return store.get('node', node.ino) === undefined ? 'removed' : 'kept';
  }

  #writtenHere(): ReadonlySet<Inode> {
    return new Set([...this.#deps.openFiles()].filter(({ isWritten }) => isWritten).map(({ ino }) => ino));
  }

  #view(written: ReadonlySet<Inode>) {
    const { store, intents } = this.#deps;
    return {
      node: (ino: Inode) => soundNode(store, ino),
      children: (parent: Inode) => this.#childrenOf(parent),
      isBusy: (ino: Inode) => intents.ownedBy(ino) !== undefined,
      // A file open for writing is recreated only if its bytes are here.
      isBeingWritten: (ino: Inode) => written.has(ino) && store.get('node', ino)?.local?.content != null,
    };
  }

  #apply(changes: readonly NodeChange[]): void {
    const { apply, toPush } = this.#deps;
    apply(changes);
    for (const { before, after } of changes) {
      this.#kept.delete(after.ino);
      if (after.local === null) {
        // Other nodes may wait for this node's name: this is the only notification.
        if (before !== undefined && isDirty(before)) toPush(after.ino);
        continue;
      }
      toPush(after.ino);
      // The folder is recreated empty; the rest of its remote content stays deleted.
      if (after.kind !== 'folder') continue;
      for (const child of this.#childrenOf(after.ino))
        if (child.remote?.parent === after.ino) this.#kept.add(child.ino);
    }
  }

  /** All nodes that may have to be kept: found from the changed nodes, not by walking the folder. */
  *#changedHere(written: ReadonlySet<Inode>): Iterable<Inode> {
    const { store, intents } = this.#deps;
    for (const [ino] of store.all('dirty')) yield ino;
    for (const { owner } of intents.open()) yield owner;
    yield* written;
  }

  *#childrenOf(parent: Inode): Iterable<NodeRecord> {
    const { store } = this.#deps;
    for (const [, ino] of store.scan('name', parent)) {
      const child = store.get('node', ino);
      if (child !== undefined) yield child;
    }
  }
}

export interface RemoteDeletionsDeps {
  readonly store: StoreReader;
  readonly intents: Intents;
  readonly log: Logger;
  readonly openFiles: () => Iterable<OpenHere>;
  /** Writes the changes in one record and invalidates the kernel's caches. */
  readonly apply: (changes: readonly NodeChange[]) => void;
  /** The pending push of the node has changed. */
  readonly toPush: (ino: Inode) => void;
}

import type { Logger } from '../base/log.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import { isContentDirty, isDirty, soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import type { NodeChange } from './listing-merge.ts';
import { isWithin } from './live-folder.ts';
import type { PushMarks } from './push-marks.ts';
import { planRescue } from './rescue.ts';
import { planVanish } from './vanish.ts';

/** A file that a program has open. */
export interface OpenHere {
  readonly ino: Inode;
  /** For writing, by one of those who have it open. */
  readonly isWritten: boolean;
}

/**
 * `held`: the removal waits for a person's word. `open`: a program reads in it. In both cases nothing is removed, and changed nodes lose
 * their resource.
 */
export type GoneOutcome = 'kept' | 'open' | 'removed' | 'held';

/** Nodes removed in one record. */
const STEP_NODES_MAX = 500;

/**
 * What becomes here of nodes whose resources are gone on the service, and which of them are kept for now. What is changed in those is not to
 * be pushed there: the service would take it, and nobody would see it. In memory: after a start the listings tell again.
 */
export class GoneNodes {
  readonly #deps: GoneNodesDeps;
  /** What lies below is not in here: it is found from what it lies in. */
  readonly #kept = new Set<Inode>();

  constructor(deps: GoneNodesDeps) {
    this.#deps = deps;
  }

  /** Whether the node is kept though it is gone, or may be. */
  has(ino: Inode): boolean {
    return this.#kept.has(ino);
  }

  /** A listing lacks it, and its removal waits for a person's word. */
  suspected(ino: Inode): void {
    this.#kept.add(ino);
  }

  /** The service has it after all. */
  found(ino: Inode): void {
    this.#kept.delete(ino);
  }

  /** How many nodes the removal of `node` would take, up to `max`. */
  countOf(node: NodeRecord, max: number): number {
    return planVanish(this.#view(this.#writtenHere()), node, max).removed;
  }

  /** The service does not have it, where we look. `isBelieved`: false while the removal waits for a person's word. */
  settle(node: NodeRecord, isBelieved: boolean): GoneOutcome {
    const { store, log, openFiles } = this.#deps;
    if (node.ino === ROOT_INODE) {
      log.error('the root folder is gone on the service; everything is kept here');
      return 'held';
    }
    const open = [...openFiles()];
    const written = this.#writtenHere();
    const view = this.#view(written);
    // Whoever reads, reads on: asked again with the next listing, when it is closed. What was changed here stays in any case.
    const isOnlyRead = (ino: Inode): boolean => {
      const read = store.get('node', ino);
      return !view.isBeingWritten(ino) && !(read !== undefined && isContentDirty(read));
    };
    const isOpen = open.some(({ ino }) => isOnlyRead(ino) && isWithin(store, ino, node.ino));
    if (isOpen || !isBelieved) {
      // All that is dirty is looked at, so not for what nothing lies in.
      const rescued = node.kind === 'folder' ? planRescue(view, node, this.#changedHere(written)) : [];
      for (let at = 0; at < rescued.length; at += STEP_NODES_MAX) this.#apply(rescued.slice(at, at + STEP_NODES_MAX));
      if (store.get('node', node.ino)?.remote != null) this.#kept.add(node.ino);
      return isOpen ? 'open' : 'held';
    }
    for (let at: NodeRecord | undefined = node; at !== undefined; ) {
      const { changes, complete } = planVanish(view, at, STEP_NODES_MAX);
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
    const { store, marks } = this.#deps;
    return {
      node: (ino: Inode) => soundNode(store, ino),
      children: (parent: Inode) => this.#childrenOf(parent),
      isBusy: (ino: Inode) => marks.isBusy(ino),
      // Made anew for programs that may write into it: not without the bytes that it had.
      isBeingWritten: (ino: Inode) => written.has(ino) && store.get('node', ino)?.local?.content != null,
    };
  }

  #apply(changes: readonly NodeChange[]): void {
    const { apply, toPush } = this.#deps;
    apply(changes);
    for (const { before, after } of changes) {
      this.#kept.delete(after.ino);
      if (after.local === null) {
        // Others may wait for it to leave its name, and nobody else would tell that it has.
        if (before !== undefined && isDirty(before)) toPush(after.ino);
        continue;
      }
      toPush(after.ino);
      // Made anew without what the service had in it: the rest of that is gone as before.
      if (after.kind !== 'folder') continue;
      for (const child of this.#childrenOf(after.ino))
        if (child.remote?.parent === after.ino) this.#kept.add(child.ino);
    }
  }

  /** All that may be wanted: found from what is changed, not by a walk through all that lies in a folder. */
  *#changedHere(written: ReadonlySet<Inode>): Iterable<Inode> {
    const { store } = this.#deps;
    for (const [ino] of store.all('dirty')) yield ino;
    for (const [ino] of store.all('upload')) yield ino;
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

export interface GoneNodesDeps {
  readonly store: StoreReader;
  readonly marks: PushMarks;
  readonly log: Logger;
  readonly openFiles: () => Iterable<OpenHere>;
  /** Writes them in one record, and tells the kernel. */
  readonly apply: (changes: readonly NodeChange[]) => void;
  /** What is to be pushed of the node is another thing than before. */
  readonly toPush: (ino: Inode) => void;
}

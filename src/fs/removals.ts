import type { Inode } from '../base/vocabulary.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { Tree } from '../tree/tree.ts';
import type { Handles } from './handles.ts';
import type { KernelCache } from './kernel-cache.ts';
import type { NodeView } from './node-view.ts';

/**
 * Programs that use what another one removes: a file stays readable, a listing continues, a working directory is empty. Each removal is recorded
 * before it is made, because a successor of this process must know of it.
 */
export class Removals {
  readonly #tree: Tree;
  readonly #handles: Handles;
  readonly #view: NodeView;
  readonly #cache: KernelCache;

  constructor(deps: { tree: Tree; handles: Handles; view: NodeView; cache: KernelCache }) {
    this.#tree = deps.tree;
    this.#handles = deps.handles;
    this.#view = deps.view;
    this.#cache = deps.cache;
  }

  /** The entry is about to lose `name` in `folder`; `isLast`: and gets no other one. `entry`: if the caller has it already. */
  losing(folder: Inode, name: string, isLast: boolean, entry?: NodeRecord): void {
    if (!this.#handles.isRecorded) return;
    const node = entry ?? this.#tree.child(folder, name);
    if (node === undefined) return;
    this.#handles.leaving(folder, node.ino, name);
    if (isLast) this.#view.losing(node);
  }

  /** `entry` lost `name` in `folder`. */
  left(folder: Inode, entry: NodeRecord, name: string): void {
    this.#handles.left(folder, entry.ino, name);
  }

  /** A program removed the last name of a node. */
  lost(removed: NodeRecord): void {
    this.#view.orphan(removed);
    if (removed.kind === 'folder') this.#cache.folderRemoved(removed.ino);
  }
}

import type { Inode } from '../base/vocabulary.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { Handles } from './handles.ts';
import type { KernelCache } from './kernel-cache.ts';
import type { NodeView } from './node-view.ts';

/**
 * Programs that use what another one removes: a file stays readable, a listing continues, a working directory is empty. Each removal is recorded
 * before it is made, because a successor of this process must know of it.
 */
export class Removals {
  readonly #handles: Handles;
  readonly #view: NodeView;
  readonly #cache: KernelCache;

  constructor(deps: { handles: Handles; view: NodeView; cache: KernelCache }) {
    this.#handles = deps.handles;
    this.#view = deps.view;
    this.#cache = deps.cache;
  }

  /** `node` is about to lose its name in `folder`; `isLast`: and gets no other one. */
  losing(folder: Inode, node: NodeRecord | undefined, isLast: boolean): void {
    if (node?.local == null) return;
    this.#handles.leaving(folder, node.ino, node.local.name);
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

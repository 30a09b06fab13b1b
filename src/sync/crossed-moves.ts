import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import { listAnew, upwards, writeNode } from '../store/node-table.ts';
import type { StoreWriter } from '../store/tables.ts';
import { isWithin } from '../tree/live-folder.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { RemoteNaming } from './remote-naming.ts';
import { PATH_NAMES_MAX } from './sync-event.ts';

/**
 * Crossed moves: two folders were moved into each other, one here and one on another client. The service got the other move first and refuses
 * ours. Ours is undone. Both folders keep their contents, and both machines show the same tree.
 */
export class CrossedMoves {
  readonly #deps: CrossedMovesDeps;

  constructor(deps: CrossedMovesDeps) {
    this.#deps = deps;
  }

  /**
   * The remote folders from `target` up to `resource`, both included, if the service has `target` inside `resource`: then `resource` can
   * never be moved there. Otherwise null.
   */
  async wayInside(
    target: ResourceUrl,
    resource: ResourceUrl,
    signal: AbortSignal,
  ): Promise<ReadonlySet<ResourceUrl> | null> {
    const way = new Set<ResourceUrl>();
    for (let at: ResourceUrl | null = target; at !== null && !way.has(at) && way.size < PATH_NAMES_MAX; ) {
      way.add(at);
      if (at === resource) return way;
      at = await this.#parentOf(at, signal);
    }
    return null;
  }

  /**
   * null above the last folder that this user can read: a shared folder names a folder of its owner, and the topmost folder a resource that
   * is no folder.
   */
  async #parentOf(folder: ResourceUrl, signal: AbortSignal): Promise<ResourceUrl | null> {
    try {
      return (await this.#deps.changes.resource(folder, 'folder', signal))?.parent ?? null;
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 429) return null;
      throw error;
    }
  }

  /**
   * Puts the folder back to its remote place, or as near to it as possible. Its remote entries are listed again on the next access. The new
   * parent is never a folder of `inside`, which the service has inside this folder, even if our record says otherwise.
   */
  undoMove(ino: Inode, inside: ReadonlySet<ResourceUrl>): void {
    const { store, naming, clock, onTreeChange } = this.#deps;
    const changes = store.transact((tx): TreeInvalidation[] => {
      const node = tx.get('node', ino);
      if (!node?.local || !node.remote) return [];
      const { local, remote } = node;
      // Skips parents that are deleted or that are inside this folder, here or on the service; then the next folder above is tried.
      let parent = ROOT_INODE;
      for (const at of upwards(tx, remote.parent, 'there')) {
        if (
          at.kind !== 'folder' ||
          at.local === null ||
          isWithin(tx, at.ino, ino) ||
          inside.has(at.remote?.resource as ResourceUrl)
        )
          continue;
        parent = at.ino;
        break;
      }
      const isTaken = (name: string): boolean => tx.get('name', [parent, name]) !== undefined;
      const name = isTaken(remote.shownAs) ? naming.distinct(remote.shownAs, isTaken) : remote.shownAs;
      writeNode(tx, node, { ...node, local: { ...local, parent, name } }, clock.nowMs());
      listAnew(tx, ino);
      return [
        { kind: 'entry', parent: local.parent, name: local.name },
        { kind: 'entry', parent, name },
      ];
    });
    if (changes.length > 0) onTreeChange(changes);
  }
}

export interface CrossedMovesDeps {
  readonly store: StoreWriter;
  readonly naming: RemoteNaming;
  readonly changes: Pick<RemoteChanges, 'resource'>;
  readonly clock: Clock;
  readonly onTreeChange: (changes: readonly TreeInvalidation[]) => void;
}

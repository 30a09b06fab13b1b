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
 * Two folders that were moved into each other, one here, the other elsewhere: the service, which heard of theirs first, refuses
 * ours. Ours gives way. Neither folder loses anything, and both machines show the same.
 */
export class GivingWay {
  readonly #deps: GivingWayDeps;

  constructor(deps: GivingWayDeps) {
    this.#deps = deps;
  }

  /**
   * Whether the service has `target` in `resource` by now, so that `resource` can never go there: the folders from the one to
   * the other, both included; null when it is not so.
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

  /** Null above what may be looked at: a shared folder tells of its owner's, and the topmost of what is no folder. */
  async #parentOf(folder: ResourceUrl, signal: AbortSignal): Promise<ResourceUrl | null> {
    try {
      return (await this.#deps.changes.resource(folder, 'folder', signal))?.parent ?? null;
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 429) return null;
      throw error;
    }
  }

  /**
   * The folder is back where the service has it, or as near to that as users can see; what lies in it there is asked for when it
   * is looked at. Never to a folder that the service has in it (`inside`), whatever we thought.
   */
  undoMove(ino: Inode, inside: ReadonlySet<ResourceUrl>): void {
    const { store, naming, clock, onTreeChange } = this.#deps;
    const changes = store.transact((tx): TreeInvalidation[] => {
      const node = tx.get('node', ino);
      if (!node?.local || !node.remote) return [];
      const { local, remote } = node;
      // Deleted here, or in this one, here or there: then the one above it.
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

export interface GivingWayDeps {
  readonly store: StoreWriter;
  readonly naming: RemoteNaming;
  readonly changes: Pick<RemoteChanges, 'resource'>;
  readonly clock: Clock;
  readonly onTreeChange: (changes: readonly TreeInvalidation[]) => void;
}

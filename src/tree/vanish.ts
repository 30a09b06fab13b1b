import type { Inode } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { NodeChange } from './listing-merge.ts';

/** What is looked at to find out what goes with a resource that is gone. */
export interface VanishView {
  children(parent: Inode): Iterable<NodeRecord>;
  /** Whether a push of the node is under way or of unknown outcome. */
  isBusy(ino: Inode): boolean;
  /** Whether the file is wanted by those who have it open for writing. */
  isBeingWritten(ino: Inode): boolean;
}

export interface VanishPlan {
  /** Children before their folders. */
  readonly changes: readonly NodeChange[];
  /** How many nodes go. */
  readonly removed: number;
  /** False when `removalsMax` was reached: apply, and plan again. */
  readonly complete: boolean;
}

/**
 * The resource of `node` is no longer in our tree on the service: what becomes of the node and of what lies below it. Pure.
 *
 * What was not changed here goes. Bytes that were changed here, or are about to be, are wanted: their file loses its resource, so that
 * it is created again, and so do the folders above it. What exists only here, and what was moved in from elsewhere, stays. Files whose
 * names never travel stay where their folder does.
 */
export function planVanish(view: VanishView, node: NodeRecord, removalsMax: number): VanishPlan {
  const changes: NodeChange[] = [];
  let removed = 0;
  let complete = true;

  const keep = (kept: NodeRecord) => changes.push({ before: kept, after: { ...kept, remote: null } });
  const remove = (gone: NodeRecord) => {
    changes.push({ before: gone, after: { ...gone, local: null, remote: null } });
    removed += 1;
  };

  const isFull = (): boolean => {
    if (removed >= removalsMax) complete = false;
    return !complete;
  };

  /** @returns whether something of it stays */
  const settle = (at: NodeRecord, below: boolean): boolean => {
    if (at.localOnly && below) {
      // Lock and swap files of a folder that goes; folders of such have nothing else in them.
      for (const child of at.kind === 'folder' ? view.children(at.ino) : []) settle(child, true);
      remove(at);
      return false;
    }
    const movedIn = below && at.remote !== null && at.local !== null && at.remote.parent !== at.local.parent;
    if (at.remote === null || movedIn || view.isBusy(at.ino)) return true;
    if (at.kind !== 'folder') {
      if (isContentDirty(at) || view.isBeingWritten(at.ino)) {
        keep(at);
        return true;
      }
      remove(at);
      return false;
    }
    let stays = false;
    const localOnly: NodeRecord[] = [];
    for (const child of view.children(at.ino)) {
      if (child.localOnly) localOnly.push(child);
      else if (!isFull() && settle(child, true)) stays = true;
    }
    if (!stays) for (const child of localOnly) if (!isFull()) settle(child, true);
    if (!complete) return true;
    if (stays) keep(at);
    else remove(at);
    return stays;
  };

  settle(node, false);
  return { changes, removed, complete };
}

import { type Inode, isSpecial } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { NodeChange } from './listing-merge.ts';
import { Names } from './names.ts';

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
 * it is created again, and so do the folders above it. What exists only here, and what was moved in from elsewhere, stays.
 *
 * Files that stay local go with their folder when a built-in pattern matches their name (lock files, swap files, litter of desktops) and they
 * are short. Others exist on this machine only and may be wanted: they keep their folder, which becomes a local one.
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

  /** @returns whether something of what exists on this machine only stays */
  const settleLocal = (at: NodeRecord, isLitter: boolean): boolean => {
    // FIFOs and sockets hold no bytes.
    const litter = isLitter || isSpecial(at.kind) || BUILT_IN.staysLocal(at.local?.name ?? '');
    let stays = at.kind !== 'folder' && !(litter && (at.local?.sizeBytes ?? 0) <= LITTER_BYTES_MAX);
    for (const child of at.kind === 'folder' ? view.children(at.ino) : [])
      if (!isFull() && settleLocal(child, litter)) stays = true;
    if (!stays && complete) remove(at);
    return stays;
  };

  /** What of a node stays: to be made anew on the service, or on this machine only. */
  type Left = 'wanted' | 'local' | null;

  const settle = (at: NodeRecord, below: boolean): Left => {
    if (at.localOnly && below) return settleLocal(at, false) ? 'local' : null;
    const movedIn = below && at.remote !== null && at.local !== null && at.remote.parent !== at.local.parent;
    if (at.remote === null || movedIn || view.isBusy(at.ino)) return 'wanted';
    if (at.kind !== 'folder') {
      if (isContentDirty(at) || view.isBeingWritten(at.ino)) {
        keep(at);
        return 'wanted';
      }
      remove(at);
      return null;
    }
    let left: Left = null;
    const localOnly: NodeRecord[] = [];
    for (const child of view.children(at.ino)) {
      if (child.localOnly) localOnly.push(child);
      else if (!isFull()) {
        const below = settle(child, true);
        left = below === 'wanted' ? below : (left ?? below);
      }
    }
    if (left !== 'wanted') for (const child of localOnly) if (!isFull()) left = settle(child, true) ?? left;
    if (!complete) return 'wanted';
    if (left === 'wanted') keep(at);
    else if (left === 'local') changes.push({ before: at, after: { ...at, localOnly: true, remote: null } });
    else remove(at);
    return left;
  };

  settle(node, false);
  return { changes, removed, complete };
}

const BUILT_IN = new Names();
/** Longer than any lock file; a swap file of this length holds somebody's text. */
const LITTER_BYTES_MAX = 64 * 1024;

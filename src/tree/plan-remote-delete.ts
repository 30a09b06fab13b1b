import { type Inode, isSpecial } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { NodeChange } from './listing-merge.ts';
import { Names } from './names.ts';

/** The state that decides about the removal of a deleted resource's nodes. */
export interface RemoteDeleteView {
  children(parent: Inode): Iterable<NodeRecord>;
  /** Whether a push of the node is in progress or its outcome unknown. */
  isBusy(ino: Inode): boolean;
  /** Whether the file is open for writing and must be kept. */
  isBeingWritten(ino: Inode): boolean;
}

export interface RemoteDeletePlan {
  /** Children before their folders. */
  readonly changes: readonly NodeChange[];
  /** Number of nodes removed. */
  readonly removed: number;
  /** False when `removalsMax` was reached: apply, and plan again. */
  readonly complete: boolean;
}

/**
 * Plans the removal of `node`, whose resource is no longer in the mounted tree, and of its descendants. Pure.
 *
 * Unchanged nodes are removed. Files with local changes, made or being made, are wanted: they and their ancestors lose
 * their resources, so that they are recreated. Nodes that exist only here, and nodes moved in from elsewhere, stay.
 *
 * Local-only files are removed with their folder if they are short and a built-in pattern matches their name (lock
 * files, swap files, desktop metadata). Other local-only files exist nowhere else and may be wanted: their folder
 * stays, and becomes a local one.
 */
export function planRemoteDelete(view: RemoteDeleteView, node: NodeRecord, removalsMax: number): RemoteDeletePlan {
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

  /** @returns whether any local-only node stays */
  const settleLocal = (at: NodeRecord, isLitter: boolean): boolean => {
    // FIFOs and sockets hold no bytes.
    const litter = isLitter || isSpecial(at.kind) || BUILT_IN.staysLocal(at.local?.name ?? '');
    let stays = at.kind !== 'folder' && !(litter && (at.local?.sizeBytes ?? 0) <= LITTER_BYTES_MAX);
    for (const child of at.kind === 'folder' ? view.children(at.ino) : [])
      if (!isFull() && settleLocal(child, litter)) stays = true;
    if (!stays && complete) remove(at);
    return stays;
  };

  /** Why a node stays: to be recreated on the service, or as a local-only one. */
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
/** Longer than any lock file; a longer swap file contains user data. */
const LITTER_BYTES_MAX = 64 * 1024;

import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import { ifSound, isContentDirty, soundNode } from '../store/node-table.ts';
import type { NodeRecord, ParkReason, StoreReader } from '../store/tables.ts';

/** An action or failure of the sync, for a person to read. Paths are relative to the mount's root. */
export type SyncEvent =
  | { readonly type: 'uploaded'; readonly path: string; readonly version: number | null; readonly sizeBytes: number }
  | { readonly type: 'folder-created'; readonly path: string }
  | { readonly type: 'renamed'; readonly from: string; readonly to: string }
  | { readonly type: 'deleted'; readonly path: string; readonly to: 'trash' | 'forever'; readonly url: ResourceUrl }
  | { readonly type: 'conflict'; readonly path: string; readonly copy: string }
  | { readonly type: 'parked'; readonly path: string; readonly reason: ParkReason }
  /** Removals that wait for a person's decision; `nodes` as in `HeldRemoval`. */
  | { readonly type: 'held-back'; readonly path: string; readonly nodes: number }
  /** The service has lost the newest version; `copy` is null if not all of its bytes were cached. */
  | { readonly type: 'taken-back'; readonly path: string; readonly copy: string | null }
  | { readonly type: 'paused'; readonly untilMs: number | null }
  | { readonly type: 'resumed' };

export type ChangeKind = 'upload' | 'create-folder' | 'rename' | 'delete';

/** A change that waits for its push or is being pushed. */
export interface PendingChange {
  readonly ino: Inode;
  readonly kind: ChangeKind;
  readonly sizeBytes: number | null;
  /** Wall clock, ms: the moment of the next attempt; null if the change only waits for its turn. */
  readonly dueMs: number | null;
  /** Consecutive failures. */
  readonly attempts: number;
}

/** A change that no retry can help. It is kept until a person acts. */
export interface ParkedChange {
  readonly ino: Inode;
  readonly path: string;
  readonly kind: ChangeKind;
  readonly reason: ParkReason;
  readonly detail: string;
  /** Wall clock, ms. */
  readonly atMs: number;
}

/** A change that is not on the service yet: pending or parked. */
export type WaitingChange =
  | { readonly pending: PendingChange; readonly parked?: never }
  | { readonly parked: ParkedChange; readonly pending?: never };

/** The state of the sync as a whole. */
export interface SyncStatus {
  /** Nodes that differ from the service, parked ones included. */
  readonly pending: number;
  /** Running pushes. */
  readonly pushing: number;
  /** Failed pushes that were put off, since the start. */
  readonly postponed: number;
  readonly parked: readonly ParkedChange[];
}

/** The path of an entry in a folder (`pathOf`). */
export function pathIn(
  store: StoreReader,
  { parent, name }: { readonly parent: Inode; readonly name: string },
): string {
  const folder = pathOf(store, parent);
  return folder === '' ? name : `${folder}/${name}`;
}

/** The kind of change of a dirty node, in one word. */
export function changeKindOf(node: NodeRecord): ChangeKind {
  if (node.local === null) return 'delete';
  if (node.kind === 'folder') return node.remote === null ? 'create-folder' : 'rename';
  return isContentDirty(node) || node.remote === null ? 'upload' : 'rename';
}

export function parkedChange(
  store: StoreReader,
  ino: Inode,
  parked: { readonly reason: ParkReason; readonly detail: string; readonly atMs: number },
): ParkedChange {
  const node = soundNode(store, ino);
  return { ino, path: pathOf(store, ino), kind: node === undefined ? 'upload' : changeKindOf(node), ...parked };
}

/**
 * The path of a node: by its local facet, or by the remote one if the node was deleted here. `a/b`; empty for the root. A damaged node has no
 * name and is shown by its inode.
 */
export function pathOf(store: StoreReader, ino: Inode): string {
  const names: string[] = [];
  for (let at = ino; names.length < PATH_NAMES_MAX; ) {
    const place = placeIn(store, at);
    if (place === null) break;
    names.push(place.name);
    if (place.parent === null) break;
    at = place.parent;
  }
  return names.reverse().join('/');
}

/** null for the root, and for a node that does not exist. */
function placeIn(store: StoreReader, ino: Inode): { readonly name: string; readonly parent: Inode | null } | null {
  const read = ifSound(() => ({ node: store.get('node', ino) }));
  if (read === undefined) return { name: `inode ${ino}`, parent: null };
  const { node } = read;
  const parent = node?.local?.parent ?? node?.remote?.parent ?? ino;
  // The root of a local trash is its own parent and has a name.
  if (parent === ino) return node?.local?.name ? { name: node.local.name, parent: null } : null;
  return { name: node?.local?.name ?? node?.remote?.shownAs ?? '', parent };
}

/** Deeper than any path of a kernel (PATH_MAX 4096). Bounds a loop in damaged records. */
export const PATH_NAMES_MAX = 4096;

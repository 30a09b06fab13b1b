import type { Inode } from '../base/vocabulary.ts';
import { isContentDirty, isMoved } from '../store/node-table.ts';
import type { DirtyRecord, LocalFacet, NodeRecord, RemoteFacet } from '../store/tables.ts';
import { isBackupName } from '../tree/vacated-names.ts';

/**
 * Compares the local state with the last known state of the service, and decides the next step that the service accepts. Pure: it reads a
 * view and changes nothing. After a step, the caller asks again. A decision reads one dirty node and the nodes in its way, so that its cost
 * depends on the dirty nodes around it, not on the size of the tree.
 *
 * Order:
 *
 *  - A folder is created before its entries.
 *  - Entries that move out of a folder leave it before the folder is deleted.
 *  - A name becomes free before another node gets it. If the wait chain for the name is a cycle (a swap, a file that becomes the folder that
 *   contained it), the node in the way gets a temporary name first.
 *  - A folder never moves into itself: folders between the two move out first.
 */

/** A step that needs a request. `ino` is the node that it changes. */
export type Action =
  /** Recovers the intent of a push whose response was lost: completes or ends it. */
  | { readonly type: 'recover'; readonly ino: Inode }
  | { readonly type: 'create-folder'; readonly ino: Inode; readonly parent: Inode; readonly name: string }
  /** Creates the file and sends its bytes. */
  | { readonly type: 'create-file'; readonly ino: Inode; readonly parent: Inode; readonly name: string }
  /** Uploads the present bytes as the next version. */
  | { readonly type: 'upload'; readonly ino: Inode }
  | {
      readonly type: 'relocate';
      readonly ino: Inode;
      readonly parent: Inode;
      /** File name; null: a temporary name, because the node is in the way of another. */
      readonly name: string | null;
    }
  /** Deletes a resource, a folder with everything below it. `below`: the nodes of this mount in that folder, all of them deleted here. */
  | { readonly type: 'delete'; readonly ino: Inode; readonly below: readonly Inode[] };

export type Decision =
  | { readonly type: 'push'; readonly action: Action }
  /**
   * A save: the bytes of `ino` become the next version of the file that `from` was. The file keeps its history and its remote name. The two
   * nodes exchange their remote facets in one record, without a request.
   */
  | { readonly type: 'transfer'; readonly ino: Inode; readonly from: Inode }
  /** The folder cannot be moved to the trash whole: its entries are deleted one by one. */
  | { readonly type: 'split'; readonly ino: Inode }
  /** Plan again when the push of that node has ended or its record changed. */
  | {
      readonly type: 'wait';
      readonly for: Inode;
      readonly because: 'parent' | 'name' | 'below' | 'above' | 'bytes' | 'push';
    }
  /** The push of `ino` sends bytes to a file that was removed since: abort it. Plan again when it has ended. */
  | { readonly type: 'end'; readonly ino: Inode }
  /** Plan again at that moment (by `elapsedMs`): the node is in its settle delay or back-off. */
  | { readonly type: 'settle'; readonly untilMs: number }
  /** Plan again after the last release: the file is open. */
  | { readonly type: 'open' }
  /** Nothing to push, or parked. */
  | { readonly type: 'nothing' };

/** The state that decisions read. A place is a folder inode and a remote name. */
export interface PlanView {
  /** By the wall clock. */
  readonly nowMs: number;
  /** By the monotonic clock, as is `settledMs`. */
  readonly elapsedMs: number;
  /** Maximum age of a file that was created here and counts as a save when it is renamed over another one, ms. */
  readonly saveWindowMs: number;
  readonly deletion: 'trash' | 'forever';
  node(ino: Inode): NodeRecord | undefined;
  /** The node whose local facet has that name. */
  child(parent: Inode, name: string): NodeRecord | undefined;
  dirty(ino: Inode): DirtyRecord | undefined;
  /** The end of the node's settle delay, in the past if it has none. */
  settledMs(ino: Inode): number;
  /** The end of the node's back-off, in the past if it has none. */
  triedMs(ino: Inode): number;
  /** The node whose push works for this one: itself, or one over which this one was renamed during the push; null for none. */
  pusherOf(ino: Inode): Inode | null;
  /** Whether the node's intent sends a version to the resource that the node has. */
  sendsVersion(ino: Inode): boolean;
  /** Whether the node has an intent with an unknown outcome: its remote facet may be wrong. */
  isUnsure(ino: Inode): boolean;
  /** The new file that is about to take over the resource of this node, whose rename was pushed (`sync/takeover`); null for none. */
  claimant(node: NodeRecord): Inode | null;
  /** Dirty nodes at a place on the service, and nodes that an open intent may have put there. */
  occupants(parent: Inode, remoteName: string): Iterable<Inode>;
  /** Dirty nodes in a folder on the service, and nodes that an open intent may have put there. */
  remoteChildren(folder: Inode): Iterable<Inode>;
  /** A dirty node whose draft, or the base of whose draft, is the bytes that a deletion of `deleted` removes; null for none. */
  whoNeeds(deleted: RemoteFacet): Inode | null;
  /** Whether a handle of the node is open. */
  isOpen(ino: Inode): boolean;
  /** Whether an open handle has written, or may write. Partly written files are never pushed. */
  isBeingWritten(ino: Inode): boolean;
  isSplit(folder: Inode): boolean;
  /**
   * The node because of which the service refused `ino` a name, although the two names differ slightly; null for none, or if that node stays.
   */
  refusedBy(ino: Inode): Inode | null;
  /** Whether a folder stands for the trash of the service (`store/local-trash`). */
  isTrash(folder: Inode): boolean;
  /** The remote name for a file name. */
  remoteName(fileName: string): string;
}

const NOTHING: Decision = { type: 'nothing' };
const OPEN: Decision = { type: 'open' };

/** The next step for one dirty node. It may concern another node that is in the way. For a cycle of waiting nodes: `wayOut`. */
export function decide(ino: Inode, view: PlanView): Decision {
  const decision = step(ino, view);
  if (decision.type !== 'wait' || decision.because !== 'name') return decision;
  // A deleted file that is still open keeps its resource until its last release, but not its name.
  const keepsName = view.node(decision.for)?.local === null && step(decision.for, view).type === 'open';
  return (keepsName ? asideOf(decision.for, view) : null) ?? decision;
}

/**
 * The step that opens a cycle of waiting nodes: one of them leaves its name for a temporary one.
 *
 * @param ring each node waits for the next one, the last for the first
 * @returns null if one of them no longer waits for the next one, or none waits for a name
 */
export function wayOut(ring: readonly Inode[], view: PlanView): Decision | null {
  let way: Decision | null = null;
  for (const [at, ino] of ring.entries()) {
    const decision = step(ino, view);
    if (decision.type !== 'wait' || decision.for !== ring[(at + 1) % ring.length]) return null;
    if (decision.because === 'name') way ??= asideOf(decision.for, view);
  }
  return way;
}

/** null for a node that the service does not have. */
function asideOf(ino: Inode, view: PlanView): Decision | null {
  const remote = view.node(ino)?.remote;
  return remote ? { type: 'push', action: { type: 'relocate', ino, parent: remote.parent, name: null } } : null;
}

/** `decide` without temporary names: a node in the way is waited for. */
function step(ino: Inode, view: PlanView): Decision {
  const pusher = view.pusherOf(ino);
  if (pusher !== null) {
    const isVoid = view.sendsVersion(ino) && isRemoved(ino, view);
    return isVoid ? { type: 'end', ino: pusher } : { type: 'wait', for: pusher, because: 'push' };
  }
  const dirty = view.dirty(ino);
  if (dirty !== undefined && dirty.parked !== null) return NOTHING;
  if (view.isUnsure(ino)) {
    const triedMs = view.triedMs(ino);
    if (triedMs > view.elapsedMs) return { type: 'settle', untilMs: triedMs };
    return { type: 'push', action: { type: 'recover', ino } };
  }
  if (dirty === undefined) return NOTHING;
  // Read only here: the row of a parked node may be damaged.
  const node = view.node(ino);
  if (node === undefined) return NOTHING;
  const settledMs = view.settledMs(ino);
  if (settledMs > view.elapsedMs) return { type: 'settle', untilMs: settledMs };
  const claimant = view.claimant(node);
  if (claimant !== null) return { type: 'wait', for: claimant, because: 'push' };

  const away = stepOfVacatedName(node, view);
  if (away !== null) return away;
  if (node.local === null) {
    if (node.remote === null) return NOTHING;
    return node.kind === 'folder' ? stepOfDeletedFolder(node, view) : stepOfDeletedFile(node, node.remote, view);
  }
  if (node.remote === null) return stepOfNew(node, node.local, view);
  if (isMoved(node.local, node.remote)) return stepOfMoved(node, node.local, node.remote, view);
  if (isContentDirty(node) && node.local.content !== null) {
    return view.isBeingWritten(ino) ? OPEN : { type: 'push', action: { type: 'upload', ino } };
  }
  return NOTHING;
}

/**
 * Whether the file is removed and no save of it can follow. A new file that has its name at the end of the settle delay is a save of it. A
 * save does not cancel an upload that has begun: its bytes become a version.
 */
function isRemoved(ino: Inode, view: PlanView): boolean {
  const node = view.node(ino);
  if (!node?.remote || node.local !== null || view.settledMs(ino) > view.elapsedMs) return false;
  const holder = view.child(node.remote.parent, node.remote.shownAs);
  return holder === undefined || holder.kind !== 'file' || holder.remote !== null;
}

function stepOfNew(node: NodeRecord, local: LocalFacet, view: PlanView): Decision {
  const { ino } = node;
  const parent = readyParent(local.parent, view);
  if (parent !== null) return parent;
  const place = placeIsFree(node, local, view);
  if (place !== null) return place;
  const action = { ino, parent: local.parent, name: local.name } as const;
  if (node.kind === 'folder') return { type: 'push', action: { type: 'create-folder', ...action } };
  if (view.isBeingWritten(ino)) return OPEN;
  return { type: 'push', action: { type: 'create-file', ...action } };
}

function stepOfMoved(node: NodeRecord, local: LocalFacet, remote: RemoteFacet, view: PlanView): Decision {
  // The trash takes any number of equal names.
  if (view.isTrash(local.parent))
    return { type: 'push', action: { type: 'relocate', ino: node.ino, parent: local.parent, name: local.name } };
  const parent = readyParent(local.parent, view);
  if (parent !== null) return parent;
  if (node.kind === 'folder' && local.parent !== remote.parent) {
    const above = outOfItself(node.ino, local.parent, view);
    if (above !== null) return above;
  }
  const place = placeIsFree(node, local, view);
  if (place !== null) return place;
  return { type: 'push', action: { type: 'relocate', ino: node.ino, parent: local.parent, name: local.name } };
}

/** null if the service has the folder. */
function readyParent(parent: Inode, view: PlanView): Decision | null {
  const node = view.node(parent);
  if (node?.remote) return null;
  return { type: 'wait', for: parent, because: 'parent' };
}

/**
 * null if no dirty node of ours occupies the name on the service, or a name that the service takes for the same one. Clean nodes have other
 * names.
 */
function placeIsFree(node: NodeRecord, local: LocalFacet, view: PlanView): Decision | null {
  for (const other of view.occupants(local.parent, view.remoteName(local.name))) {
    if (other === node.ino) continue;
    const occupant = view.node(other);
    if (occupant !== undefined && isSave(node, occupant, view)) {
      const settledMs = view.settledMs(other);
      if (settledMs > view.elapsedMs) return { type: 'settle', untilMs: settledMs };
      return { type: 'transfer', ino: node.ino, from: other };
    }
    return { type: 'wait', for: other, because: 'name' };
  }
  const holder = leavingHolder(node.ino, view);
  return holder === null ? null : { type: 'wait', for: holder, because: 'name' };
}

/**
 * The node because of which `ino` was refused a name, if it leaves that name without a person's action: it is about to move or to be deleted.
 * null for none.
 */
export function leavingHolder(ino: Inode, view: PlanView): Inode | null {
  const holder = view.refusedBy(ino);
  const node = holder === null ? undefined : view.node(holder);
  if (holder === null || !node?.remote || view.dirty(holder)?.parked !== null) return null;
  return node.local === null || isMoved(node.local, node.remote) ? holder : null;
}

/** null if the move would not put the folder into itself on the service. */
function outOfItself(ino: Inode, target: Inode, view: PlanView): Decision | null {
  let firstMover: Inode | null = null;
  const seen = new Set<Inode>();
  for (let at = target; ; ) {
    if (at === ino) return firstMover === null ? null : { type: 'wait', for: firstMover, because: 'above' };
    const node = view.node(at);
    if (!node?.remote) return null;
    // The remote place of that folder is uncertain: its push has to end first.
    if (isUncertain(at, view)) return { type: 'wait', for: at, because: 'above' };
    if (firstMover === null && node.local?.parent !== node.remote.parent) firstMover = at;
    // The remote parents form a loop in our records. A listing will correct them.
    if (seen.has(node.remote.parent)) return null;
    seen.add(at);
    at = node.remote.parent;
  }
}

/**
 * A deleted or moved file whose name another file got. Programs save in this way: vim and emacs rename the old file away, others delete it.
 * `tree/ownership-transfer` handles it when the name changes. This handles the case that the old file was being pushed at that moment.
 */
function stepOfVacatedName(node: NodeRecord, view: PlanView): Decision | null {
  const { remote, local } = node;
  if (remote === null || node.kind !== 'file') return null;
  if (local !== null && !isMoved(local, remote)) return null;
  const save = view.child(remote.parent, remote.shownAs);
  if (save === undefined || save.ino === node.ino || !isSave(save, node, view)) return null;
  return { type: 'transfer', ino: save.ino, from: node.ino };
}

/** Whether `save`, which has the name now, is a save of the file that `old` is on the service. */
function isSave(save: NodeRecord, old: NodeRecord, view: PlanView): boolean {
  if (save.kind !== 'file' || old.kind !== 'file' || save.localOnly || old.remote === null || save.local === null)
    return false;
  if (view.dirty(save.ino)?.parked !== null || view.dirty(old.ino)?.parked !== null) return false;
  if (isUncertain(save.ino, view) || isUncertain(old.ino, view)) return false;
  if (!isNewHere(save, view)) return false;
  const apartMs = Math.abs((view.dirty(old.ino)?.sinceMs ?? 0) - (view.dirty(save.ino)?.sinceMs ?? 0));
  if (apartMs > VACATED_MAX_MS) return false;
  if (old.local === null) return true;
  // A file that was renamed away becomes a new file. Without a content of its own, it would lose its bytes with its resource.
  if (save.remote !== null || old.local.content === null) return false;
  return old.local.parent === save.local.parent && isBackupName(old.local.name, save.local.name);
}

/** Maximum time between the two changes of a name by a save, ms. */
const VACATED_MAX_MS = 2_000;

function isNewHere(node: NodeRecord, view: PlanView): boolean {
  if (node.remote === null) return true;
  if (node.local === null || !isMoved(node.local, node.remote)) return false;
  const { createdHereMs } = node.remote;
  return createdHereMs !== null && view.nowMs - createdHereMs <= view.saveWindowMs;
}

function stepOfDeletedFile(node: NodeRecord, remote: RemoteFacet, view: PlanView): Decision {
  if (goesWithFolder(remote, view)) return { type: 'wait', for: remote.parent, because: 'below' };
  if (view.isOpen(node.ino)) return OPEN;
  // The resource was given up for another one during a save. Its bytes exist nowhere else on the service until they are pushed there.
  const needing = view.whoNeeds(remote);
  if (needing !== null && needing !== node.ino) return { type: 'wait', for: needing, because: 'bytes' };
  return { type: 'push', action: { type: 'delete', ino: node.ino, below: [] } };
}

function stepOfDeletedFolder(node: NodeRecord, view: PlanView): Decision {
  const { ino, remote } = node;
  if (remote === null) return NOTHING;
  if (goesWithFolder(remote, view)) return { type: 'wait', for: remote.parent, because: 'below' };
  if (view.deletion === 'forever' || view.isSplit(ino)) {
    // A permanent deletion, or a folder with entries that must not be deleted: our known entries are deleted first.
    for (const child of view.remoteChildren(ino)) return { type: 'wait', for: child, because: 'below' };
    return { type: 'push', action: { type: 'delete', ino, below: [] } };
  }
  const below: Inode[] = [];
  const folders = [ino];
  const seen = new Set<Inode>(folders);
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const child of view.remoteChildren(folder)) {
      if (seen.has(child)) continue;
      seen.add(child);
      const inside = view.node(child);
      if (view.dirty(child)?.parked != null) return { type: 'split', ino };
      if (isUncertain(child, view)) return { type: 'wait', for: child, because: 'below' };
      if (inside === undefined) continue;
      if (view.isOpen(child)) return { type: 'split', ino };
      if (inside.local !== null) return { type: 'wait', for: child, because: 'below' };
      below.push(child);
      if (inside.kind === 'folder') folders.push(child);
    }
  }
  return { type: 'push', action: { type: 'delete', ino, below } };
}

/** Whether the node's folder is deleted too, so that its deletion includes the node. */
function goesWithFolder(remote: RemoteFacet, view: PlanView): boolean {
  const folder = view.node(remote.parent);
  if (folder === undefined || folder.local !== null || folder.remote === null) return false;
  if (view.deletion === 'forever') return false;
  return !view.isSplit(remote.parent) && view.dirty(remote.parent)?.parked === null;
}

/** Whether the remote facet may differ from the service. */
function isUncertain(ino: Inode, view: PlanView): boolean {
  return view.pusherOf(ino) !== null || view.isUnsure(ino);
}

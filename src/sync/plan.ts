import type { Inode } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { DirtyRecord, LocalFacet, NodeRecord, RemoteFacet } from '../store/tables.ts';

/**
 * From what is here and what the service was last seen to have, the next steps that the service accepts. Pure: it reads a
 * view, it decides, it changes nothing; whoever carries a step out asks again afterwards. Every decision looks at one dirty
 * node and those that stand in its way, so a change costs what is dirty around it, never the size of the tree.
 *
 * Order: a parent before what lies in it · what leaves a folder before the folder's deletion · a name is free before it is
 * given again; when the way to that leads back to whom it blocks (a swap, a cycle, a file that becomes the folder it lies
 * in) the one in the way goes to a temporary name first · a folder never into itself: what lies between moves out before.
 */

/** A step that the service takes part in. `ino` is whom it changes. */
export type Action =
  /** Finds out what a push did whose answer never came, and finishes or forgets it. */
  | { readonly type: 'find-out'; readonly ino: Inode }
  | { readonly type: 'create-folder'; readonly ino: Inode; readonly parent: Inode; readonly name: string }
  /** Makes the file and sends its bytes. */
  | { readonly type: 'create-file'; readonly ino: Inode; readonly parent: Inode; readonly name: string }
  /** Makes the bytes that are here the next version. */
  | { readonly type: 'upload'; readonly ino: Inode }
  | {
      readonly type: 'relocate';
      readonly ino: Inode;
      readonly parent: Inode;
      /** File name; null: a temporary one, to be out of the way. */
      readonly name: string | null;
    }
  /** Deletes a resource; of a folder everything below it, `below` being what this mount knows to lie there (all deleted here). */
  | { readonly type: 'delete'; readonly ino: Inode; readonly below: readonly Inode[] };

export type Decision =
  | { readonly type: 'push'; readonly action: Action }
  /**
   * A save: the bytes of `ino` become the next version of the file that `from` was, so its history goes on under its name.
   * Their remote facets change places, in one record, without the service.
   */
  | { readonly type: 'inherit'; readonly ino: Inode; readonly from: Inode }
  /** The folder cannot go to the trash in one piece: what lies in it goes one by one. */
  | { readonly type: 'split'; readonly ino: Inode }
  /** Decide again when that node's push ended or its record changed. */
  | {
      readonly type: 'wait';
      readonly for: Inode;
      readonly because: 'parent' | 'name' | 'below' | 'above' | 'bytes' | 'push';
    }
  /** The push of `ino` sends bytes to a file that was removed since: end it. Decide again when it ended. */
  | { readonly type: 'end'; readonly ino: Inode }
  /** Decide again at that moment (of `elapsedMs`): it was changed, or tried, a moment ago. */
  | { readonly type: 'settle'; readonly untilMs: number }
  /** Decide again after the last release: it is open. */
  | { readonly type: 'open' }
  /** Nothing to push (any more), or parked. */
  | { readonly type: 'nothing' };

/** What is read to decide. Places are (folder, name), by inode and by the name that the service has. */
export interface PlanView {
  /** By the wall. */
  readonly nowMs: number;
  /** By the clock that never jumps; `settledMs` is of this one. */
  readonly elapsedMs: number;
  /** How long ago a file may have been made here that, renamed over another, counts as a save of it, ms. */
  readonly saveWindowMs: number;
  readonly deletion: 'trash' | 'forever';
  node(ino: Inode): NodeRecord | undefined;
  /** The node whose local facet has that name. */
  child(parent: Inode, name: string): NodeRecord | undefined;
  dirty(ino: Inode): DirtyRecord | undefined;
  /** When the node has been left alone for long enough; in the past for one that does not wait. */
  settledMs(ino: Inode): number;
  /** Until when the node is not tried again because of its failures; in the past for one that may be. */
  triedMs(ino: Inode): number;
  /** Whether a push of the node is under way. */
  isPushing(ino: Inode): boolean;
  /** Whose push is sending a version to the resource of this node: its own, or that of its predecessor. Null for none. */
  senderTo(ino: Inode): Inode | null;
  /** Whether a push of the node was begun whose outcome is not known: its remote facet may be wrong. */
  isUnsure(ino: Inode): boolean;
  /** The push of another node goes on for this one, which was renamed over it or took its resource over; null for none. */
  predecessor(ino: Inode): Inode | null;
  /** Dirty nodes that the service has at a place, and those that a push under way or unsure may have put there. */
  occupants(parent: Inode, remoteName: string): Iterable<Inode>;
  /** Dirty nodes that the service has in a folder, and those that a push under way or unsure may have put there. */
  remoteChildren(folder: Inode): Iterable<Inode>;
  /** A dirty node whose bytes are to be pushed and lie in, or over, what a deletion of this one takes away; null for none. */
  whoNeeds(deleted: RemoteFacet): Inode | null;
  /** Whether a handle of the node is open. */
  isOpen(ino: Inode): boolean;
  /** Whether a handle that is open has written, or may: half a file is never pushed. */
  isBeingWritten(ino: Inode): boolean;
  isSplit(folder: Inode): boolean;
  /** Because of whom the service refused `ino` a name that is not quite the same as that one's, which is to leave it; null for none. */
  refusedBy(ino: Inode): Inode | null;
  /** The name under which a file name travels. */
  remoteName(fileName: string): string;
}

const NOTHING: Decision = { type: 'nothing' };
const OPEN: Decision = { type: 'open' };

/**
 * What to do about one dirty node. A step may be about another node that stands in its way.
 *
 * @param ending those of which is known already that who they wait for, and so on, comes to an end: of thousands in a row (names that move up
 * by one) each would look at all others. Good for as long as the view is the same
 */
export function decide(ino: Inode, view: PlanView, ending: Set<Inode> = new Set()): Decision {
  const decision = step(ino, view);
  if (decision.type !== 'wait' || decision.because !== 'name') return decision;
  const blocker = decision.for;
  if (!mustGiveWay(ino, blocker, view, ending)) return decision;
  const remote = view.node(blocker)?.remote;
  if (!remote) return decision;
  return { type: 'push', action: { type: 'relocate', ino: blocker, parent: remote.parent, name: null } };
}

/** Whether `blocker`, which has the name that `ino` is to get, cannot leave it by itself soon. */
function mustGiveWay(ino: Inode, blocker: Inode, view: PlanView, ending: Set<Inode>): boolean {
  const seen = new Set<Inode>();
  for (let at = blocker; !seen.has(at); ) {
    seen.add(at);
    const next = step(at, view);
    // A deleted file that is still open keeps its resource until its last release, not its name.
    if (next.type === 'open' && at === blocker && view.node(at)?.local === null) return true;
    if (next.type === 'wait' && next.for === ino) return true;
    // Waiting for its own push to end, it waits for nobody.
    if (next.type !== 'wait' || next.for === at || ending.has(next.for)) {
      for (const one of seen) ending.add(one);
      return false;
    }
    at = next.for;
  }
  return false;
}

/** `decide` without the way out of cycles: who stands in the way is waited for. */
function step(ino: Inode, view: PlanView): Decision {
  const dirty = view.dirty(ino);
  const sender = view.senderTo(ino);
  if (sender !== null && isRemoved(ino, view)) return { type: 'end', ino: sender };
  if (view.isPushing(ino)) return { type: 'wait', for: ino, because: 'push' };
  const predecessor = view.predecessor(ino);
  if (predecessor !== null) return { type: 'wait', for: predecessor, because: 'push' };
  if (dirty !== undefined && dirty.parked !== null) return NOTHING;
  if (view.isUnsure(ino)) {
    const triedMs = view.triedMs(ino);
    if (triedMs > view.elapsedMs) return { type: 'settle', untilMs: triedMs };
    return { type: 'push', action: { type: 'find-out', ino } };
  }
  if (dirty === undefined) return NOTHING;
  // Not before: of what is parked the row may be damaged.
  const node = view.node(ino);
  if (node === undefined) return NOTHING;
  const settledMs = view.settledMs(ino);
  if (settledMs > view.elapsedMs) return { type: 'settle', untilMs: settledMs };

  if (node.local === null) {
    if (node.remote === null) return NOTHING;
    return node.kind === 'folder' ? stepOfDeletedFolder(node, view) : stepOfDeletedFile(node, node.remote, view);
  }
  const away = stepOfVacatedName(node, view);
  if (away !== null) return away;
  if (node.remote === null) return stepOfNew(node, node.local, view);
  if (isMoved(node.local, node.remote)) return stepOfMoved(node, node.local, node.remote, view);
  if (isContentDirty(node) && node.local.content !== null) {
    return view.isBeingWritten(ino) ? OPEN : { type: 'push', action: { type: 'upload', ino } };
  }
  return NOTHING;
}

/**
 * Whether the file was removed, and for good: a new file that has its name by the end of the settle time is a save of it. What a save
 * replaces is a version as soon as its upload has begun.
 */
function isRemoved(ino: Inode, view: PlanView): boolean {
  const node = view.node(ino);
  if (!node?.remote || node.local !== null || view.settledMs(ino) > view.elapsedMs) return false;
  const heir = view.child(node.remote.parent, node.remote.shownAs);
  return heir === undefined || heir.kind !== 'file' || heir.remote !== null;
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

/** Null when the service has the folder. */
function readyParent(parent: Inode, view: PlanView): Decision | null {
  const node = view.node(parent);
  if (node?.remote) return null;
  return { type: 'wait', for: parent, because: 'parent' };
}

/**
 * Null when no dirty node of ours has the name on the service, or one that it takes for the same. Those that are clean have other names.
 */
function placeIsFree(node: NodeRecord, local: LocalFacet, view: PlanView): Decision | null {
  for (const other of view.occupants(local.parent, view.remoteName(local.name))) {
    if (other === node.ino) continue;
    const occupant = view.node(other);
    if (occupant !== undefined && isSave(node, occupant, view)) {
      const settledMs = view.settledMs(other);
      if (settledMs > view.elapsedMs) return { type: 'settle', untilMs: settledMs };
      return { type: 'inherit', ino: node.ino, from: other };
    }
    return { type: 'wait', for: other, because: 'name' };
  }
  const holder = leavingHolder(node.ino, view);
  return holder === null ? null : { type: 'wait', for: holder, because: 'name' };
}

/**
 * Because of whom `ino` was refused a name, where the service has that one there for now only: it is to be elsewhere, or gone, and no person
 * is waited for. Null for none.
 */
export function leavingHolder(ino: Inode, view: PlanView): Inode | null {
  const holder = view.refusedBy(ino);
  const node = holder === null ? undefined : view.node(holder);
  if (holder === null || !node?.remote || view.dirty(holder)?.parked !== null) return null;
  return node.local === null || isMoved(node.local, node.remote) ? holder : null;
}

/** Null when the service would not be asked to put a folder into itself. */
function outOfItself(ino: Inode, target: Inode, view: PlanView): Decision | null {
  let firstMover: Inode | null = null;
  const seen = new Set<Inode>();
  for (let at = target; ; ) {
    if (at === ino) return firstMover === null ? null : { type: 'wait', for: firstMover, because: 'above' };
    const node = view.node(at);
    if (!node?.remote) return null;
    // Where that one is, the service knows better than we do.
    if (isUncertain(at, view)) return { type: 'wait', for: at, because: 'above' };
    if (firstMover === null && node.local?.parent !== node.remote.parent) firstMover = at;
    // Those that lie in each other, by what is known of them: a listing tells.
    if (seen.has(node.remote.parent)) return null;
    seen.add(at);
    at = node.remote.parent;
  }
}

/**
 * A deleted or moved file whose name was taken by a new one: that is how programs save (vim and emacs rename the old one
 * away, others delete it). `tree/succession` sees to that when names change hands; here it is made up for where the old one
 * was being pushed at that moment.
 */
function stepOfVacatedName(node: NodeRecord, view: PlanView): Decision | null {
  const { remote, local } = node;
  if (remote === null || node.kind !== 'file') return null;
  if (local !== null && !isMoved(local, remote)) return null;
  const heir = view.child(remote.parent, remote.shownAs);
  if (heir === undefined || heir.ino === node.ino || !isSave(heir, node, view)) return null;
  return { type: 'inherit', ino: heir.ino, from: node.ino };
}

/** Whether `heir`, which has the name now, is a save of the file that `old` is on the service. */
function isSave(heir: NodeRecord, old: NodeRecord, view: PlanView): boolean {
  if (heir.kind !== 'file' || old.kind !== 'file' || heir.localOnly || old.remote === null || heir.local === null)
    return false;
  if (view.dirty(heir.ino)?.parked !== null || view.dirty(old.ino)?.parked !== null) return false;
  if (isUncertain(heir.ino, view) || isUncertain(old.ino, view)) return false;
  if (!isNewHere(heir, view)) return false;
  const apartMs = Math.abs((view.dirty(old.ino)?.sinceMs ?? 0) - (view.dirty(heir.ino)?.sinceMs ?? 0));
  if (apartMs > VACATED_MAX_MS) return false;
  // Renamed away: it goes on as a new file. Without a content of its own it is whatever its resource holds.
  return old.local === null || (heir.remote === null && old.local.content !== null);
}

/** A name that is taken again within this time was vacated for it, ms. */
const VACATED_MAX_MS = 2_000;

function isNewHere(node: NodeRecord, view: PlanView): boolean {
  if (node.remote === null) return true;
  if (node.local === null || !isMoved(node.local, node.remote)) return false;
  const { createdHereMs } = node.remote;
  return createdHereMs !== null && view.nowMs - createdHereMs <= view.saveWindowMs;
}

function stepOfDeletedFile(node: NodeRecord, remote: RemoteFacet, view: PlanView): Decision {
  const away = stepOfVacatedName(node, view);
  if (away !== null) return away;
  if (goesWithFolder(remote, view)) return { type: 'wait', for: remote.parent, because: 'below' };
  if (view.isOpen(node.ino)) return OPEN;
  // Given up for another resource in the middle of a save: the bytes are somewhere only once they are pushed there.
  const heir = view.whoNeeds(remote);
  if (heir !== null && heir !== node.ino) return { type: 'wait', for: heir, because: 'bytes' };
  return { type: 'push', action: { type: 'delete', ino: node.ino, below: [] } };
}

function stepOfDeletedFolder(node: NodeRecord, view: PlanView): Decision {
  const { ino, remote } = node;
  if (remote === null) return NOTHING;
  if (goesWithFolder(remote, view)) return { type: 'wait', for: remote.parent, because: 'below' };
  if (view.deletion === 'forever' || view.isSplit(ino)) {
    // For ever, or something in it is not ours to delete: only when nothing that we know of is left in it.
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

/** Whether the folder it lies in is deleted too and will take it along. */
function goesWithFolder(remote: RemoteFacet, view: PlanView): boolean {
  const folder = view.node(remote.parent);
  if (folder === undefined || folder.local !== null || folder.remote === null) return false;
  if (view.deletion === 'forever') return false;
  return !view.isSplit(remote.parent) && view.dirty(remote.parent)?.parked === null;
}

/** Whether the node's remote facet may not be what the service has. */
function isUncertain(ino: Inode, view: PlanView): boolean {
  return view.isPushing(ino) || view.isUnsure(ino) || view.predecessor(ino) !== null;
}

/** Whether the service has the node elsewhere, or under another name. */
export function isMoved(local: LocalFacet, remote: RemoteFacet): boolean {
  return local.parent !== remote.parent || local.name !== remote.shownAs;
}

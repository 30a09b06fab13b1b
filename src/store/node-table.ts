import { type ContentId, type Inode, isSpecial, ROOT_INODE, type Timespec } from '../base/vocabulary.ts';
import { forgetDeparted } from './departed-attributes.ts';
import { DamagedRow } from './record-codec.ts';
import type { DirtyRecord, NodeRecord, RemoteFacet, StoreReader, Transaction } from './tables.ts';

/**
 * The one place that writes node records, so that the indexes (dentries, resources, dirty, references of contents) can
 * never disagree with them.
 */

/**
 * The node, where its row is what was written; undefined also where it is damaged. For finding and for telling, where one damaged
 * row must not hide the others: whoever decides or changes something reads the row itself, and fails.
 */
export function soundNode(store: StoreReader, ino: Inode): NodeRecord | undefined {
  return ifSound(() => store.get('node', ino));
}

/** What `read` finds; undefined where it meets a row that is damaged. As `soundNode`, for other rows. */
export function ifSound<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof DamagedRow) return undefined;
    throw error;
  }
}

/** Whether anything of the node is to be pushed: the facets differ in existence, place, name or bytes. */
export function isDirty(node: NodeRecord): boolean {
  // A special file means nothing on another machine, whatever its name and its folder are.
  if (node.localOnly || isSpecial(node.kind)) return false;
  const { local, remote } = node;
  if (local === null) return remote !== null;
  if (remote === null) return true;
  return local.parent !== remote.parent || local.name !== remote.shownAs || local.content !== remote.content;
}

/** Whether the node is kept on this machine only, so that its name and its bytes are nowhere else. */
export function staysHere({ ino, kind, localOnly, local }: NodeRecord): boolean {
  // FIFOs and sockets hold no bytes.
  return localOnly && local !== null && local.parent !== ino && !isSpecial(kind);
}

/** Whether the bytes of the node are to be pushed. */
export function isContentDirty(node: NodeRecord): boolean {
  return (
    !node.localOnly &&
    !isSpecial(node.kind) &&
    node.kind !== 'folder' &&
    node.local !== null &&
    node.local.content !== (node.remote?.content ?? null)
  );
}

/** Whether the local bytes must be revalidated before they are shown: they may be a version older than the newest. */
export function isSuspect(node: NodeRecord): boolean {
  return node.remote?.modified?.certainty === 'suspect' && node.local?.content != null && !isContentDirty(node);
}

/**
 * Replaces the record of `after.ino` and keeps every index in step. `before` is what is stored now (undefined: a new node).
 *
 * A changed node is un-parked: whoever touches it asks for another try (`asksAgain`), and tells the sync so. INVARIANT: a dentry
 * belongs to exactly the node whose local facet names it; the caller has removed the node that held the name before.
 */
export function writeNode(tx: Transaction, before: NodeRecord | undefined, after: NodeRecord, nowMs: number): void {
  const { ino } = after;
  const was = before?.local ?? null;
  const is = after.local;
  if (was !== null && (is === null || was.parent !== is.parent || was.name !== is.name)) {
    if (tx.get('name', [was.parent, was.name]) === ino) tx.remove('name', [was.parent, was.name]);
  }
  if (is !== null && ino !== is.parent && (was === null || was.parent !== is.parent || was.name !== is.name)) {
    tx.put('name', [is.parent, is.name], ino);
  }

  const had = before?.remote?.resource ?? null;
  const has = after.remote?.resource ?? null;
  if (had !== null && had !== has && tx.get('resource', had) === ino) tx.remove('resource', had);
  if (has !== null && (had !== has || tx.get('resource', has) !== ino)) tx.put('resource', has, ino);

  if (has !== null && had !== has) forgetDeparted(tx, has);

  moveReference(tx, was?.content ?? null, is?.content ?? null);
  moveReference(tx, before?.remote?.content ?? null, after.remote?.content ?? null);

  if (is === null && after.remote === null) {
    tx.remove('node', ino);
    tx.remove('folder', ino);
    if (tx.get('dirty', ino) !== undefined) tx.remove('dirty', ino);
    return;
  }
  tx.put('node', ino, after);
  const dirty = tx.get('dirty', ino);
  if (!isDirty(after)) {
    if (dirty !== undefined) tx.remove('dirty', ino);
  } else if (dirty === undefined || (dirty.parked !== null && asksAgain(before, after))) {
    tx.put('dirty', ino, { sinceMs: dirty?.sinceMs ?? nowMs, parked: null } satisfies DirtyRecord);
  }
}

/**
 * What the folder's listing said may be otherwise by now: it is asked for anew. Nothing for one that was never listed, nor for one that is gone:
 * what lay in it on the service may be known longer than the folder itself.
 */
export function listAnew(tx: Transaction, folder: Inode): void {
  if (tx.get('folder', folder) !== undefined) tx.put('folder', folder, { listedMs: 0 });
}

/**
 * Whether a change is somebody's word about this node. The times of a folder tell of what lies in it, and which version a file
 * is may be learnt by reading it: neither changes what is to be pushed, and the sync does not hear of them. Un-parked by them, a
 * node would wait for a try that never comes.
 */
function asksAgain(before: NodeRecord | undefined, after: NodeRecord): boolean {
  const had = before?.remote ?? null;
  const has = after.remote;
  if (had?.resource !== has?.resource || had?.parent !== has?.parent || had?.name !== has?.name) return true;
  const was = before?.local ?? null;
  const is = after.local;
  if (was === null || is === null) return was !== is;
  if (was.parent !== is.parent || was.name !== is.name) return true;
  if (after.kind === 'folder') return was.mode !== is.mode || was.uid !== is.uid || was.gid !== is.gid;
  return isContentDirty(after) !== (before !== undefined && isContentDirty(before)) || !isSameTime(was.ctime, is.ctime);
}

function isSameTime(one: Timespec, other: Timespec): boolean {
  return one.sec === other.sec && one.nsec === other.nsec;
}

/** Removes a node for good, whatever its facets. */
export function removeNode(tx: Transaction, before: NodeRecord, nowMs: number): void {
  writeNode(tx, before, { ...before, local: null, remote: null }, nowMs);
}

/** Takes a new inode number. */
export function newInode(tx: Transaction): Inode {
  return tx.nextId('inode') as Inode;
}

/** The node called `name` in `parent`. */
export function childOf(reader: StoreReader, parent: Inode, name: string): NodeRecord | undefined {
  const ino = reader.get('name', [parent, name]);
  return ino === undefined ? undefined : reader.get('node', ino);
}

type NodeReader = { get(table: 'node', ino: Inode): NodeRecord | undefined };

/**
 * A node and the folders above it: as users see them (`here`; of what was deleted here, where the service has it), or as the service
 * told last (`there`). Places are learnt one after another: of two folders that change places each may seem to lie in the other one
 * for a while, and a service may tell anything. So each is given once, and whoever goes up goes by this.
 */
export function* upwards(reader: NodeReader, ino: Inode, by: 'here' | 'there'): Generator<NodeRecord> {
  const seen = new Set<Inode>();
  for (let at: Inode | undefined = ino; at !== undefined && !seen.has(at); ) {
    const node: NodeRecord | undefined = reader.get('node', at);
    if (node === undefined) return;
    yield node;
    seen.add(at);
    at = (by === 'here' ? node.local?.parent : undefined) ?? node.remote?.parent;
  }
}

/** Whether a node lies in `folder`, or is it, as users see it; of what was deleted here, where the service has it. */
export function liesIn(reader: NodeReader, ino: Inode, folder: Inode): boolean {
  for (const above of upwards(reader, ino, 'here')) if (above.ino === folder) return true;
  return false;
}

/**
 * The folders that have to be there again before something can lie in `ino`, the highest first, each with the folder it goes to:
 * where the service has it, and the root where that is nowhere.
 */
export function deletedAbove(
  reader: NodeReader,
  ino: Inode,
): readonly { readonly node: NodeRecord; readonly remote: RemoteFacet; readonly parent: Inode }[] {
  const gone: { node: NodeRecord; remote: RemoteFacet; parent: Inode }[] = [];
  for (const node of upwards(reader, ino, 'there')) {
    const { local, remote } = node;
    if (local !== null || remote === null) break;
    gone.unshift({ node, remote, parent: remote.parent });
  }
  const [highest] = gone;
  if (highest !== undefined && reader.get('node', highest.parent)?.local == null) highest.parent = ROOT_INODE;
  return gone;
}

/** Counts one reference of a content up or down; at 0 it is queued for collection. */
export function countReference(tx: Transaction, id: ContentId, by: 1 | -1): void {
  const record = tx.get('content', id);
  if (record === undefined) throw new Error(`content ${id} is referred to but not there`);
  const refs = record.refs + by;
  if (refs < 0) throw new Error(`content ${id} is released more often than it was taken`);
  tx.put('content', id, { ...record, refs });
  if (refs === 0) tx.put('garbage', id, true);
  else if (record.refs === 0) tx.remove('garbage', id);
}

function moveReference(tx: Transaction, from: ContentId | null, to: ContentId | null): void {
  if (from === to) return;
  // Up before down: a content that only changes hands never looks collectable.
  if (to !== null) countReference(tx, to, 1);
  if (from !== null) countReference(tx, from, -1);
}

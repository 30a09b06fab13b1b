import { type ContentId, type Inode, isSameTime, isSpecial, ROOT_INODE } from '../base/vocabulary.ts';
import { forgetDeparted } from './departed-attributes.ts';
import { DamagedRow } from './record-codec.ts';
import { isSuspectTime } from './service-time.ts';
import type { DirtyRecord, LocalFacet, NodeRecord, RemoteFacet, StoreReader, Transaction } from './tables.ts';

/**
 * The only code that writes node records. It keeps the indexes consistent with them: dentries, resources, dirty nodes, local-only nodes,
 * references of contents.
 */

/**
 * The node; undefined if it does not exist or its row is damaged. For searches and reports, in which one damaged row must not hide the
 * others. Code that decides or changes something reads the row with `get`, which throws.
 */
export function soundNode(store: StoreReader, ino: Inode): NodeRecord | undefined {
  return ifSound(() => store.get('node', ino));
}

/** The result of `read`; undefined if it throws DamagedRow. Like `soundNode`, for other rows. */
export function ifSound<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof DamagedRow) return undefined;
    throw error;
  }
}

/** Whether the node has to be pushed: the facets differ in existence, place, name or bytes. */
export function isDirty(node: NodeRecord): boolean {
  // A special file has no meaning on another machine.
  if (node.localOnly || isSpecial(node.kind)) return false;
  const { local, remote } = node;
  if (local === null) return remote !== null;
  if (remote === null) return true;
  return isMoved(local, remote) || local.content !== remote.content;
}

/** Whether the service has the node elsewhere, or under another name. */
export function isMoved(local: LocalFacet, remote: RemoteFacet): boolean {
  return local.parent !== remote.parent || local.name !== remote.shownAs;
}

/** Whether a file, folder or symlink exists on this machine only, so that its name and bytes are nowhere else. */
export function staysHere({ ino, kind, localOnly, local }: NodeRecord): boolean {
  // FIFOs and sockets hold no bytes.
  return localOnly && local !== null && local.parent !== ino && !isSpecial(kind);
}

/** Whether the bytes of the node have to be pushed. */
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
  const { modified } = node.remote ?? {};
  return modified != null && isSuspectTime(modified) && node.local?.content != null && !isContentDirty(node);
}

/**
 * Replaces the record of `after.ino` and updates every index. `before` is the stored record (undefined: a new node).
 *
 * A parked node that a user changes is tried again (`asksAgain`); the caller also notifies the sync. INVARIANT: a dentry belongs to
 * exactly the node whose local facet names it. The caller has removed the node that had the name before.
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

  // A facet that was not replaced keeps its rows: a change that only users see does not read them.
  if (before === undefined || before.remote !== after.remote) {
    const had = before?.remote?.resource ?? null;
    const has = after.remote?.resource ?? null;
    if (had !== null && had !== has && tx.get('resource', had) === ino) tx.remove('resource', had);
    if (has !== null && (had !== has || tx.get('resource', has) !== ino)) tx.put('resource', has, ino);
    if (has !== null && had !== has) forgetDeparted(tx, has);
  }

  moveReference(tx, was?.content ?? null, is?.content ?? null);
  moveReference(tx, before?.remote?.content ?? null, after.remote?.content ?? null);

  const stayed = before !== undefined && staysHere(before);
  if (staysHere(after)) {
    if (!stayed) tx.put('local', ino, true);
  } else if (stayed) tx.remove('local', ino);

  if (is === null && after.remote === null) {
    tx.remove('node', ino);
    tx.remove('folder', ino);
    if (tx.get('dirty', ino) !== undefined) tx.remove('dirty', ino);
    return;
  }
  tx.put('node', ino, after);
  // A new inode has no rows, and a clean node has no such row.
  const dirty = before === undefined || !isDirty(before) ? undefined : tx.get('dirty', ino);
  if (!isDirty(after)) {
    if (dirty !== undefined) tx.remove('dirty', ino);
  } else if (dirty === undefined || (dirty.parked !== null && asksAgain(before, after))) {
    tx.put('dirty', ino, { sinceMs: dirty?.sinceMs ?? nowMs, parked: null } satisfies DirtyRecord);
  }
}

/**
 * Marks a folder's listing as stale. Does nothing for a folder that was never listed, or that was removed: nodes in it can outlive the
 * folder's own record.
 */
export function listAnew(tx: Transaction, folder: Inode): void {
  if (tx.get('folder', folder) !== undefined) tx.put('folder', folder, { listedMs: 0 });
}

/**
 * Whether a change asks for another push of a parked node. Two changes do not: the times of a folder follow from its entries, and a read
 * can find out which version a file has. Neither changes what has to be pushed, and the sync is not notified of them. If they un-parked
 * the node, it would wait for a push that never starts.
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

/** Removes a node with both facets. */
export function removeNode(tx: Transaction, before: NodeRecord, nowMs: number): void {
  writeNode(tx, before, { ...before, local: null, remote: null }, nowMs);
}

/** Allocates an inode number. */
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
 * A node and the folders above it. `here`: as users see them; for a node that was deleted here, as the service has it. `there`: as the
 * service last reported them.
 *
 * The path upwards can contain a cycle: places are learnt one at a time, so of two folders that swap places each seems to be in the other
 * one for a while. A hostile service can report one, too. Each folder is therefore returned once. Use this function for every walk upwards.
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

/** Whether a node is `folder` or is below it, as users see it; for a node that was deleted here, as the service has it. */
export function liesIn(reader: NodeReader, ino: Inode, folder: Inode): boolean {
  for (const above of upwards(reader, ino, 'here')) if (above.ino === folder) return true;
  return false;
}

/**
 * The deleted folders that must be restored before `ino` can have entries: `ino` and folders above it, the highest first. `parent` is the
 * folder to restore each into: its folder on the service, or the root if that folder is not here.
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

/** Adds or removes one reference of a content; at 0 it is queued for collection. */
export function countReference(tx: Transaction, id: ContentId, by: 1 | -1): void {
  const record = tx.get('content', id);
  if (record === undefined) throw new Error(`content ${id} is referenced but does not exist`);
  const refs = record.refs + by;
  if (refs < 0) throw new Error(`content ${id} is released more often than it was taken`);
  tx.put('content', id, { ...record, refs });
  if (refs === 0) tx.put('garbage', id, true);
  else if (record.refs === 0) tx.remove('garbage', id);
}

function moveReference(tx: Transaction, from: ContentId | null, to: ContentId | null): void {
  if (from === to) return;
  // Up before down: a content that moves from one holder to another never has 0 references.
  if (to !== null) countReference(tx, to, 1);
  if (from !== null) countReference(tx, from, -1);
}

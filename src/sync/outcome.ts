import { ProtocolError } from '../base/errors.ts';
import type { Inode, NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import { keepDeparted } from '../store/departed-attributes.ts';
import { isTrashFolder } from '../store/local-trash.ts';
import { isContentDirty, newInode, removeNode, writeNode } from '../store/node-table.ts';
import type { IntentRecord, NodeRecord, RemoteFacet, StoreReader, Transaction } from '../store/tables.ts';
import type { RemoteNaming } from './remote-naming.ts';

/**
 * The effects of acknowledged pushes on remote facets, each inside the caller's transaction. The resource identifies the node, not the node
 * that the push was started for: during the push, a user may have deleted that node or renamed another over it.
 */

/** The node to which `resource` belongs now. */
export function ownerOf(reader: StoreReader, resource: ResourceUrl): NodeRecord | undefined {
  const ino = reader.get('resource', resource);
  return ino === undefined ? undefined : reader.get('node', ino);
}

/** The file name for a remote name: the node's own name, if it is pushed under that remote name. */
export function fileNameOf(
  naming: Pick<RemoteNaming, 'toRemoteName' | 'toFileName'>,
  node: NodeRecord | undefined,
  remoteName: string,
): string {
  const own = node?.local?.name;
  return own !== undefined && naming.toRemoteName(own) === remoteName ? own : naming.toFileName(remoteName);
}

/** Our folder with that address; undefined if it is unknown or no folder. A service may name a parent that is no folder. */
export function folderOf(store: StoreReader, resource: ResourceUrl | null | undefined): Inode | undefined {
  const owner = resource == null ? undefined : ownerOf(store, resource);
  return owner?.kind === 'folder' ? owner.ino : undefined;
}

/**
 * The folder into which the request of an intent puts its node. By its address: during the request, the folder may have become local-only, and its
 * resource passed to a tombstone.
 *
 * @param asked the folder at the start of the request; if nothing has its address any more, the next listings correct the place
 */
export function targetOf(
  reader: StoreReader,
  intent: Pick<IntentRecord, 'parentResource'> | undefined,
  asked: Inode,
): Inode {
  return folderOf(reader, intent?.parentResource) ?? asked;
}

/**
 * A resource was created for `ino`. If the node is deleted meanwhile, or has another resource, a new tombstone gets the resource, and the
 * plan deletes it.
 * @returns the node that has the resource
 */
export function recordCreated(tx: Transaction, ino: Inode, kind: NodeKind, facet: RemoteFacet, nowMs: number): Inode {
  const node = tx.get('node', ino);
  // A node that became local-only meanwhile gets no resource.
  if (node !== undefined && node.local !== null && node.remote === null && !node.localOnly) {
    writeNode(tx, node, { ...node, remote: facet }, nowMs);
    // A folder of ours contains only our own entries: no listing is needed yet.
    if (kind === 'folder' && tx.get('folder', ino) === undefined) tx.put('folder', ino, { listedMs: nowMs });
    return ino;
  }
  return recordSurplus(tx, kind, facet, nowMs);
}

/** A resource of ours that no node needs gets a tombstone of its own. The plan deletes it. */
export function recordSurplus(tx: Transaction, kind: NodeKind, facet: RemoteFacet, nowMs: number): Inode {
  const ino = newInode(tx);
  writeNode(tx, undefined, { ino, kind, localOnly: false, local: null, remote: facet }, nowMs);
  return ino;
}

/** The service has `resource` at another place now, maybe under another URL. @throws ProtocolError if another node has that URL */
export function recordRelocated(
  tx: Transaction,
  resource: ResourceUrl,
  now: Pick<RemoteFacet, 'resource' | 'parent' | 'name' | 'shownAs'>,
  nowMs: number,
): void {
  const node = ownerOf(tx, resource);
  if (!node?.remote) return;
  if (now.resource !== resource) mustBeUnknown(tx, now.resource);
  const { nameBefore = node.remote.name, ...remote } = node.remote;
  const before = isTemporaryName(now.name) ? { nameBefore } : null;
  writeNode(tx, node, { ...node, remote: { ...remote, ...now, ...before } }, nowMs);
}

/** The temporary name of a node that waits for a free name or for its deletion. Other clients may see it briefly. */
export function temporaryName(key: Inode | string): string {
  return `${TEMPORARY}${key}`;
}

export function isTemporaryName(remoteName: string): boolean {
  return remoteName.startsWith(TEMPORARY);
}

const TEMPORARY = '.cfs-moving-';

/** @throws ProtocolError if the service gave a new resource the address of another one of ours */
export function mustBeUnknown(tx: Transaction, resource: ResourceUrl): void {
  if (tx.get('resource', resource) !== undefined)
    throw new ProtocolError(`${resource}: the service gave this address to two resources`);
}

/** No node has this number: the place of a resource in the trash of the service whose entry was restored during its move. */
const NOWHERE = 0 as Inode;

/**
 * The service does not have `resource` any more, because this mount requested it.
 *
 * @param trashedAs the name of its entry in the local trash; null if it was removed in another way
 */
export function recordDeleted(tx: Transaction, resource: ResourceUrl, trashedAs: string | null, nowMs: number): void {
  const node = ownerOf(tx, resource);
  if (node === undefined) return;
  const { local, remote } = node;
  if (local === null) removeNode(tx, node, nowMs);
  else if (remote !== null && trashedAs !== null) {
    const isThere = isTrashFolder(tx, local.parent);
    const place = isThere ? { parent: local.parent, shownAs: local.name } : { parent: NOWHERE, shownAs: trashedAs };
    writeNode(tx, node, { ...node, remote: { ...remote, ...place, createdHereMs: null } }, nowMs);
  }
  // The node exists here again: it will be recreated.
  else writeNode(tx, node, { ...node, remote: null }, nowMs);
}

/**
 * The service does not have `resource` any more, and this mount did not delete it. A node with changed bytes is recreated. A node that was
 * only renamed here is removed.
 * @returns the node as it was, if it was removed from the local tree
 */
export function recordGone(tx: Transaction, resource: ResourceUrl, nowMs: number): NodeRecord | null {
  const node = ownerOf(tx, resource);
  if (node === undefined) return null;
  if (node.local === null) {
    removeNode(tx, node, nowMs);
    return null;
  }
  const place = node.remote?.parent;
  const isRestored = place !== undefined && (place === NOWHERE || isTrashFolder(tx, place));
  // The trash of the service was emptied: a restored file becomes a new one, of the bytes that are here.
  const isWanted = isContentDirty(node) || (isRestored && node.local.content !== null);
  if (node.kind === 'folder' || isWanted) {
    writeNode(tx, node, { ...node, remote: null }, nowMs);
    return null;
  }
  removeNode(tx, node, nowMs);
  keepDeparted(tx, [node], nowMs);
  return node;
}

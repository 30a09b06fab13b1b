import { ProtocolError } from '../base/errors.ts';
import type { Inode, NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import { keepDeparted } from '../store/departed-attributes.ts';
import { isContentDirty, newInode, removeNode, writeNode } from '../store/node-table.ts';
import type { NodeRecord, RemoteFacet, StoreReader, Transaction } from '../store/tables.ts';
import type { RemoteNaming } from './remote-naming.ts';

/**
 * What acknowledged pushes write into remote facets, each inside the caller's transaction. Whom an outcome concerns is told
 * by the resource, not by the node that the push began with: while it was under way the user may have deleted that node, or
 * renamed another over it.
 */

/** The node that has `resource` now. */
export function ownerOf(reader: StoreReader, resource: ResourceUrl): NodeRecord | undefined {
  const ino = reader.get('resource', resource);
  return ino === undefined ? undefined : reader.get('node', ino);
}

/** The file name for what the service calls a node: the node's own where that travels under it. */
export function fileNameOf(
  naming: Pick<RemoteNaming, 'toRemoteName' | 'toFileName'>,
  node: NodeRecord | undefined,
  remoteName: string,
): string {
  const own = node?.local?.name;
  return own !== undefined && naming.toRemoteName(own) === remoteName ? own : naming.toFileName(remoteName);
}

/** The folder of ours at that address; undefined for what we do not know, and where a service names as a parent what is no folder. */
export function folderOf(store: StoreReader, resource: ResourceUrl | null | undefined): Inode | undefined {
  const owner = resource == null ? undefined : ownerOf(store, resource);
  return owner?.kind === 'folder' ? owner.ino : undefined;
}

/**
 * We made a resource for `ino`. When the node has gone meanwhile, or has another one, a tombstone takes it, and the plan
 * deletes it like anything else that was deleted here.
 * @returns who has it
 */
export function recordCreated(tx: Transaction, ino: Inode, kind: NodeKind, facet: RemoteFacet, nowMs: number): Inode {
  const node = tx.get('node', ino);
  // What stays on this machine by now has no resource.
  if (node !== undefined && node.local !== null && node.remote === null && !node.localOnly) {
    writeNode(tx, node, { ...node, remote: facet }, nowMs);
    // What we made holds what we put there: there is nothing to ask for yet.
    if (kind === 'folder' && tx.get('folder', ino) === undefined) tx.put('folder', ino, { listedMs: nowMs });
    return ino;
  }
  return recordSurplus(tx, kind, facet, nowMs);
}

/** A resource of ours that nothing here wants: a tombstone of its own, to be deleted by the plan. */
export function recordSurplus(tx: Transaction, kind: NodeKind, facet: RemoteFacet, nowMs: number): Inode {
  const ino = newInode(tx);
  writeNode(tx, undefined, { ino, kind, localOnly: false, local: null, remote: facet }, nowMs);
  return ino;
}

/** The service has `resource` at another place now, maybe under another URL. @throws ProtocolError where another has that one */
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

/** Where a node waits for its name to be free, or for its deletion; seen by others for a moment. */
export function temporaryName(ino: Inode): string {
  return `${TEMPORARY}${ino}`;
}

export function isTemporaryName(remoteName: string): boolean {
  return remoteName.startsWith(TEMPORARY);
}

const TEMPORARY = '.cfs-moving-';

/** @throws ProtocolError where a resource of ours has the address that the service gave to a new one */
export function mustBeUnknown(tx: Transaction, resource: ResourceUrl): void {
  if (tx.get('resource', resource) !== undefined)
    throw new ProtocolError(`${resource}: the address of another resource`);
}

/** The service does not have `resource` any more, because we asked for that. */
export function recordDeleted(tx: Transaction, resource: ResourceUrl, nowMs: number): void {
  const node = ownerOf(tx, resource);
  if (node === undefined) return;
  if (node.local === null) removeNode(tx, node, nowMs);
  // Wanted again meanwhile: it is made anew.
  else writeNode(tx, node, { ...node, remote: null }, nowMs);
}

/**
 * The service does not have `resource` any more, and it was not us. What was changed here is made anew; what was only
 * renamed here goes (three ways, attribute by attribute).
 * @returns the node as it was, when it went from the local tree
 */
export function recordGone(tx: Transaction, resource: ResourceUrl, nowMs: number): NodeRecord | null {
  const node = ownerOf(tx, resource);
  if (node === undefined) return null;
  if (node.local === null) {
    removeNode(tx, node, nowMs);
    return null;
  }
  if (node.kind === 'folder' || isContentDirty(node)) {
    writeNode(tx, node, { ...node, remote: null }, nowMs);
    return null;
  }
  removeNode(tx, node, nowMs);
  keepDeparted(tx, [node], nowMs);
  return node;
}

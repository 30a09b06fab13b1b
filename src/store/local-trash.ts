import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import { upwards } from './node-table.ts';
import type { NodeRecord, StoreReader, Transaction } from './tables.ts';

/**
 * The local trash: where file managers put what a person deletes (ADR 45). Its root is a local-only folder that is its own parent, so that
 * it lies outside of the tree of the account. An entry that the service has keeps its remote facet, and goes to the trash of the service.
 */

type Reader = Pick<StoreReader, 'get'>;

/** The root of a user's local trash; null before its first use. */
export function trashRootOf(reader: Reader, uid: number): Inode | null {
  const ino = reader.get('meta', keyOf(uid));
  return typeof ino === 'number' ? (ino as Inode) : null;
}

export function setTrashRoot(tx: Transaction, uid: number, root: Inode): void {
  tx.put('meta', keyOf(uid), root);
}

/** Whether a node is in a local trash or is its root; for a node that was deleted here, by its remote place. */
export function isInTrash(reader: Reader, ino: Inode): boolean {
  let top: NodeRecord | undefined;
  for (const above of upwards(reader, ino, 'here')) top = above;
  return top !== undefined && top.ino !== ROOT_INODE && top.local?.parent === top.ino;
}

/** Whether a folder stands for the trash of the service: an entry with a resource that is put here is moved there. */
export function isTrashFolder(reader: Reader, folder: Inode): boolean {
  const node = reader.get('node', folder);
  return node?.kind === 'folder' && node.localOnly && isInTrash(reader, folder);
}

/** The root of the local trash above a folder that stands for the trash of the service; null for another folder. */
export function trashRootAbove(reader: Reader, folder: Inode): Inode | null {
  if (!isTrashFolder(reader, folder)) return null;
  let top = folder;
  for (const above of upwards(reader, folder, 'here')) top = above.ino;
  return top;
}

/** Whether the move of an entry of the local trash, or of a folder above it, into the trash of the service is acknowledged. */
export function isTrashedThere(reader: Reader, { ino, remote }: NodeRecord): boolean {
  if (remote === null || leadsToRoot(reader, remote.parent)) return false;
  let top = ino;
  for (const above of upwards(reader, ino, 'there')) top = above.ino;
  return isTrashFolder(reader, top);
}

/** Whether the way upwards on the service is short and ends at the root, as nearly always. Cheaper than `upwards`: each removal asks. */
function leadsToRoot(reader: Reader, folder: Inode): boolean {
  let at: Inode | undefined = folder;
  for (let steps = 0; at !== undefined && at !== ROOT_INODE && steps < SHORT_STEPS_MAX; steps++)
    at = reader.get('node', at)?.remote?.parent;
  return at === ROOT_INODE;
}

const SHORT_STEPS_MAX = 64;

function keyOf(uid: number): string {
  return `local-trash-${uid}`;
}

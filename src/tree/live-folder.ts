import { FsError } from '../base/errors.ts';
import { type Inode, isSameTime, ROOT_INODE, type Timespec } from '../base/vocabulary.ts';
import { isInTrash } from '../store/local-trash.ts';
import { writeNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader, Transaction } from '../store/tables.ts';

/** The node of a folder that exists locally. @throws FsError ENOENT deleted · ENOTDIR */
export function liveFolder(tx: Transaction, ino: Inode): NodeRecord {
  const node = tx.get('node', ino);
  if (node === undefined || node.local === null) throw new FsError('ENOENT');
  if (node.kind !== 'folder') throw new FsError('ENOTDIR');
  return node;
}

/** Whether `ino` is `ancestor` or a descendant. */
export function isWithin(reader: Pick<StoreReader, 'get'>, ino: Inode, ancestor: Inode): boolean {
  for (let at: Inode | undefined = ino; at !== undefined; ) {
    if (at === ancestor) return true;
    if (at === ROOT_INODE) return false;
    const above: Inode | undefined = reader.get('node', at)?.local?.parent;
    // The root of a local trash is its own parent.
    at = above === at ? undefined : above;
  }
  return false;
}

/** Updates the folder's times after an entry was added or removed. */
export function touch(tx: Transaction, folder: Inode, now: Timespec, nowMs: number): void {
  const before = tx.get('node', folder);
  if (before === undefined || before.local === null) return;
  const { mtime, ctime } = before.local;
  // A program that empties a folder removes several entries in a millisecond.
  if (isSameTime(mtime, now) && isSameTime(ctime, now)) return;
  writeNode(tx, before, { ...before, local: { ...before.local, mtime: now, ctime: now } }, nowMs);
}

/** Whether the folder has no local entries. */
export function isEmpty(reader: StoreReader, folder: Inode): boolean {
  for (const _ of reader.scan('name', folder)) return false;
  return true;
}

/** Whether all entries of a folder are known: it was listed at least once, or exists only here. In the local trash, the known ones are all. */
export function isComplete(reader: StoreReader, folder: Inode): boolean {
  if (reader.get('folder', folder) !== undefined) return true;
  const node = reader.get('node', folder);
  return node !== undefined && (node.remote === null || isInTrash(reader, folder));
}

/** @throws FsError ENOTEMPTY the folder has entries, or may have unknown ones */
export function mustBeEmpty(reader: StoreReader, folder: NodeRecord): void {
  if (!isComplete(reader, folder.ino) || !isEmpty(reader, folder.ino)) throw new FsError('ENOTEMPTY');
}

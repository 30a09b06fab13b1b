import { statSync } from 'node:fs';
import { join } from 'node:path';
import { open as openLmdb, type RootDatabase } from 'lmdb';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import type { Disk } from './disk.ts';

/** The file of LMDB, which is the index of the store: how it is opened, and what it needs on the disk. */

const REWRITTEN_BYTES = 256 * 1024;

/**
 * LMDB with its defaults. Its map grows automatically, so only the disk limits it.
 *
 * `safeRestore`: it starts from its last flushed transaction, after SIGKILL as after a power cut. Otherwise it starts on the same boot
 * from a transaction that is committed and not flushed, and on the next boot from an earlier one (`mdb_pick_meta` in its mdb.c). By then
 * the journal may have dropped the records in between.
 *
 * @throws StorageError
 */
export function openIndex(path: string): RootDatabase<Buffer, Buffer> {
  refuseUnopenable({ data: join(path, 'data.mdb'), lock: join(path, 'lock.mdb') });
  // lmdb's declarations lack `safeRestore`.
  const options = { path, noSubdir: false, encoding: 'binary', keyEncoding: 'binary', safeRestore: true } as const;
  return openLmdb<Buffer, Buffer>(options);
}

/**
 * Opens the index, or creates it again after a kill during its first commit. Such an index has no flushed transaction. LMDB numbers the
 * state before that commit below 0 (`rollback_txn` in its mdb.c) and counts everything written later as flushed. An empty index is
 * therefore created again. An earlier version of this program continued such an index: if it has rows, they may exist nowhere else, and it
 * is kept.
 */
export async function usableIndex(
  path: string,
  open: typeof openIndex,
  disk: Disk,
): Promise<RootDatabase<Buffer, Buffer>> {
  const index = open(path);
  if (Number.isSafeInteger(infoOf(index).lastTxnId) || index.getKeysCount({ limit: 1 }) > 0) return index;
  await index.close();
  disk.remove(join(path, 'data.mdb'));
  return open(path);
}

/** Disk space of LMDB's file. */
export function indexBytes(directory: string): number {
  return (statSync(indexFile(directory), { throwIfNoEntry: false })?.blocks ?? 0) * 512;
}

export function indexFile(directory: string): string {
  return join(directory, 'index', 'data.mdb');
}

/** The highest page that LMDB has ever used. `getStats` has it too, but walks the list of free pages. */
export function lastPageOf(database: RootDatabase<Buffer, Buffer>): number {
  return infoOf(database).lastPageNumber;
}

/** Whether something was ever committed: not to an index that was just created. */
export function hasCommits(database: RootDatabase<Buffer, Buffer>): boolean {
  return infoOf(database).lastTxnId > 0;
}

/** `env.info()`, which lmdb's declarations lack. */
function infoOf(database: RootDatabase<Buffer, Buffer>): { lastPageNumber: number; lastTxnId: number } {
  const { env } = database as unknown as { env: { info(): { lastPageNumber: number; lastTxnId: number } } };
  return env.info();
}

/**
 * Syncs a new file of LMDB and its name, which LMDB does not do. A power cut during its first commit would leave a file that no later
 * start can open (seen in test/store/power-cut.mount.test.ts).
 */
export async function syncIndex(directory: string, disk: Disk): Promise<void> {
  const folder = join(directory, 'index');
  const fd = disk.open(join(folder, 'data.mdb'), 'read');
  await disk.sync(fd).finally(() => disk.close(fd));
  for (const each of [folder, directory]) await disk.syncDirectory(each);
}

/** Rewrites each byte of LMDB's file: after a failed sync the kernel does not write those pages again by itself (fsync(2)). */
export async function rewriteIndex(directory: string, disk: Disk): Promise<void> {
  const fd = disk.open(indexFile(directory), 'write');
  try {
    const buffer = Buffer.allocUnsafe(REWRITTEN_BYTES);
    for (let at = 0, end = disk.sizeBytes(fd); at < end; at += buffer.byteLength)
      await disk.writeLater(fd, buffer.subarray(0, disk.read(fd, buffer, at)), at);
  } finally {
    disk.close(fd);
  }
}

import { statSync } from 'node:fs';
import { join } from 'node:path';
import { open as openLmdb, type RootDatabase } from 'lmdb';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import type { Disk } from './disk.ts';

/** LMDB's file in the store, which holds the index of everything: how it is opened, and what has to be done for it on the disk. */

const REWRITTEN_BYTES = 256 * 1024;

/**
 * LMDB with its defaults; its map grows by itself, so that only the disk bounds it.
 *
 * It begins with what it has flushed, after SIGKILL as after a power cut. A batch that was committed and not flushed yet it would go on with
 * on the same boot, and go back behind it on the next one (`mdb_pick_meta` in its mdb.c): by then the journal would have let go of it.
 *
 * @throws StorageError
 */
export function openIndex(path: string): RootDatabase<Buffer, Buffer> {
  refuseUnopenable({ data: join(path, 'data.mdb'), lock: join(path, 'lock.mdb') });
  // lmdb's declarations do not know the last one.
  const options = { path, noSubdir: false, encoding: 'binary', keyEncoding: 'binary', safeRestore: true } as const;
  return openLmdb<Buffer, Buffer>(options);
}

/**
 * An index that was killed in its first commit has flushed nothing to go back to. LMDB numbers the state before that one below 0
 * (`rollback_txn` in its mdb.c) and takes whatever is written from then on for flushed. Nothing is in it: it is made anew. Of one that an
 * earlier version went on with, what is in it may be nowhere else: it stays.
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

/** The last page that LMDB has ever used. Its `getStats` would walk the list of free pages as well. */
export function lastPageOf(database: RootDatabase<Buffer, Buffer>): number {
  return infoOf(database).lastPageNumber;
}

/** Not in lmdb's declarations. */
function infoOf(database: RootDatabase<Buffer, Buffer>): { lastPageNumber: number; lastTxnId: number } {
  const { env } = database as unknown as { env: { info(): { lastPageNumber: number; lastTxnId: number } } };
  return env.info();
}

/**
 * LMDB does not sync the first pages of a new file, nor its name: a power cut during its first commit would leave a file that
 * no later start can open (seen in power-cut.mount.test.ts).
 */
export async function syncIndex(directory: string, disk: Disk): Promise<void> {
  const folder = join(directory, 'index');
  const fd = disk.open(join(folder, 'data.mdb'), 'read');
  await disk.sync(fd).finally(() => disk.close(fd));
  for (const each of [folder, directory]) await disk.syncDirectory(each);
}

/** Each byte of LMDB's file is to be written to the disk again: some that were there to be synced may not be on it. */
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

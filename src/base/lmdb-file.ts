import { accessSync, closeSync, constants, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { devNull } from 'node:os';
import { dirname } from 'node:path';
import { StorageError, systemCodeOf } from './errors.ts';

export interface LmdbFile {
  readonly data: string;
  readonly lock: string;
  readonly readOnly?: boolean;
  /** Replaces the system call in tests. */
  readonly openFile?: typeof openSync;
}

/** Descriptors that LMDB opens: the data file, a second one for its first two pages, and the lock file. */
const DESCRIPTORS = 3;
const MAGIC = 0xbeefc0de;
/** Offset of the magic number in 32-bit words, and the page size: on 64-bit and 32-bit machines. */
const HEADS = [
  { magic: 6, pageBytes: 12 },
  { magic: 4, pageBytes: 8 },
] as const;
const HEAD_WORDS = 13;

/**
 * Checks a file before LMDB opens it. A failed open does not throw but ends the process by SIGSEGV, because lmdb 3.5.6
 * frees its memory twice (`EnvWrap::openEnv` and `closeEnv` in its env.cpp). So predictable failures are rejected
 * first: no descriptors, a file without LMDB's header (`mdb_env_read_header` in its mdb.c), a lock file that is not a
 * regular file.
 *
 * Damage further inside the file can still end the process, as can another thread that takes the last descriptors in
 * between.
 *
 * @throws StorageError
 */
export function refuseUnopenable(file: LmdbFile): void {
  const { data, lock, readOnly = false, openFile = openSync } = file;
  const held: number[] = [];
  try {
    if (readOnly || isThere(data)) {
      const fd = openFile(data, readOnly ? 'r' : 'r+');
      held.push(fd);
      if (!isWhole(fd, readOnly))
        throw new StorageError(`${data} is damaged: it does not have the header of an LMDB file`);
    }
    while (held.length < DESCRIPTORS) held.push(openFile(devNull, 'r'));
    checkLock(lock, readOnly);
  } catch (error) {
    if (error instanceof StorageError) throw error;
    throw new StorageError(`cannot open ${data}: ${systemCodeOf(error) ?? 'unknown failure'}`, { cause: error });
  } finally {
    for (const fd of held) closeSync(fd);
  }
}

/** LMDB initializes an empty file if it may write. */
function isWhole(fd: number, readOnly: boolean): boolean {
  const { size } = fstatSync(fd);
  if (size === 0) return !readOnly;
  const words = new Uint32Array(HEAD_WORDS);
  if (readSync(fd, words, 0, words.byteLength, 0) < words.byteLength) return false;
  const head = HEADS.find(({ magic }) => words[magic] === MAGIC);
  const pageBytes = head === undefined ? 0 : (words[head.pageBytes] ?? 0);
  return pageBytes > 0 && size >= 2 * pageBytes;
}

/**
 * Checks the lock file without opening it: closing it would release the locks that this process already has on it
 * (fcntl(2)).
 */
function checkLock(lock: string, readOnly: boolean): void {
  const entry = statSync(lock, { throwIfNoEntry: false });
  if (entry?.isFile() === false) throw new StorageError(`${lock} is not a regular file`);
  if (readOnly) return; // without write access LMDB does not need it
  const folder = dirname(lock);
  if (entry !== undefined) accessSync(lock, constants.R_OK | constants.W_OK);
  else if (isThere(folder)) accessSync(folder, constants.W_OK | constants.X_OK);
}

function isThere(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

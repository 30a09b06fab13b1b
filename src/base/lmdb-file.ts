import { accessSync, closeSync, constants, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { devNull } from 'node:os';
import { dirname } from 'node:path';
import { StorageError, systemCodeOf } from './errors.ts';

export interface LmdbFile {
  readonly data: string;
  readonly lock: string;
  readonly readOnly?: boolean;
  /** Stands between this and the system in tests. */
  readonly openFile?: typeof openSync;
}

/** What LMDB opens: the data file, once more to write its first two pages through, and the lock file. */
const DESCRIPTORS = 3;
const MAGIC = 0xbeefc0de;
/** Where it stands in a file, in words of 32 bits, and the size of a page: on machines of 64 and of 32 bits. */
const HEADS = [
  { magic: 6, pageBytes: 12 },
  { magic: 4, pageBytes: 8 },
] as const;
const HEAD_WORDS = 13;

/**
 * Asked before LMDB is to open a file: an open that fails does not throw but ends the process by SIGSEGV, because lmdb 3.5.6 frees what
 * belongs to it twice (`EnvWrap::openEnv` and `closeEnv` in its env.cpp). So it is not given what can be seen to fail: no descriptors, a file
 * that does not begin as LMDB's do (`mdb_env_read_header` in its mdb.c), a lock file that is none.
 *
 * What is damaged further behind may still end the process, and another thread that takes the last descriptors meanwhile.
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
      if (!isWhole(fd, readOnly)) throw new StorageError(`${data} is damaged: it does not begin as a file of LMDB's`);
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

/** An empty one is made anew by whoever may write. */
function isWhole(fd: number, readOnly: boolean): boolean {
  const { size } = fstatSync(fd);
  if (size === 0) return !readOnly;
  const words = new Uint32Array(HEAD_WORDS);
  if (readSync(fd, words, 0, words.byteLength, 0) < words.byteLength) return false;
  const head = HEADS.find(({ magic }) => words[magic] === MAGIC);
  const pageBytes = head === undefined ? 0 : (words[head.pageBytes] ?? 0);
  return pageBytes > 0 && size >= 2 * pageBytes;
}

/** Not opened: closing it would let go of the locks that this process has on it (fcntl(2)), where it has the file open already. */
function checkLock(lock: string, readOnly: boolean): void {
  const entry = statSync(lock, { throwIfNoEntry: false });
  if (entry?.isFile() === false) throw new StorageError(`${lock} is no file`);
  if (readOnly) return; // LMDB does without, where it may not write
  const folder = dirname(lock);
  if (entry !== undefined) accessSync(lock, constants.R_OK | constants.W_OK);
  else if (isThere(folder)) accessSync(folder, constants.W_OK | constants.X_OK);
}

function isThere(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined;
}

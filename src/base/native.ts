import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import { getSystemErrorName } from 'node:util';
import { type Errno, errnoNameOf, FsError, UsageError } from './errors.ts';
import { systemKind, whyUnsupported } from './supported-system.ts';

/**
 * The door to our addon (native-deps/fuse-kernel), and those of its functions that have nothing to do with the kernel's FUSE
 * protocol: fallocate(2) and reads that do not block. `kernel/native.ts` types the rest.
 */

/** Where the addon may lie, seen from src/base and dist/base alike: built here, or brought by the npm package. */
const PLACES = ['build', `prebuilds/${process.platform}-${process.arch}`];

/** What the functions of files.c look like; they return a negative errno instead of throwing. */
interface FileFunctions {
  punchHole(fd: number, offset: number, length: number): number;
  allocate(fd: number, offset: number, length: number, keepSize: 0 | 1): number;
  allocatedBytes(fd: number): number;
  lock(fd: number, exclusive: 0 | 1): number;
  preadNowait(fd: number, bytes: Uint8Array, position: number): number;
}

/**
 * The addon itself; loaded once per thread (`require` keeps it).
 *
 * @throws UsageError when it was never built, or cannot be loaded on this system
 */
export function loadAddon<T>(): T {
  const require = createRequire(import.meta.url);
  const candidates = PLACES.map((place) =>
    fileURLToPath(new URL(`../../native-deps/fuse-kernel/${place}/fuse-kernel.node`, import.meta.url)),
  );
  for (const path of candidates) {
    try {
      return require(path) as T;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'ERR_DLOPEN_FAILED') throw notLoaded(error as Error);
      if (code !== 'MODULE_NOT_FOUND') throw error;
    }
  }
  const why = whyUnsupported(systemKind());
  if (why !== null) throw new UsageError(why.sentence, 1);
  throw new UsageError('the kernel addon is not built; run: node scripts/build-native.mjs', 1);
}

/** What dlopen(3) says names files and symbols; a person hears what is wrong with the system, where it is that. */
function notLoaded(error: Error): UsageError {
  const why = whyUnsupported(systemKind())?.sentence;
  const sentence = why ?? `the kernel addon cannot be loaded: ${error.message}; run: node scripts/build-native.mjs`;
  return new UsageError(sentence, 1, { cause: error });
}

/** Room and holes of local files; how the content store gives space back and reads without waiting. */
export class NativeFiles {
  readonly #functions: FileFunctions;

  constructor(functions: FileFunctions = loadAddon<FileFunctions>()) {
    this.#functions = functions;
  }

  /** Gives the range back to the disk; it reads as zeros. The size stays. @throws FsError EOPNOTSUPP where the disk cannot */
  punchHole(fd: number, offset: number, length: number): void {
    checked('punch a hole', this.#functions.punchHole(fd, offset, length));
  }

  /** Reserves room for the range; without `keepSize` the file grows to its end. @throws FsError ENOSPC, EOPNOTSUPP */
  allocate(fd: number, offset: number, length: number, keepSize: 'keep-size' | 'grow'): void {
    checked('reserve room', this.#functions.allocate(fd, offset, length, keepSize === 'keep-size' ? 1 : 0));
  }

  /** Bytes that the file occupies on its disk, holes left out. */
  allocatedBytes(fd: number): number {
    return checked('measure a file', this.#functions.allocatedBytes(fd));
  }

  /**
   * Locks the file (flock(2)) until its descriptor is closed, however the process ends, and without waiting.
   *
   * @returns false when somebody has it, in another container or process @throws FsError where the file system knows no locks
   */
  lock(fd: number, how: 'alone' | 'shared'): boolean {
    const result = this.#functions.lock(fd, how === 'alone' ? 1 : 0);
    return result !== -constants.errno.EWOULDBLOCK && checked('lock a file', result) === 0;
  }

  /**
   * Fills `bytes` from `position` as far as the page cache has it, without waiting for the disk.
   *
   * @returns bytes read, possibly fewer than asked for (0: the end of the file), or null when the disk would have to be asked
   */
  preadNowait(fd: number, bytes: Uint8Array, position: number): number | null {
    const result = this.#functions.preadNowait(fd, bytes, position);
    return result === -constants.errno.EAGAIN ? null : checked('read a file', result);
  }
}

/**
 * Sends one message to a datagram socket of unix(7), which Node has none of; a path that begins with `@` is abstract.
 *
 * @throws FsError with the errno
 */
export function sendDatagram(path: string, text: string): void {
  const addon = loadAddon<{ sendDatagram(path: string, text: string): number }>();
  checked(`send a message to ${path}`, addon.sendDatagram(path, text));
}

/** A result of the addon, or its negative errno as an error that says what was tried. */
export function checked(what: string, result: number): number {
  if (result >= 0) return result;
  const errno = errnoOf(result);
  throw new FsError(errno, `could not ${what}: ${errno}`);
}

/** The name of a negative errno. */
export function errnoOf(negative: number): Errno {
  const name = getSystemErrorName(negative);
  return (/^unknown/i.test(name) ? (errnoNameOf(-negative) ?? 'EIO') : name) as Errno;
}

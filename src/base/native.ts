import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';
import { getSystemErrorName } from 'node:util';
import { type Errno, errnoNameOf, FsError, UsageError } from './errors.ts';
import { systemKind, whyUnsupported } from './supported-system.ts';

/**
 * Loads the addon (native-deps/fuse-kernel) and wraps its functions that are unrelated to FUSE: fallocate(2) and
 * non-blocking reads. `kernel/kernel-addon.ts` types the rest.
 */

/**
 * Possible locations of the addon, relative to src/base and dist/base alike: built here, or shipped in the npm package.
 */
const PLACES = ['build', `prebuilds/${process.platform}-${process.arch}`];

/** The installed package brings the addon, and not its sources. */
const CURE = 'in a clone run: node scripts/build-native.mjs; otherwise install the package again';

/** The functions of files.c; they return a negative errno instead of throwing. */
interface FileFunctions {
  punchHole(fd: number, offset: number, length: number): number;
  allocate(fd: number, offset: number, length: number, keepSize: 0 | 1): number;
  allocatedBytes(fd: number): number;
  lock(fd: number, exclusive: 0 | 1): number;
  preadNowait(fd: number, bytes: Uint8Array, position: number): number;
}

/**
 * The addon, loaded once per thread (`require` caches it).
 *
 * @throws UsageError if it was not built, or cannot be loaded on this system
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
  throw new UsageError(`the kernel addon is not built; ${CURE}`, 1);
}

/** A program that is built beside the addon; null if it was not built. */
export function programBesideAddon(name: string): string | null {
  const path = (place: string): string =>
    fileURLToPath(new URL(`../../native-deps/fuse-kernel/${place}/${name}`, import.meta.url));
  return PLACES.map(path).find((each) => existsSync(each)) ?? null;
}

/** dlopen(3) reports files and symbols; if the system is unsupported, the message says that instead. */
function notLoaded(error: Error): UsageError {
  const why = whyUnsupported(systemKind())?.sentence;
  const sentence = why ?? `the kernel addon cannot be loaded: ${error.message}; ${CURE}`;
  return new UsageError(sentence, 1, { cause: error });
}

/** Space management and non-blocking reads of local files, for the content store. */
export class NativeFiles {
  readonly #functions: FileFunctions;

  constructor(functions: FileFunctions = loadAddon<FileFunctions>()) {
    this.#functions = functions;
  }

  /**
   * Deallocates the range, which then reads as zeros. The size stays. @throws FsError EOPNOTSUPP if the file system
   * does not support it
   */
  punchHole(fd: number, offset: number, length: number): void {
    checked('punch a hole', this.#functions.punchHole(fd, offset, length));
  }

  /** Allocates space for the range; without `keepSize` the file grows to its end. @throws FsError ENOSPC, EOPNOTSUPP */
  allocate(fd: number, offset: number, length: number, keepSize: 'keep-size' | 'grow'): void {
    checked('reserve room', this.#functions.allocate(fd, offset, length, keepSize === 'keep-size' ? 1 : 0));
  }

  /** Allocated bytes of the file, without holes. */
  allocatedBytes(fd: number): number {
    return checked('measure a file', this.#functions.allocatedBytes(fd));
  }

  /**
   * Locks the file (flock(2)) without waiting, until its descriptor is closed or the process ends.
   *
   * @returns false if another process or container has the lock @throws FsError if the file system does not support
   * locks
   */
  lock(fd: number, how: 'alone' | 'shared'): boolean {
    const result = this.#functions.lock(fd, how === 'alone' ? 1 : 0);
    return result !== -constants.errno.EWOULDBLOCK && checked('lock a file', result) === 0;
  }

  /**
   * Fills `bytes` from `position` with data in the page cache, without waiting for the disk.
   *
   * @returns bytes read, possibly fewer than requested (0: the end of the file), or null if a disk read would be needed
   */
  preadNowait(fd: number, bytes: Uint8Array, position: number): number | null {
    const result = this.#functions.preadNowait(fd, bytes, position);
    return result === -constants.errno.EAGAIN ? null : checked('read a file', result);
  }
}

/**
 * Sends one message to a datagram socket of unix(7), which Node does not support; a path that begins with `@` is
 * abstract.
 *
 * @throws FsError with the errno
 */
export function sendDatagram(path: string, text: string): void {
  const addon = loadAddon<{ sendDatagram(path: string, text: string): number }>();
  checked(`send a message to ${path}`, addon.sendDatagram(path, text));
}

/**
 * Receives from a non-blocking stream socket, and waits awake for the first byte.
 *
 * @returns the number of bytes; 0: none within `waitNs`, the end, or an error
 */
export type ReceiveAwake = (descriptor: number, target: Uint8Array, waitNs: number) => number;

/** @returns null where the addon cannot be loaded: the caller has a slower way */
export function loadReceiveAwake(): ReceiveAwake | null {
  try {
    const { receiveAwake } = loadAddon<{ readonly receiveAwake?: ReceiveAwake }>();
    return receiveAwake === undefined ? null : (...words) => Math.max(0, receiveAwake(...words));
  } catch {
    return null;
  }
}

/**
 * Keeps a buffer until this thread ends. V8 does not count its bytes any more when it decides to collect all garbage (ADR 28).
 *
 * @returns whether they are not counted; false from Node 24 on, and where the addon cannot be loaded
 */
export function keepUncounted(buffer: ArrayBuffer): boolean {
  try {
    return loadAddon<{ keepUncounted(buffer: ArrayBuffer): number }>().keepUncounted(buffer) > 0;
  } catch {
    return false;
  }
}

/**
 * Makes `onto` a descriptor of the open file of `fd`, dup2(2): other threads see the old file or the new one, never none.
 *
 * @throws FsError with the errno
 */
export function duplicateDescriptor(fd: number, onto: number): void {
  const addon = loadAddon<{ duplicate(fd: number, onto: number): number }>();
  checked('redirect an output', addon.duplicate(fd, onto));
}

/** Returns a result of the addon, or throws its negative errno with the name of the attempted operation. */
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

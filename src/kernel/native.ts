import { loadAddon } from '../base/native.ts';

/**
 * The kernel part of our addon (native-deps/fuse-kernel) as types. Functions return a negative errno instead of throwing.
 * Numbers of the layout below are repeated in connection.c; `test/kernel/native.test.ts` compares them.
 */
export interface KernelAddon {
  openDevice(): number;
  mount(source: string, directory: string, type: string, flags: number, data: string): number;
  unmount(directory: string, flags: number): number;
  /** The two ends of a socket pair, or [] when there is none to have. */
  socketPair(): readonly number[];
  receiveDescriptor(socket: number): number;
  closeDescriptor(fd: number): number;
  abandonDescriptor(fd: number): number;
  /**
   * Serves `fd` in the loop of the calling thread and owns it from now on.
   *
   * `onBatch(count)`: `count` requests stand in the region, described by the control words; each must be answered in place
   * (ITEM_REPLY) or taken (TAKEN) before it returns, else the addon answers EIO. `onUnsent(count)`: replies of that batch with a
   * nonzero ITEM_ERRNO did not reach the kernel. `onEnded(errno)`: nothing more will come; ENODEV means unmounted. `slowReplyNs`: after
   * a long reply to READ that took this long, the pool sends the next ones.
   */
  openConnection(
    fd: number,
    smallSlots: number,
    largeSlots: number,
    slowReplyNs: number,
    onBatch: (count: number) => void,
    onUnsent: (count: number) => void,
    onEnded: (errno: number) => void,
  ): AddonConnection | number;
}

export interface AddonConnection {
  readonly region: ArrayBuffer;
  /** Where the scratch area starts: SCRATCH_BYTES in which one message at a time is put together. */
  readonly scratchStart: number;
  /** Writes the reply that stands in the region. */
  send(offset: number, length: number): number;
  /**
   * A reply to READ from Uint8Arrays and slices of files (Float64Array of descriptor, position, length).
   *
   * @returns 0 when sent; 1 when a thread of the pool reads and sends it (what is not in the page cache, long replies while they take
   *   long): `done(errno)` follows, a failure was answered as EIO
   */
  sendPieces(
    uniqueLow: number,
    uniqueHigh: number,
    pieces: readonly (Uint8Array | Float64Array)[],
    done: (errno: number) => void,
  ): number;
  /** Gives back the slots of a request that was held by ITEM_HELD. */
  release(slot: number, large: number): void;
  /** Queues the message that stands in the region for the notifying threads. @returns 0 when `queueMax` wait already */
  notify(offset: number, length: number, queueMax: number): number;
  /** [notifications written, unknown to the kernel, failed, waiting, free small slots, free large slots, slow replies left to the pool] */
  counts(): readonly number[];
  close(): void;
}

/** Control words of the i-th request of a batch: words[i * ITEM_WORDS + …], at the start of the region. */
export const ITEM_REQUEST = 0;
export const ITEM_DATA = 1;
export const ITEM_SLOT = 2;
export const ITEM_LARGE = 3;
export const ITEM_SLOT_START = 4;
export const ITEM_REPLY = 5;
export const ITEM_HELD = 6;
export const ITEM_ERRNO = 7;
export const ITEM_WORDS = 8;

/** In ITEM_REPLY: no reply is due, or it is sent by other means. */
export const TAKEN = 0xffffffff;

export const BATCH_MAX = 32;
export const SMALL_SLOT_BYTES = 8192;
/** Longest payload in either direction: max_write, and the longest read. */
export const PAYLOAD_BYTES_MAX = 1024 * 1024;
/** Most pieces of one reply to READ: more are not taken. */
export const PIECES_MAX = 1000;
export const SCRATCH_BYTES = 4096 + PAYLOAD_BYTES_MAX;

export function loadKernelAddon(): KernelAddon {
  return loadAddon<KernelAddon>();
}

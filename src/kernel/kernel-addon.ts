import { loadAddon } from '../base/native.ts';

/**
 * Types of the kernel part of the addon (native-deps/fuse-kernel). Functions return a negative errno instead of throwing. connection.c
 * repeats the numbers of the layout below; `test/kernel/native.test.ts` compares them.
 */
export interface KernelAddon {
  openDevice(): number;
  mount(source: string, directory: string, type: string, flags: number, data: string): number;
  unmount(directory: string, flags: number): number;
  /** The two ends of a socket pair, or [] if none can be created. */
  socketPair(): readonly number[];
  receiveDescriptor(socket: number): number;
  /** Sends one byte to the keeper, with a descriptor unless `fd` is -1. */
  sendMessage(socket: number, byte: number, fd: number): number;
  closeDescriptor(fd: number): number;
  abandonDescriptor(fd: number): number;
  /**
   * Serves `fd` in the loop of the calling thread and owns it from now on.
   *
   * `onBatch(count)`: the region holds `count` requests, described by the control words. Each must get its reply in place (ITEM_REPLY) or be
   * taken (TAKEN) before it returns, otherwise the addon replies EIO. `onUnsent(count)`: replies of that batch with a nonzero ITEM_ERRNO did
   * not reach the kernel. `onEnded(errno)`: no further request follows; ENODEV means unmounted. `slowReplyNs`: after a long reply to READ
   * that took this long, the pool sends the next ones. `memory`: the keeper's memfd, in which the region and `recordsBytes` of handover
   * state outlive this process.
   */
  openConnection(
    fd: number,
    smallSlots: number,
    largeSlots: number,
    slowReplyNs: number,
    onBatch: (count: number) => void,
    onUnsent: (count: number) => void,
    onEnded: (errno: number) => void,
    memory?: number,
    recordsBytes?: number,
  ): AddonConnection | number;
}

export interface AddonConnection {
  readonly region: ArrayBuffer;
  /** The start of the scratch area: SCRATCH_BYTES for encoding one message at a time. */
  readonly scratchStart: number;
  /** The start of the handover state, in a region in the keeper's memory. */
  readonly recordsStart: number;
  /** Writes a reply from the region. */
  send(offset: number, length: number): number;
  /**
   * A reply to READ from Uint8Arrays and slices of files (Float64Array of descriptor, position, length).
   *
   * @returns 0 when sent; 1 when a thread of the pool reads and sends it (bytes outside the page cache, or long replies while they are slow):
   *   `done(errno)` follows, and a failure was replied as EIO
   */
  sendPieces(
    uniqueLow: number,
    uniqueHigh: number,
    pieces: readonly (Uint8Array | Float64Array)[],
    done: (errno: number) => void,
  ): number;
  /** Releases the slots of a request that ITEM_HELD kept. */
  release(slot: number, large: number): void;
  /**
   * Queues a message from the region for the notifier threads. @returns 0 when `queueMax` already wait
   *
   * @param row where 8 bytes of the region are set to 0 as soon as the message is written; 0: nowhere
   */
  notify(offset: number, length: number, queueMax: number, row: number): number;
  /** [notifications written, unknown to the kernel, failed, waiting, free small slots, free large slots, slow replies left to the pool] */
  counts(): readonly number[];
  /** Lets the kernel send unanswered requests of an earlier process again. */
  resend(): number;
  /**
   * Passes those in the keeper's memory to `onBatch`, in their order.
   *
   * @param isResent only those that take no reply (FORGET): the kernel sends the others again
   * @returns how many
   */
  inherit(isResent: boolean): number;
  /** The request of a held slot has its reply. */
  answered(slot: number): void;
  close(): void;
}

/** Control words of the i-th request of a batch: words[i * ITEM_WORDS + …], at the start of the region. */
export const ITEM_REQUEST = 0;
export const ITEM_DATA = 1;
export const ITEM_SLOT = 2;
export const ITEM_LARGE = 3;
/** Where the reply is encoded, outside of the request: a successor may need that. */
export const ITEM_OUT = 4;
export const ITEM_REPLY = 5;
export const ITEM_HELD = 6;
export const ITEM_ERRNO = 7;
export const ITEM_INHERITED = 8;
export const ITEM_WORDS = 9;

/** In ITEM_REPLY: no reply is due, or it is sent another way. */
export const TAKEN = 0xffffffff;

export const BATCH_MAX = 32;
export const SMALL_SLOT_BYTES = 8192;
/** Longest payload in either direction: max_write, and the longest read. */
export const PAYLOAD_BYTES_MAX = 1024 * 1024;
/** The most pieces in one reply to READ. */
export const PIECES_MAX = 1000;
export const SCRATCH_BYTES = 4096 + PAYLOAD_BYTES_MAX;

export function loadKernelAddon(): KernelAddon {
  return loadAddon<KernelAddon>();
}

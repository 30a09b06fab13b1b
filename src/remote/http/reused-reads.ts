import type { OnReadOpts, Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';

/** Largest read from a socket. Node itself allocates 64 KiB for each. */
const READ_BYTES = 128 * 1024;
/**
 * Shorter reads are copied. This exceeds the header size limit: undici keeps views of an incomplete header, whose
 * memory must not be overwritten.
 */
const SHARED_BYTES_MIN = 64 * 1024;
/** Data shorter than half of a buffer gets memory of its own length. */
const PIECE_BYTES_MIN = READ_BYTES / 2;
/**
 * Spare buffers: as many as eight connections use when they outrun the disk. Each buffer dropped instead is 128 KiB
 * outside V8's heap, and some hundred of them trigger a full garbage collection.
 */
const SPARE_MAX = 192;
/** Spare buffers kept while no download returns any. */
const SPARE_RESTING_MAX = 32;
const REST_MS = 5_000;

/**
 * Reads sockets into one shared buffer and copies body bytes into recycled buffers (ADR 16). Memory that Node allocates
 * for each read is short-lived, yet lives just long enough to make its collection expensive.
 *
 * undici still takes its bytes from the socket, but within the callback of the read: after it returns, only copies of
 * the shared buffer's contents remain.
 */
export class ReusedReads {
  readonly #clock: Clock;
  readonly #buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #spare: Buffer[] = [];
  /** Buffers in use. Only these can be returned, and only once. */
  readonly #lent = new WeakMap<ArrayBufferLike, Buffer>();
  /** No buffer was returned since the last timer tick. */
  #isResting = false;
  #isRestAwaited = false;

  constructor(deps: { clock: Clock }) {
    this.#clock = deps.clock;
  }

  /** For `net.connect`. */
  readonly onread: OnReadOpts = { buffer: this.#buffer, callback: passOn };

  /** `chunk`, or a copy of it where the next read would overwrite it. */
  kept(chunk: Uint8Array): Uint8Array {
    if (chunk.buffer !== this.#buffer.buffer) return chunk;
    // A chunked body may arrive in tiny chunks, which must not occupy a whole buffer each.
    if (chunk.byteLength < PIECE_BYTES_MIN) return Buffer.from(chunk);
    const piece = this.#spare.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES);
    this.#lent.set(piece.buffer, piece);
    piece.set(chunk);
    return piece.subarray(0, chunk.byteLength);
  }

  /**
   * Recycles a chunk returned by `kept`, which must no longer be read. The garbage collector frees chunks that are not
   * returned.
   */
  takeBack(chunk: Uint8Array): void {
    const piece = this.#lent.get(chunk.buffer);
    if (piece === undefined) return;
    this.#lent.delete(chunk.buffer);
    if (this.#spare.length < SPARE_MAX) this.#spare.push(piece);
    this.#isResting = false;
    if (this.#spare.length > SPARE_RESTING_MAX) this.#awaitRest();
  }

  #awaitRest(): void {
    if (this.#isRestAwaited) return;
    this.#isRestAwaited = true;
    this.#clock.after(REST_MS, () => {
      this.#isRestAwaited = false;
      if (this.#isResting) this.#spare.splice(SPARE_RESTING_MAX);
      if (this.#spare.length <= SPARE_RESTING_MAX) return;
      this.#isResting = true;
      this.#awaitRest();
    });
  }
}

/** @returns whether to continue reading; if not, the stream resumes automatically once it is drained */
function passOn(this: unknown, bytes: number, buffer: Uint8Array): boolean {
  const socket = this as Socket; // Node calls it as a method of the socket, its types do not say so.
  if (bytes < SHARED_BYTES_MIN) return socket.push(Buffer.from(buffer.subarray(0, bytes)));
  socket.push(buffer.subarray(0, bytes));
  socket.emit('readable');
  // Bytes that a paused reader left unread: the next read must not overwrite them.
  const left: Buffer | null = socket.readableLength > 0 ? socket.read() : null;
  if (left !== null) socket.unshift(Buffer.from(left));
  return socket.readableLength < socket.readableHighWaterMark;
}

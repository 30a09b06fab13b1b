import type { OnReadOpts, Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';

/** What one read of a socket may bring. Node itself allots 64 KiB for each. */
const READ_BYTES = 128 * 1024;
/**
 * Shorter reads are passed on as copies. It is more than all headers of an answer may have: undici keeps views of a header whose rest
 * is yet to come, and these must not change under it.
 */
const SHARED_BYTES_MIN = 64 * 1024;
/** What fills less than half of a piece gets memory of its own length. */
const PIECE_BYTES_MIN = READ_BYTES / 2;
/**
 * Pieces that wait to be filled again: as many as eight connections have in hand that bring more than the disk takes at once. Each one that is
 * dropped instead is 128 KiB outside of V8's heap, and some hundred of them make V8 mark all of it.
 */
const SPARE_MAX = 192;
/** So many of them stay when no download has given one back for a while. */
const SPARE_RESTING_MAX = 32;
const REST_MS = 5_000;

/**
 * Reads of sockets into one buffer, and the pieces into which a body's bytes are copied from there, which go round (ADR 16). Memory that Node
 * allots for each read is garbage a moment later, and lives just long enough to make its collection dear.
 *
 * undici takes its bytes from the socket as ever, only that it is told of them within the read's callback: when that returns, nobody
 * has a view of the buffer but who copied.
 */
export class ReusedReads {
  readonly #clock: Clock;
  readonly #buffer = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #spare: Buffer[] = [];
  /** Memory that is out. Only this comes back, and once. */
  readonly #lent = new WeakMap<ArrayBufferLike, Buffer>();
  /** Nothing came back since the clock was asked last. */
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
    // A chunked body may come in crumbs: a whole piece for each would be a lot of memory for little.
    if (chunk.byteLength < PIECE_BYTES_MIN) return Buffer.from(chunk);
    const piece = this.#spare.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES);
    this.#lent.set(piece.buffer, piece);
    piece.set(chunk);
    return piece.subarray(0, chunk.byteLength);
  }

  /** Takes back what `kept` gave, to fill it again: nobody may read it any more. What is not given back is the collector's. */
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

/** @returns whether the socket is to be read on; if not, its stream begins again by itself when it has been emptied */
function passOn(this: unknown, bytes: number, buffer: Uint8Array): boolean {
  const socket = this as Socket; // Node calls it as a method of the socket, its types do not say so.
  if (bytes < SHARED_BYTES_MIN) return socket.push(Buffer.from(buffer.subarray(0, bytes)));
  socket.push(buffer.subarray(0, bytes));
  socket.emit('readable');
  // Left by a reader that has paused, in the middle of it or before: the next read must not overwrite it.
  const left: Buffer | null = socket.readableLength > 0 ? socket.read() : null;
  if (left !== null) socket.unshift(Buffer.from(left));
  return socket.readableLength < socket.readableHighWaterMark;
}

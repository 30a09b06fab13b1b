import { ProtocolError } from '../../base/errors.ts';
import { AnswerHead, type AnswerHeaders } from './answer-head.ts';
import type { ReusedReads } from './reused-reads.ts';

/** Control over the connection that carries the response. */
export interface AnswerSource {
  pause(): void;
  resume(): void;
  /** Ends the connection: nothing more comes. */
  abort(reason: Error): void;
}

/** Bytes buffered for a slow reader before the connection is paused. */
const WAITING_BYTES_MAX = 512 * 1024;
/**
 * An unread remainder up to this length is drained to keep the connection; beyond it, closing the connection is
 * cheaper.
 */
const DISCARD_BYTES_MAX = 256 * 1024;

/**
 * One response: status, headers, and a body that is read once, as it arrives. Memory is bounded: a reader that stops
 * reading stops the connection. A body that breaks off rejects; it never ends normally.
 */
export class Answer extends AnswerHead implements AsyncIterable<Uint8Array> {
  readonly #source: AnswerSource;
  readonly #reads: ReusedReads;
  readonly #chunks: Uint8Array[] = [];
  #waitingBytes = 0;
  #paused = false;
  #ended = false;
  #failure: Error | null = null;
  #wake: (() => void) | null = null;

  constructor(status: number, headers: AnswerHeaders, source: AnswerSource, reads: ReusedReads) {
    super(status, headers);
    this.#source = source;
    this.#reads = reads;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for (;;) {
        const chunk = this.#chunks.shift();
        if (chunk !== undefined) {
          this.#waitingBytes -= chunk.byteLength;
          if (this.#paused && this.#waitingBytes <= WAITING_BYTES_MAX / 2) {
            this.#paused = false;
            this.#source.resume();
          }
          yield chunk;
          continue;
        }
        if (this.#failure !== null) throw this.#failure;
        if (this.#ended) return;
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    } finally {
      // The reader left early: the remaining bytes are not needed.
      if (!this.#ended && this.#failure === null) this.#source.abort(new Error('the rest of the answer is not wanted'));
    }
  }

  /** The whole body. @throws ProtocolError beyond `bytesMax` */
  async bytes(bytesMax: number): Promise<Buffer> {
    const chunks: Uint8Array[] = [];
    let length = 0;
    for await (const chunk of this) {
      length += chunk.byteLength;
      if (length > bytesMax) throw new ProtocolError(`an answer of more than ${bytesMax} bytes`);
      chunks.push(chunk);
    }
    return chunks.length === 1 ? Buffer.from(chunks[0] as Uint8Array) : Buffer.concat(chunks);
  }

  /**
   * Drains a short remainder; closes the connection if the remainder is long. Never throws.
   * @returns a lower bound of the remainder in bytes; null if it broke off
   */
  async discard(): Promise<number | null> {
    let length = 0;
    try {
      for await (const chunk of this) {
        length += chunk.byteLength;
        if (length > DISCARD_BYTES_MAX) break;
      }
    } catch {
      return null; // the body is discarded in any case
    }
    return length;
  }

  /**
   * Returns a chunk of the body that is no longer read, for reuse. Optional: the garbage collector frees it as well.
   */
  takeBack(chunk: Uint8Array): void {
    this.#reads.takeBack(chunk);
  }

  /** For the transport: bytes arrived. */
  arrived(chunk: Uint8Array): void {
    this.#chunks.push(this.#reads.kept(chunk));
    this.#waitingBytes += chunk.byteLength;
    if (!this.#paused && this.#waitingBytes > WAITING_BYTES_MAX) {
      this.#paused = true;
      this.#source.pause();
    }
    this.#awake();
  }

  /** For the transport: the body is complete, or broke off. */
  finished(failure: Error | null): void {
    if (this.#ended || this.#failure !== null) return;
    if (failure === null) this.#ended = true;
    else this.#failure = failure;
    this.#awake();
  }

  #awake(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }
}

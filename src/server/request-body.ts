import type { IncomingMessage } from 'node:http';

/**
 * A request body as it arrives. It listens from the start: Node discards unread bytes, and bytes that came before a cut
 * must be kept even if the request was queued.
 */
export class RequestBody {
  readonly #request: IncomingMessage;
  #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  #isDiscarded = false;
  #ended: 'complete' | 'interrupted' | null = null;
  #wake: (() => void) | null = null;

  /** @param isEmpty the head announces no body: there is nothing to wait for */
  constructor(request: IncomingMessage, isEmpty = false) {
    this.#request = request;
    if (isEmpty) {
      this.#ended = 'complete';
      return;
    }
    request.on('data', (chunk: Uint8Array) => this.#arrived(chunk));
    request.on('end', () => this.#end('complete'));
    // Also if `request.complete` is true: it covers bytes received, but a closing connection drops those not yet
    // delivered.
    request.on('close', () => this.#end('interrupted'));
  }

  /** Whether all of it was received. */
  get isComplete(): boolean {
    return this.#ended === 'complete';
  }

  /** Whether `next` waits for the sender. */
  get isAwaited(): boolean {
    return this.#wake !== null;
  }

  /** The bytes received since the last call, at least one; null at the end. The sender is throttled meanwhile. */
  async next(): Promise<Uint8Array[] | null> {
    while (this.#queue.length === 0) {
      if (this.#ended !== null) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const chunks = this.#queue;
    this.#queue = [];
    this.#queuedBytes = 0;
    if (this.#request.isPaused()) this.#request.resume();
    return chunks;
  }

  /** Drains the body. @returns resolves at the end, or after `bytesMax` more bytes */
  async discard(bytesMax: number): Promise<void> {
    this.#isDiscarded = true;
    this.#queue = [];
    this.#queuedBytes = 0;
    this.#request.resume();
    while (this.#ended === null && this.#queuedBytes < bytesMax) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #arrived(chunk: Uint8Array): void {
    this.#queuedBytes += chunk.byteLength;
    if (!this.#isDiscarded) {
      this.#queue.push(chunk);
      if (this.#queuedBytes >= QUEUED_BYTES_MAX) this.#request.pause();
    }
    this.#awake();
  }

  #end(how: 'complete' | 'interrupted'): void {
    this.#ended ??= how;
    this.#awake();
  }

  #awake(): void {
    this.#wake?.();
    this.#wake = null;
  }
}

/** Limit of queued bytes; as many again may be in transit to the disk. */
const QUEUED_BYTES_MAX = 1024 * 1024;

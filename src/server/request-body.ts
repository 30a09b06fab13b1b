import type { IncomingMessage } from 'node:http';

/**
 * A request's body as it arrives. Listens from the first moment on: what came before a line broke is kept, also when the
 * request had to wait for its turn; Node throws away what nobody read.
 */
export class RequestBody {
  readonly #request: IncomingMessage;
  #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  #isDiscarded = false;
  #ended: 'complete' | 'interrupted' | null = null;
  #wake: (() => void) | null = null;

  constructor(request: IncomingMessage) {
    this.#request = request;
    request.on('data', (chunk: Uint8Array) => this.#arrived(chunk));
    request.on('end', () => this.#end('complete'));
    // Also where `request.complete` is true: that says what has come, and a line that ends takes along what was not handed on yet.
    request.on('close', () => this.#end('interrupted'));
  }

  /** Whether all of it has come; false also while it is still on its way. */
  get isComplete(): boolean {
    return this.#ended === 'complete';
  }

  /** What has come since the last call, waiting for something; null when nothing more will. The sender is held back meanwhile. */
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

  /** Reads on without keeping anything. @returns resolves at the end, or after `bytesMax` more */
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

/** Of what waits to be taken; as many again may be on their way to the disk. */
const QUEUED_BYTES_MAX = 1024 * 1024;

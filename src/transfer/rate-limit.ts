import type { Clock } from '../base/clock.ts';

/** Priority while the limit delays transfers. */
export type Urgency = 'now' | 'later';

/** Maximum delay of `later` transfers in favour of `now` ones: a reader may have joined a transfer that began as `later`. */
const LATER_MS_MAX = 1000;
/** Burst after a pause, as time. It is short, so that the rate never looks unlimited. */
const BURST_MS = 100;
const DEAL_BYTES_MAX = 64 * 1024;
const DEAL_BYTES_MIN = 1024;

interface Taker {
  readonly urgency: Urgency;
  readonly sinceMs: number;
  bytesLeft: number;
  readonly served: () => void;
}

/**
 * A token bucket for one direction. Tokens are dealt in turns of equal size, so that transfers share the rate equally, whatever the length of
 * their pieces. Transfers that a program waits for come first. The rate may change at any time, also for running transfers. Without a rate
 * (null) no transfer waits.
 */
export class RateLimit {
  readonly #clock: Clock;
  /** null: no limit. */
  #bytesPerSecond: number | null = null;
  #bytesPerMs = 0;
  #burstBytes = 0;
  #dealBytes = DEAL_BYTES_MAX;
  readonly #takers: Taker[] = [];
  /** Bytes that may pass now; below 0 after a turn that exceeded the tokens. */
  #bytes = 0;
  #filledMs = 0;
  #cancelTimer: (() => void) | null = null;

  constructor(deps: { clock: Clock; bytesPerSecond: number | null }) {
    this.#clock = deps.clock;
    this.bytesPerSecond = deps.bytesPerSecond;
  }

  /** null: no limit. */
  get bytesPerSecond(): number | null {
    return this.#bytesPerSecond;
  }

  set bytesPerSecond(bytesPerSecond: number | null) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    if (bytesPerSecond === null) {
      for (const { served } of this.#takers.splice(0)) served();
      return;
    }
    this.#bytesPerMs = bytesPerSecond / 1000;
    this.#dealBytes = Math.round(Math.min(DEAL_BYTES_MAX, Math.max(DEAL_BYTES_MIN, this.#bytesPerMs * BURST_MS)));
    this.#burstBytes = Math.max(this.#bytesPerMs * BURST_MS, this.#dealBytes);
    this.#bytes = this.#burstBytes;
    this.#filledMs = this.#clock.elapsedMs();
    if (this.#takers.length > 0) this.#serve();
  }

  /** Resolves when `bytes` more may pass. Rejects with the signal's reason if the wait is aborted. */
  take(bytes: number, urgency: Urgency, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#bytesPerSecond === null) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const aborted = (): void => {
        const at = this.#takers.indexOf(taker);
        if (at !== -1) this.#takers.splice(at, 1);
        reject(signal.reason);
      };
      const taker: Taker = {
        urgency,
        sinceMs: this.#clock.elapsedMs(),
        bytesLeft: bytes,
        served: () => {
          signal.removeEventListener('abort', aborted);
          resolve();
        },
      };
      signal.addEventListener('abort', aborted, { once: true });
      this.#takers.push(taker);
      // Otherwise the timer serves the turn.
      if (this.#cancelTimer === null) this.#serve();
    });
  }

  /** Yields `chunks` at the permitted rate. */
  async *paced(chunks: AsyncIterable<Uint8Array>, urgency: Urgency, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      if (this.#bytesPerSecond === null) {
        yield chunk;
        continue;
      }
      // A large chunk passes in several turns: at once, it would leave the connection silent before and after it.
      for (let at = 0, deal = 0; at < chunk.byteLength; at += deal) {
        deal = this.#dealBytes; // may change meanwhile
        const part = chunk.subarray(at, at + deal);
        await this.take(part.byteLength, urgency, signal);
        yield part;
      }
    }
  }

  #serve(): void {
    this.#cancelTimer = null;
    const nowMs = this.#clock.elapsedMs();
    this.#bytes = Math.min(this.#burstBytes, this.#bytes + (nowMs - this.#filledMs) * this.#bytesPerMs);
    this.#filledMs = nowMs;
    while (this.#bytes > 0) {
      const at = this.#next(nowMs);
      const [taker] = at === -1 ? [] : this.#takers.splice(at, 1);
      if (taker === undefined) return;
      const bytes = Math.min(taker.bytesLeft, this.#dealBytes);
      this.#bytes -= bytes;
      taker.bytesLeft -= bytes;
      if (taker.bytesLeft === 0) taker.served();
      else this.#takers.push(taker);
    }
    if (this.#takers.length === 0) return;
    const waitMs = Math.max(1, Math.ceil(-this.#bytes / this.#bytesPerMs));
    this.#cancelTimer = this.#clock.after(waitMs, () => this.#serve());
  }

  /** Index of the next turn to serve; -1 for none. */
  #next(nowMs: number): number {
    const first = this.#takers.findIndex(
      ({ urgency, sinceMs }) => urgency === 'now' || nowMs - sinceMs >= LATER_MS_MAX,
    );
    return first === -1 && this.#takers.length > 0 ? 0 : first;
  }
}

import type { Clock } from '../base/clock.ts';

/** Who is served first where there is less than everybody wants. */
export type Urgency = 'now' | 'later';

/** Nobody waits longer than so for those who are served first: a reader may have joined what was begun for later. */
const LATER_MS_MAX = 1000;
/** What may go at once after a pause, as time: short enough that a line never looks as if there were no limit. */
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
 * A token bucket for one direction of the line. What it gives out is dealt in turns of equal size, so that transfers share it
 * fairly whatever the length of their pieces; those that a program waits for come first. The rate may change at any time, also for
 * running transfers; without a rate (null) nothing waits.
 */
export class RateLimit {
  readonly #clock: Clock;
  /** null: no limit. */
  #bytesPerSecond: number | null = null;
  #bytesPerMs = 0;
  #burstBytes = 0;
  #dealBytes = DEAL_BYTES_MAX;
  readonly #takers: Taker[] = [];
  /** Bytes that may go now; below 0 after a turn that took more than there was. */
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

  /** Resolves when `bytes` more may go; rejects with the signal's reason when that is not wanted any more. */
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
      // A timer that is set serves it in turn.
      if (this.#cancelTimer === null) this.#serve();
    });
  }

  /** `chunks` as fast as they may go. */
  async *paced(chunks: AsyncIterable<Uint8Array>, urgency: Urgency, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      if (this.#bytesPerSecond === null) {
        yield chunk;
        continue;
      }
      // In turns of one deal: a large piece that came all at once would make the line look silent before and after it.
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

  /** Index of who is served next; -1 for nobody. */
  #next(nowMs: number): number {
    const first = this.#takers.findIndex(
      ({ urgency, sinceMs }) => urgency === 'now' || nowMs - sinceMs >= LATER_MS_MAX,
    );
    return first === -1 && this.#takers.length > 0 ? 0 : first;
  }
}

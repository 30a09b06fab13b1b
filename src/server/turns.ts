import { Refusal } from './refusal.ts';

/** Limits the concurrency of expensive work; first come, first served. */
export class Turns {
  readonly #waitingMax: number;
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(limits: { readonly atOnceMax: number; readonly waitingMax: number }) {
    this.#free = limits.atOnceMax;
    this.#waitingMax = limits.waitingMax;
  }

  /** @throws Refusal 503 if the queue is full. Disconnected clients stay in the queue, so only this limit bounds it. */
  async inTurn<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else if (this.#waiting.length >= this.#waitingMax) throw new Refusal(503, 'Busy', { 'Retry-After': '1' });
    else await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free++;
      else next();
    }
  }
}

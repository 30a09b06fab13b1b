import { Refusal } from './refusal.ts';

/** Who does the same dear work waits his turn for it, first come first served. */
export class Turns {
  readonly #waitingMax: number;
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(limits: { readonly atOnceMax: number; readonly waitingMax: number }) {
    this.#free = limits.atOnceMax;
    this.#waitingMax = limits.waitingMax;
  }

  /** @throws Refusal 503 where too many wait already: those who have gone away meanwhile are among them, and nothing else ends the row */
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

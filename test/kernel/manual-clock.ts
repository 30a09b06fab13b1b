import type { Clock } from '../../src/base/clock.ts';

/** Time that passes only when told to. Starts at 1000: a moment 0 hides mistakes. */
export class ManualClock implements Clock {
  #elapsedMs = 1000;
  #nextId = 1;
  readonly #waiting = new Map<number, { atMs: number; callback: () => void }>();

  nowMs(): number {
    return 1_700_000_000_000 + this.#elapsedMs;
  }

  elapsedMs(): number {
    return this.#elapsedMs;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  after(ms: number, callback: () => void): () => void {
    const id = this.#nextId++;
    this.#waiting.set(id, { atMs: this.#elapsedMs + ms, callback });
    return () => this.#waiting.delete(id);
  }

  random(): number {
    return 0.5;
  }

  /** Timers that are set. */
  get timers(): number {
    return this.#waiting.size;
  }

  /** Time passes while the process does not run: what is due is called once, afterwards. */
  jump(ms: number): void {
    this.#elapsedMs += ms;
    this.advance(0);
  }

  advance(ms: number): void {
    const endMs = this.#elapsedMs + ms;
    for (;;) {
      const due = [...this.#waiting].filter(([, { atMs }]) => atMs <= endMs).sort(([, a], [, b]) => a.atMs - b.atMs)[0];
      if (due === undefined) break;
      const [id, { atMs, callback }] = due;
      this.#waiting.delete(id);
      this.#elapsedMs = Math.max(this.#elapsedMs, atMs);
      callback();
    }
    this.#elapsedMs = endMs;
  }
}

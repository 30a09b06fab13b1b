import type { Clock } from '../base/clock.ts';

/**
 * A write into the page cache takes 40 µs for 128 KiB. One that takes longer than this was made to wait: by the kernel, for as long as
 * 200 ms, once too much of what was written is not on its disk yet, or for each of its pages, by a host that has to find them.
 */
const HELD_UP_MS = 2;
/** So long after the last of those the next one is tried at once again. */
const QUIET_MS = 1000;

/**
 * Whether the system makes writers wait. The thread that answers the kernel must not be who waits: everybody's stat(2) would wait with
 * it. So the first write that is held up is noticed, and those after it go through the pool (docs/adr/0018-held-up-writes.md).
 */
export class WritePace {
  readonly #clock: Clock;
  #quietAtMs = 0;

  constructor(deps: { clock: Clock }) {
    this.#clock = deps.clock;
  }

  get isHeldUp(): boolean {
    return this.#clock.elapsedMs() < this.#quietAtMs;
  }

  /** Notes how long `write` takes. */
  timed(write: () => void): void {
    const startedMs = this.#clock.elapsedMs();
    write();
    this.#note(startedMs);
  }

  async timedLater(write: () => Promise<void>): Promise<void> {
    const startedMs = this.#clock.elapsedMs();
    await write();
    this.#note(startedMs);
  }

  #note(startedMs: number): void {
    const nowMs = this.#clock.elapsedMs();
    if (nowMs - startedMs > HELD_UP_MS) this.#quietAtMs = nowMs + QUIET_MS;
  }
}

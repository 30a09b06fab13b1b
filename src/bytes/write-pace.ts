import type { Clock } from '../base/clock.ts';

/**
 * A write into the page cache takes 40 µs for 128 KiB. A write that takes longer than this was throttled: by the kernel, for up to
 * 200 ms, when too many pages are dirty, or for each of its pages by a host that has to find them.
 */
const HELD_UP_MS = 2;
/** This long after the last throttled write, the next one is executed directly again. */
const QUIET_MS = 1000;

/**
 * Whether the system throttles writers. The thread that answers the kernel must not block: every stat(2) would wait with it. After
 * the first throttled write, further ones go through the thread pool (docs/adr/0018-held-up-writes.md).
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

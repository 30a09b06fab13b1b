import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';

/** Pause after the first listing without a response; doubled up to the maximum. */
const PAUSE_MS_MIN = 1000;
const PAUSE_MS_MAX = 30_000;

/** Tracks whether listings get a response, whether it is timely, and when to retry during an outage. */
export class Reachability {
  readonly #clock: Clock;
  readonly #log: Logger;
  #away: {
    readonly sinceMs: number;
    readonly retryAtMs: number;
    readonly pauseMs: number;
    readonly error: Error;
  } | null = null;
  #isSlow = false;

  constructor(deps: { readonly clock: Clock; readonly log: Logger }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  /** Start of the current outage (wall, ms); null if there is none. */
  get awaySinceMs(): number | null {
    return this.#away?.sinceMs ?? null;
  }

  /** The error that caused the current pause of requests; null if requests are useful. */
  get pausing(): Error | null {
    return this.#away !== null && this.#clock.elapsedMs() < this.#away.retryAtMs ? this.#away.error : null;
  }

  /** Whether a wait has timed out since the last response: further waits are useless until the next one. */
  get isSlow(): boolean {
    return this.#isSlow;
  }

  answered(): void {
    this.#isSlow = false;
    if (this.#away === null) return;
    this.#log.info({ awayMs: this.#clock.nowMs() - this.#away.sinceMs }, 'the service answers again');
    this.#away = null;
  }

  unanswered(error: Error): void {
    const before = this.#away;
    if (before !== null && this.pausing !== null) {
      // Concurrent requests fail for the same cause: only the first one extends the pause.
      this.#away = { ...before, error };
      return;
    }
    const pauseMs = before === null ? PAUSE_MS_MIN : Math.min(before.pauseMs * 2, PAUSE_MS_MAX);
    // Jitter: many mounts must not return at the same moment.
    const retryAtMs = this.#clock.elapsedMs() + pauseMs * (0.75 + this.#clock.random() / 2);
    if (before === null) this.#log.warn({ err: error }, 'the service does not answer; known entries are served');
    this.#away = { sinceMs: before?.sinceMs ?? this.#clock.nowMs(), retryAtMs, pauseMs, error };
  }

  /** A listing did not arrive before a waiter's time limit. */
  late(): void {
    this.#isSlow = true;
  }

  /** Retry without waiting for the end of the pause. */
  tryNow(): void {
    this.#isSlow = false;
    if (this.#away !== null) this.#away = { ...this.#away, retryAtMs: 0, pauseMs: PAUSE_MS_MIN };
  }
}

import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';

/** Pause after the first listing without an answer before the service is tried again; doubled up to the maximum. */
const PAUSE_MS_MIN = 1000;
const PAUSE_MS_MAX = 30_000;

/** Whether listings get an answer, whether it comes in time, and when to try again while there is none. */
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

  /** Since when the service does not answer (wall, ms); null while it does. */
  get awaySinceMs(): number | null {
    return this.#away?.sinceMs ?? null;
  }

  /** Why asking is known to be of no use for the moment; null when it may be of use. */
  get pausing(): Error | null {
    return this.#away !== null && this.#clock.elapsedMs() < this.#away.retryAtMs ? this.#away.error : null;
  }

  /** Whether somebody waited in vain since the last answer: until there is one, waiting again is of no use. */
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
      // What was asked before the pause fails of the same cause: one more of many that were under way makes no pause longer.
      this.#away = { ...before, error };
      return;
    }
    const pauseMs = before === null ? PAUSE_MS_MIN : Math.min(before.pauseMs * 2, PAUSE_MS_MAX);
    // Jitter: many mounts must not come back in the same moment.
    const retryAtMs = this.#clock.elapsedMs() + pauseMs * (0.75 + this.#clock.random() / 2);
    if (before === null) this.#log.warn({ err: error }, 'the service does not answer; what is known is served');
    this.#away = { sinceMs: before?.sinceMs ?? this.#clock.nowMs(), retryAtMs, pauseMs, error };
  }

  /** A listing did not come in the time that somebody could wait. */
  late(): void {
    this.#isSlow = true;
  }

  /** Ask again without waiting for the pause to end. */
  tryNow(): void {
    this.#isSlow = false;
    if (this.#away !== null) this.#away = { ...this.#away, retryAtMs: 0, pauseMs: PAUSE_MS_MIN };
  }
}

import type { Clock } from '../base/clock.ts';
import { Refusal, unauthorized } from './refusal.ts';

/** A counter of wrong guesses. */
export interface GuessCounter {
  readonly key: string;
  /** Wrong guesses without a pause. */
  readonly free: number;
}

/**
 * Back-off for wrong sign-ins: after the free ones, each wrong guess doubles the pause of its counters.
 *
 * INVARIANT: at most one guess per counter is checked at a time. Concurrent guesses would otherwise be free. Counting
 * them before the check would delay programs that sign in together with the right password.
 */
export class PasswordGuesses {
  readonly #clock: Clock;
  readonly #wrong = new Map<string, { count: number; notBeforeMs: number }>();
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * The user found by `look`, after all earlier guesses of the same counters. A success resets the first counter only:
   * the others also count guesses of other people.
   * @throws Refusal 401 if there is none; 503 during a pause
   */
  inTurn<T>(counters: readonly [GuessCounter, ...GuessCounter[]], look: () => Promise<T | null>): Promise<T> {
    const before = Promise.all(counters.map(({ key }) => this.#last.get(key)));
    const guess = before.then(() => this.#guess(counters, look));
    const done = guess
      .catch(() => {})
      .finally(() => {
        for (const { key } of counters) if (this.#last.get(key) === done) this.#last.delete(key);
      });
    for (const { key } of counters) this.#last.set(key, done);
    return guess;
  }

  async #guess<T>(counters: readonly [GuessCounter, ...GuessCounter[]], look: () => Promise<T | null>): Promise<T> {
    for (const { key } of counters) this.#check(key);
    const found = await look();
    if (found === null) {
      for (const counter of counters) this.#failed(counter);
      throw unauthorized();
    }
    this.#wrong.delete(counters[0].key);
    return found;
  }

  /** @throws Refusal 503 with Retry-After during the pause (docs/service.md 13.3 allows only 5xx besides 400 and 401) */
  #check(key: string): void {
    const waitMs = (this.#wrong.get(key)?.notBeforeMs ?? 0) - this.#clock.elapsedMs();
    if (waitMs <= 0) return;
    throw new Refusal(503, 'Too many wrong passwords', { 'Retry-After': String(Math.ceil(waitMs / 1000)) });
  }

  #failed({ key, free }: GuessCounter): void {
    const before = this.#wrong.get(key);
    const isForgotten = before !== undefined && before.notBeforeMs + FORGOTTEN_MS < this.#clock.elapsedMs();
    const count = isForgotten ? 1 : (before?.count ?? 0) + 1;
    const pauseMs = count < free ? 0 : Math.min(GUESS_PAUSE_MS * 2 ** (count - free), GUESS_PAUSE_MAX_MS);
    this.#wrong.delete(key);
    this.#wrong.set(key, { count, notBeforeMs: this.#clock.elapsedMs() + pauseMs });
    if (this.#wrong.size > COUNTERS_MAX) this.#wrong.delete(this.#wrong.keys().next().value as string);
  }
}

const GUESS_PAUSE_MS = 1000;
const GUESS_PAUSE_MAX_MS = 15 * 60_000;
/** Wrong guesses count together until there was none for this long after the pause. */
const FORGOTTEN_MS = 24 * 3600_000;
const COUNTERS_MAX = 100_000;

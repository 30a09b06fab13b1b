import type { Clock } from '../base/clock.ts';
import { Refusal, unauthorized } from './refusal.ts';

/** A counter of wrong guesses. */
export interface GuessCounter {
  readonly key: string;
  /** Wrong guesses without a pause. */
  readonly free: number;
}

/** Where wrong guesses are counted. */
export interface GuessTable {
  /** Until the last pause of these counters is over; not positive if there is none. */
  waitMs(keys: readonly string[]): number | Promise<number>;
  failed(counter: GuessCounter): void | Promise<void>;
  forget(key: string): void | Promise<void>;
}

/**
 * Back-off for wrong sign-ins: after the free ones, each wrong guess doubles the pause of its counters.
 *
 * INVARIANT: at most one guess per counter is checked at a time. Concurrent guesses would otherwise be free. Counting
 * them before the check would delay programs that sign in together with the right password.
 */
export class PasswordGuesses {
  readonly #table: GuessTable;
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(clock: Clock, table: GuessTable = new LocalGuesses(clock)) {
    this.#table = table;
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
    await this.#check(counters.map(({ key }) => key));
    const found = await look();
    if (found === null) {
      for (const counter of counters) await this.#table.failed(counter);
      throw unauthorized();
    }
    await this.#table.forget(counters[0].key);
    return found;
  }

  /** @throws Refusal 503 with Retry-After during the pause (docs/service.md 13.3 allows only 5xx besides 400 and 401) */
  async #check(keys: readonly string[]): Promise<void> {
    const waitMs = await this.#table.waitMs(keys);
    if (waitMs <= 0) return;
    throw new Refusal(503, 'Too many wrong passwords', { 'Retry-After': String(Math.ceil(waitMs / 1000)) });
  }
}

/** Wrong guesses of this process. */
class LocalGuesses implements GuessTable {
  readonly #clock: Clock;
  readonly #wrong = new Map<string, { count: number; notBeforeMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  waitMs(keys: readonly string[]): number {
    const ends = keys.map((key) => this.#wrong.get(key)?.notBeforeMs ?? 0);
    return Math.max(...ends) - this.#clock.elapsedMs();
  }

  failed({ key, free }: GuessCounter): void {
    const before = this.#wrong.get(key);
    const isForgotten = before !== undefined && before.notBeforeMs + FORGOTTEN_MS < this.#clock.elapsedMs();
    const count = isForgotten ? 1 : (before?.count ?? 0) + 1;
    this.#wrong.delete(key);
    this.#wrong.set(key, { count, notBeforeMs: this.#clock.elapsedMs() + pauseMs(count, free) });
    if (this.#wrong.size > COUNTERS_MAX) this.#wrong.delete(this.#wrong.keys().next().value as string);
  }

  forget(key: string): void {
    this.#wrong.delete(key);
  }
}

/** The pause after `count` wrong guesses, of which the first ones are free. */
export function pauseMs(count: number, free: number): number {
  return count < free ? 0 : Math.min(GUESS_PAUSE_MS * 2 ** (count - free), GUESS_PAUSE_MAX_MS);
}

const GUESS_PAUSE_MS = 1000;
const GUESS_PAUSE_MAX_MS = 15 * 60_000;
/** Wrong guesses count together until there was none for this long after the pause. */
export const FORGOTTEN_MS = 24 * 3600_000;
const COUNTERS_MAX = 100_000;

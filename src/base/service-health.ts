import { backoffMs, RETRY_AFTER_MAX_MS } from './backoff.ts';
import type { Clock } from './clock.ts';

/** A caller that waits with a time limit: a reader for bytes or a version, an open(2) for a fresh listing. */
export type Waiter = 'reader' | 'opener';

/**
 * Whether the service is reachable: the one answer for the whole thread, a circuit breaker. Listings, reads and pushes report how their requests
 * ended; `Connectivity`, which sees every request of the process, reports through the port.
 *
 * | last news | listings | pushes |
 * | --- | --- | --- |
 * | an answer | are sent | are sent |
 * | no answer, until `retryAtMs` | fail immediately with `pausing` | wait |
 * | no answer, after it | are sent | one at a time (`isProbing`) |
 * | an overloaded service, until `retryAtMs` and after it | are sent | wait, then one at a time |
 */
export class ServiceHealth {
  readonly #clock: Clock;
  /** Why the service counts as unreachable; null while it is reachable. */
  #failure: Error | null = null;
  /** Consecutive requests without an answer, and overloads. Those of one pause count once. */
  #failures = 0;
  #backoffUntilMs = 0;
  /** The end of the pause that the service asked for: an answer to another request does not end it. */
  #askedUntilMs = 0;
  #answers = 0;
  /** Pushes that were answered with an error since the last other answer. */
  readonly #erring = new Set<unknown>();
  /** Waiters whose time limit passed since the last answer. */
  readonly #timedOut = new Set<Waiter>();
  #bytesCameMs = Number.NEGATIVE_INFINITY;
  readonly #listeners = new Set<() => void>();

  constructor(deps: { readonly clock: Clock }) {
    this.#clock = deps.clock;
  }

  /** The last failure; null while the service is reachable, as far as known. */
  get failure(): Error | null {
    return this.#failure;
  }

  /** The failure that pauses listings; null if a listing is useful now. */
  get pausing(): Error | null {
    return this.#clock.elapsedMs() < this.#backoffUntilMs ? this.#failure : null;
  }

  /** Start of the next push, by `elapsedMs`; a past time: now. */
  get retryAtMs(): number {
    return Math.max(this.#backoffUntilMs, this.#askedUntilMs);
  }

  /** Whether only one push may be sent: the next answer releases the others. */
  get isProbing(): boolean {
    return this.#failures > 0;
  }

  /** Answers since the start: a request that fails while others are answered has a cause of its own. */
  get answers(): number {
    return this.#answers;
  }

  /** When bytes last arrived for any reader, by `elapsedMs`; -Infinity before the first. */
  get bytesCameMs(): number {
    return this.#bytesCameMs;
  }

  /** Calls back when the service is reachable again. */
  onReachable(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Whether the last wait of this kind was in vain: the next one is short, until an answer arrives. */
  hasTimedOut(waiter: Waiter): boolean {
    return this.#timedOut.has(waiter);
  }

  timedOut(waiter: Waiter): void {
    this.#timedOut.add(waiter);
  }

  /** Bytes of a file arrived. */
  bytesCame(): void {
    this.#timedOut.delete('reader');
    this.#bytesCameMs = this.#clock.elapsedMs();
  }

  /** A request other than a push was answered. An overload, which concerns pushes, continues. */
  answered(waiter: Waiter): void {
    this.#answers++;
    this.#timedOut.delete(waiter);
    if (this.#failure !== null) this.#recover();
  }

  /** A push was answered. */
  pushed(): void {
    this.#answers++;
    this.#erring.clear();
    this.#recover();
  }

  /**
   * A push of `source` was answered with an error (500, 502, 504). Errors of several sources without another answer mean that the service is out
   * of order. Fewer may concern these sources only.
   */
  erred(source: unknown): void {
    this.#erring.add(source);
    if (this.#erring.size >= ERRING_MIN) this.overloaded(null);
    else {
      this.#answers++;
      this.#recover();
    }
  }

  /** The service answered a push with a request for a pause (429, 503). @param retryAfterMs its length; null: not given */
  overloaded(retryAfterMs: number | null): void {
    this.#failure = null;
    this.#backOff();
    if (retryAfterMs === null) return;
    const untilMs = this.#clock.elapsedMs() + Math.min(retryAfterMs, RETRY_AFTER_MAX_MS);
    this.#askedUntilMs = Math.max(this.#askedUntilMs, untilMs);
  }

  /** A request was not answered, or the sign-in was refused. */
  unanswered(failure: Error): void {
    this.#failure = failure;
    this.#backOff();
  }

  /** The service answers, or the sign-in is valid again: news of another thread. */
  reachable(): void {
    this.#timedOut.clear();
    this.#recover({ isNews: true });
  }

  /** A person asks for an attempt now, even if the service asked for a pause. */
  retryNow(): void {
    this.#timedOut.delete('opener');
    this.#backoffUntilMs = 0;
    this.#askedUntilMs = 0;
  }

  #recover({ isNews }: { readonly isNews: boolean } = { isNews: this.#failure !== null }): void {
    this.#failure = null;
    this.#failures = 0;
    this.#backoffUntilMs = 0;
    if (isNews) for (const listener of this.#listeners) listener();
  }

  #backOff(): void {
    const nowMs = this.#clock.elapsedMs();
    // Concurrent requests fail for the same cause: only the first one extends the pause.
    if (nowMs < this.#backoffUntilMs) return;
    this.#failures++;
    this.#backoffUntilMs = nowMs + backoffMs(this.#failures, this.#clock.random(), BACKOFF);
  }
}

/** The maximum is short: pending changes should leave soon after the train has left the tunnel. */
const BACKOFF = { firstMs: 1_000, maxMs: 30_000 };
/** Consecutive pushes with an error that mean a service out of order. */
const ERRING_MIN = 3;

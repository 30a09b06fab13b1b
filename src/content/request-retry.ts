import { firstOf, unlessAborted } from '../base/abort.ts';
import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, isPassing, ProtocolError, SignInError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { ServiceHealth } from '../base/service-health.ts';

const BACKOFF = { firstMs: 200, maxMs: 5_000 };
/** Time limit of a request after one that timed out. */
const SHORT_MS = 1_000;
/** Time limit while connections are refused: the network reports immediately that there is no listener. */
const REFUSED_MS = 10_000;

/**
 * Retries a reader's requests to the service until `readTimeoutMs` are over. The limit is ten seconds if every attempt is refused before it is
 * sent (no listener, no route, no such name). After a timeout further requests fail within a second, until one is answered
 * (`ServiceHealth.hasTimedOut`).
 */
export class RequestRetry {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #health: ServiceHealth;
  readonly #shutdown: AbortSignal;
  readonly #readTimeoutMs: number;

  constructor(deps: {
    clock: Clock;
    log: Logger;
    health: ServiceHealth;
    shutdown: AbortSignal;
    readTimeoutMs: number;
  }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#health = deps.health;
    this.#shutdown = deps.shutdown;
    this.#readTimeoutMs = deps.readTimeoutMs;
  }

  /**
   * Retries `question` until it is answered or the time is over. Refusals are not retried.
   *
   * @param until cancels the request early: the answer is no longer wanted
   * @param landedTo of a request for bytes: the position before which they are present. While it is unanswered, its time restarts whenever bytes
   *   arrive, for it or for others (`ServiceHealth.bytesCame`): a slow or shared connection is not a silent one. For a request that fails repeatedly, only
   *   its own progress counts
   * @throws FsError ETIMEDOUT when no answer came in time, EIO when the last one was invalid · the service's refusal · the reason
   *   of `until` or the shutdown
   */
  async ask<T>(
    question: (signal: AbortSignal) => Promise<T>,
    until?: AbortSignal,
    landedTo?: () => number,
  ): Promise<T> {
    const health = this.#health;
    const startedMs = this.#clock.elapsedMs();
    const silentMs = (): number =>
      this.#clock.elapsedMs() - (landedTo === undefined ? startedMs : Math.max(startedMs, health.bytesCameMs));
    const limitMs = health.hasTimedOut('reader') ? Math.min(SHORT_MS, this.#readTimeoutMs) : this.#readTimeoutMs;
    const deadline = new AbortController();
    let cancel = (): void => {};
    const wait = (): void => {
      cancel = this.#clock.after(limitMs - silentMs(), () => {
        if (silentMs() < limitMs) wait();
        else deadline.abort(new FsError('ETIMEDOUT', 'the service did not answer in time'));
      });
    };
    wait();
    const { signal: stop, release } = firstOf(until === undefined ? [this.#shutdown] : [this.#shutdown, until]);
    const { signal } = firstOf([stop, deadline.signal]);
    /** The error of the previous attempt. */
    let before: unknown = null;
    /** Start of the current run of failures without progress, and the position before which bytes were present then. */
    let failing: { readonly sinceMs: number; readonly landedTo: number } | null = null;
    try {
      for (let attempt = 1; ; attempt++) {
        try {
          const answered = await question(signal);
          if (landedTo !== undefined) health.bytesCame();
          health.answered('reader');
          return answered;
        } catch (error) {
          if (stop.aborted) throw stop.reason;
          if (!isWorthAskingAgain(error) && !deadline.signal.aborted) throw error;
          const askedMs = error instanceof ApiError ? error.retryAfterMs : null;
          const waitMs = backoffMs(attempt, this.#clock.random(), BACKOFF, askedMs);
          // An attempt that the deadline cut short says nothing about the service; the attempt before it does.
          if (deadline.signal.aborted) throw this.#timedOut(before ?? error);
          const nowMs = this.#clock.elapsedMs();
          const at = landedTo?.() ?? 0;
          if (failing === null || at > failing.landedTo) failing = { sinceMs: nowMs, landedTo: at };
          const endMs = isRefusedByNetwork(error) ? Math.min(REFUSED_MS, limitMs) : limitMs;
          if (Math.max(silentMs(), nowMs - failing.sinceMs) + waitMs > endMs) throw this.#timedOut(error);
          before = error;
          this.#log.debug({ attempt, waitMs, err: error }, 'request is retried');
          await this.#clock.sleep(waitMs, stop);
        }
      }
    } finally {
      cancel();
      release();
    }
  }

  /** One attempt, for callers that can do without the answer. @returns null if it fails or takes longer than `waitMs` */
  async askBriefly<T>(question: (signal: AbortSignal) => Promise<T | null>, waitMs: number): Promise<T | null> {
    if (this.#health.hasTimedOut('reader') || waitMs === 0) return null;
    const late = new AbortController();
    const cancel = this.#clock.after(waitMs, () => late.abort(new FsError('ETIMEDOUT', 'no answer in time')));
    const { signal, release } = firstOf([this.#shutdown, late.signal]);
    try {
      return await unlessAborted(question(signal), signal);
    } catch (err) {
      this.#log.debug({ err }, 'optional request failed');
      return null;
    } finally {
      cancel();
      release();
    }
  }

  #timedOut(error: unknown): FsError {
    // An invalid answer is an answer: the service is reachable.
    if (error instanceof ProtocolError || error instanceof ApiError) {
      return new FsError('EIO', error.message, { cause: error });
    }
    this.#health.timedOut('reader');
    return new FsError('ETIMEDOUT', 'the service did not answer in time', { cause: error });
  }
}

/** Nothing was sent and nothing timed out: there is no connection to the service. A silent service is another case. */
function isRefusedByNetwork(error: unknown): boolean {
  return error instanceof TransportError && error.neverSent && !error.timedOut;
}

/** Anything but a clear refusal: the connection may recover, and the next answer may be valid. */
function isWorthAskingAgain(error: unknown): boolean {
  if (error instanceof TransportError || error instanceof ProtocolError) return true;
  if (error instanceof SignInError) return false;
  return error instanceof ApiError && isPassing(error);
}

import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, ProtocolError, SignInError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';

const RETRY_FIRST_MS = 200;
const RETRY_LONGEST_MS = 5_000;
/** How long a question is waited for while the service is known to be away. */
const AWAY_MS = 1_000;

/**
 * How long a reader waits for the service: a question that got no answer is asked again behind the caller's back until
 * `readTimeoutMs` are over. Once that happened the service is *away*, and further questions fail within a second, until one
 * is answered again.
 */
export class Patience {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #shutdown: AbortSignal;
  readonly #readTimeoutMs: number;
  #isAway = false;

  constructor(deps: { clock: Clock; log: Logger; shutdown: AbortSignal; readTimeoutMs: number }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#shutdown = deps.shutdown;
    this.#readTimeoutMs = deps.readTimeoutMs;
  }

  /** The service answered somebody. */
  reachable(): void {
    this.#isAway = false;
  }

  /**
   * Asks until there is an answer or no more time. Refusals are not asked again.
   *
   * @param until ends the asking before: nobody wants the answer any more
   * @throws FsError ETIMEDOUT when no answer came in time · what the service refused with · the reason of `until` or the shutdown
   */
  async ask<T>(question: (signal: AbortSignal) => Promise<T>, until?: AbortSignal): Promise<T> {
    const startedMs = this.#clock.elapsedMs();
    const limitMs = this.#isAway ? Math.min(AWAY_MS, this.#readTimeoutMs) : this.#readTimeoutMs;
    const deadline = new AbortController();
    const cancel = this.#clock.after(limitMs, () =>
      deadline.abort(new FsError('ETIMEDOUT', 'the service did not answer in time')),
    );
    const stop = until === undefined ? this.#shutdown : AbortSignal.any([this.#shutdown, until]);
    const signal = AbortSignal.any([stop, deadline.signal]);
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          const answer = await question(signal);
          this.#isAway = false;
          return answer;
        } catch (error) {
          if (stop.aborted) throw stop.reason;
          if (!isWorthAskingAgain(error) && !deadline.signal.aborted) throw error;
          const pauseMs = Math.min(RETRY_FIRST_MS * 2 ** attempt, RETRY_LONGEST_MS) * (0.5 + this.#clock.random() / 2);
          const waitMs = Math.max(pauseMs, error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0);
          if (deadline.signal.aborted || this.#clock.elapsedMs() - startedMs + waitMs > limitMs)
            throw this.#timedOut(error);
          this.#log.debug({ attempt, waitMs, err: error }, 'question to be repeated');
          await this.#clock.sleep(waitMs, stop);
        }
      }
    } finally {
      cancel();
    }
  }

  #timedOut(error: unknown): FsError {
    // An answer that did not fit is an answer: the service is there.
    if (error instanceof ProtocolError || error instanceof ApiError) {
      return new FsError('EIO', error.message, { cause: error });
    }
    this.#isAway = true;
    return new FsError('ETIMEDOUT', 'the service did not answer in time', { cause: error });
  }
}

/** Anything but a clear refusal: the line may be back in a moment, and an answer that did not fit may fit the next time. */
function isWorthAskingAgain(error: unknown): boolean {
  if (error instanceof TransportError || error instanceof ProtocolError) return true;
  if (error instanceof SignInError) return false;
  return error instanceof ApiError && (error.status === 429 || error.status >= 500);
}

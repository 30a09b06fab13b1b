import { firstOf, unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, isPassing, ProtocolError, SignInError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';

const RETRY_FIRST_MS = 200;
const RETRY_LONGEST_MS = 5_000;
/** How long a question is waited for while the service is known to be away. */
const AWAY_MS = 1_000;
/** How long while connections are refused: the network knows that nobody listens, and says so at once. */
const REFUSED_MS = 10_000;

/**
 * How long a reader waits for the service: a question that got no answer is asked again behind the caller's back until
 * `readTimeoutMs` are over, or ten seconds where every attempt is refused before it is sent (no listener, no route, no such name). Once that
 * happened the service is *away*, and further questions fail within a second, until one is answered again.
 */
export class Patience {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #shutdown: AbortSignal;
  readonly #readTimeoutMs: number;
  #isAway = false;
  #bytesCameMs = Number.NEGATIVE_INFINITY;

  constructor(deps: { clock: Clock; log: Logger; shutdown: AbortSignal; readTimeoutMs: number }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#shutdown = deps.shutdown;
    this.#readTimeoutMs = deps.readTimeoutMs;
  }

  /** Whether the last question got no answer in time. */
  get isAway(): boolean {
    return this.#isAway;
  }

  /** When bytes came last, for anybody, by `elapsedMs`; infinitely long ago where none did. */
  get bytesCameMs(): number {
    return this.#bytesCameMs;
  }

  /** The service answered somebody. */
  reachable(): void {
    this.#isAway = false;
  }

  /** Bytes of a file came: whoever waits for others may do so as long as they keep coming. */
  bytesCame(): void {
    this.#isAway = false;
    this.#bytesCameMs = this.#clock.elapsedMs();
  }

  /**
   * Asks until there is an answer or no more time. Refusals are not asked again.
   *
   * @param until ends the asking before: nobody wants the answer any more
   * @param landedTo of a question for bytes, up to where they are here. While it has no answer its time begins anew whenever bytes come, for it or
   *   for others (`bytesCame`): a line that is slow, or that it has to share, is not one that is silent. Where it is refused, or cut, again and
   *   again, only what has landed of its own counts
   * @throws FsError ETIMEDOUT when no answer came in time, EIO when the last one was of no use · what the service refused with · the reason
   *   of `until` or the shutdown
   */
  async ask<T>(
    question: (signal: AbortSignal) => Promise<T>,
    until?: AbortSignal,
    landedTo?: () => number,
  ): Promise<T> {
    const startedMs = this.#clock.elapsedMs();
    const silentMs = (): number =>
      this.#clock.elapsedMs() - (landedTo === undefined ? startedMs : Math.max(startedMs, this.#bytesCameMs));
    const limitMs = this.#isAway ? Math.min(AWAY_MS, this.#readTimeoutMs) : this.#readTimeoutMs;
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
    /** What came of the question before this one. */
    let before: unknown = null;
    /** Since when none was of use, and up to where bytes were here then. */
    let failing: { readonly sinceMs: number; readonly landedTo: number } | null = null;
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          const answered = await question(signal);
          if (landedTo !== undefined) this.bytesCame();
          this.#isAway = false;
          return answered;
        } catch (error) {
          if (stop.aborted) throw stop.reason;
          if (!isWorthAskingAgain(error) && !deadline.signal.aborted) throw error;
          const pauseMs = Math.min(RETRY_FIRST_MS * 2 ** attempt, RETRY_LONGEST_MS) * (0.5 + this.#clock.random() / 2);
          const waitMs = Math.max(pauseMs, error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0);
          // A question that the end of the time cut short says nothing: what the one before it came to does.
          if (deadline.signal.aborted) throw this.#timedOut(before ?? error);
          const nowMs = this.#clock.elapsedMs();
          const at = landedTo?.() ?? 0;
          if (failing === null || at > failing.landedTo) failing = { sinceMs: nowMs, landedTo: at };
          const askedMs = isRefusedByNetwork(error) ? Math.min(REFUSED_MS, limitMs) : limitMs;
          if (Math.max(silentMs(), nowMs - failing.sinceMs) + waitMs > askedMs) throw this.#timedOut(error);
          before = error;
          this.#log.debug({ attempt, waitMs, err: error }, 'question to be repeated');
          await this.#clock.sleep(waitMs, stop);
        }
      }
    } finally {
      cancel();
      release();
    }
  }

  /** Asks once, for who can do without the answer. @returns null when there is none within `waitMs`, whatever the reason */
  async askBriefly<T>(question: (signal: AbortSignal) => Promise<T | null>, waitMs: number): Promise<T | null> {
    if (this.#isAway || waitMs === 0) return null;
    const late = new AbortController();
    const cancel = this.#clock.after(waitMs, () => late.abort(new FsError('ETIMEDOUT', 'no answer in time')));
    const { signal, release } = firstOf([this.#shutdown, late.signal]);
    try {
      return await unlessAborted(question(signal), signal);
    } catch (err) {
      this.#log.debug({ err }, 'a question that can wait got no answer');
      return null;
    } finally {
      cancel();
      release();
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

/** Nothing was sent, and nothing was waited for: there is no line to the service, and it is not a service that is silent. */
function isRefusedByNetwork(error: unknown): boolean {
  return error instanceof TransportError && error.neverSent && !error.timedOut;
}

/** Anything but a clear refusal: the line may be back in a moment, and an answer that did not fit may fit the next time. */
function isWorthAskingAgain(error: unknown): boolean {
  if (error instanceof TransportError || error instanceof ProtocolError) return true;
  if (error instanceof SignInError) return false;
  return error instanceof ApiError && isPassing(error);
}

import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ProtocolError, SignInError, type TransportError } from '../base/errors.ts';
import { StrangeNetworkError } from './strange-network.ts';

/** An access token as the service gave it (docs/service.md 3.2). */
export interface IssuedToken {
  /** Sent as the Authorization header, as it is: the token's URL, no scheme word. */
  readonly token: string;
  /** Milliseconds since the epoch, by the service's clock. */
  readonly expiresMs: number;
  /** The service's clock when it answered; null where it did not say. */
  readonly serverTimeMs: number | null;
  /** URL of the user it speaks for. */
  readonly user: string;
}

/** Renewed this long before it expires, or after nine tenths of its life where that is shorter. */
const AHEAD_MS = 60_000;
const AHEAD_OF_LIFE = 0.1;
/** A refused sign-in is asked about again no more often than this; without a caller, after a pause that doubles from this to the longest. */
const REFUSED_AGAIN_MS = 60_000;
const REFUSED_AGAIN_MS_MAX = 3_600_000;
/** A refusal that may be the network's: the pause before the next question doubles from the first to the last. */
const DOUBTED_AGAIN_MS = 1_000;
const DOUBTED_AGAIN_MS_MAX = 10_000;
/** A refusal that lasts so long is believed, whoever gives it: a person may be able to cure it. */
const DOUBTED_MS_MAX = 300_000;

interface HeldToken {
  readonly issued: IssuedToken;
  /** On the monotonic clock: our wall clock may be wrong, and may be set. */
  readonly renewAtMs: number;
}

/**
 * The one access token: asked for once however many want it, renewed before it expires, renewed once more when the service
 * refuses it. How long it lives is the service's own difference between `expiration` and its Date header, so a wrong clock
 * here does not matter; after a suspended night, when the monotonic clock stood still, the refusal (401) renews it. So it does where there
 * is no Date header, and the token that was just given has expired by our clock, which then is ahead.
 *
 * A refused refresh token is a state: every request fails with SignInError at once, and `onSignInRequired` is called once. The service is
 * asked again at most every minute when there is a request, and without one after pauses that grow to an hour: the refusal may have been its
 * mistake. `onSignedIn` is called when that state ends.
 *
 * Before the first refusal is believed, `isFromService` decides who gave it. A network that refuses everything is a StrangeNetworkError: it
 * passes, and nobody has to sign in.
 */
export class AccessToken {
  readonly #issue: (signal: AbortSignal) => Promise<IssuedToken>;
  readonly #isFromService: (refusal: SignInError, signal: AbortSignal) => Promise<boolean>;
  readonly #clock: Clock;
  readonly #onSignInRequired: (error: SignInError) => void;
  readonly #onSignedIn: () => void;
  readonly #closing = new AbortController();
  #held: HeldToken | null = null;
  #underWay: Promise<IssuedToken> | null = null;
  #refused: { readonly error: SignInError | TransportError; readonly askAgainMs: number } | null = null;
  /** Refusals in a row that may be the network's, and when the first one came (`elapsedMs`). */
  #doubted: { readonly times: number; readonly sinceMs: number } | null = null;
  #isRefusalTold = false;
  /** How long until the refused refresh token is tried without a caller, and what cancels that. */
  #againMs = REFUSED_AGAIN_MS;
  #cancelAgain: () => void = () => {};

  /**
   * `issue` asks the service; it throws SignInError where the service refuses for good. `isFromService`: whether the service gave the refusal,
   * and not somebody who refuses everything; it may throw what a request throws.
   */
  constructor(options: {
    issue: (signal: AbortSignal) => Promise<IssuedToken>;
    isFromService: (refusal: SignInError, signal: AbortSignal) => Promise<boolean>;
    clock: Clock;
    onSignInRequired: (error: SignInError) => void;
    onSignedIn: () => void;
  }) {
    this.#issue = options.issue;
    this.#isFromService = options.isFromService;
    this.#clock = options.clock;
    this.#onSignInRequired = options.onSignInRequired;
    this.#onSignedIn = options.onSignedIn;
  }

  /** Whether somebody has to sign in again before anything works. */
  get signInRequired(): boolean {
    return this.#refused?.error instanceof SignInError;
  }

  /**
   * A token that is not known to be refused or about to expire.
   * @throws SignInError · TransportError (StrangeNetworkError for a network that refuses everything) · ApiError (the service cannot answer now)
   */
  current(signal: AbortSignal | undefined): IssuedToken | Promise<IssuedToken> {
    const held = this.#held;
    if (held !== null && this.#clock.elapsedMs() < held.renewAtMs) return held.issued;
    return this.#renewed(signal);
  }

  /** The token after `refused` was answered with 401: another one, unless somebody has renewed it meanwhile. */
  after(refused: string, signal: AbortSignal | undefined): IssuedToken | Promise<IssuedToken> {
    if (this.#held?.issued.token === refused) this.#held = null;
    return this.current(signal);
  }

  /** Forgets the token, the refusal, and what is being asked: the refresh token has changed. */
  reset(): void {
    this.#held = null;
    this.#accepted();
    this.#underWay = null;
  }

  close(): void {
    this.#cancelAgain();
    this.#closing.abort(new DOMException('the service is no longer needed', 'AbortError'));
  }

  /** Not tied to whoever asked first: that one may give up while others wait. */
  #renewed(signal: AbortSignal | undefined): Promise<IssuedToken> {
    if (this.#refused !== null && this.#clock.elapsedMs() < this.#refused.askAgainMs) {
      return Promise.reject(this.#refused.error);
    }
    if (signal?.aborted) return Promise.reject(signal.reason); // nothing is asked for nobody
    this.#underWay ??= this.#ask();
    return signal === undefined ? this.#underWay : unlessAborted(this.#underWay, signal);
  }

  #ask(): Promise<IssuedToken> {
    const asked: Promise<IssuedToken> = this.#answer(() => this.#underWay === asked).finally(() => {
      if (this.#underWay === asked) this.#underWay = null;
    });
    return asked;
  }

  /** @param isCurrent false once another refresh token came: this answer then says nothing of it */
  async #answer(isCurrent: () => boolean): Promise<IssuedToken> {
    const askedMs = this.#clock.elapsedMs();
    try {
      const issued = await this.#issue(this.#closing.signal);
      if (!isCurrent()) return await this.current(this.#closing.signal);
      this.#held = { issued, renewAtMs: askedMs + this.#usedForMs(issued) };
      this.#accepted();
      if (this.#isRefusalTold) this.#onSignedIn();
      this.#isRefusalTold = false;
      return issued;
    } catch (error) {
      if (!(error instanceof SignInError)) throw error;
      const isBelieved = isCurrent() && (await this.#isBelieved(error));
      if (!isCurrent()) return await this.current(this.#closing.signal);
      throw isBelieved ? this.#refuse(error) : this.#doubt(error);
    }
  }

  /** Whether the service refuses, as far as can be known. A refusal that was believed once, or that lasts, is. */
  async #isBelieved(refusal: SignInError): Promise<boolean> {
    if (this.#isRefusalTold) return true;
    if (this.#doubted !== null && this.#clock.elapsedMs() - this.#doubted.sinceMs >= DOUBTED_MS_MAX) return true;
    return await this.#isFromService(refusal, this.#closing.signal);
  }

  /** Infinity: until it is refused. */
  #usedForMs({ expiresMs, serverTimeMs }: IssuedToken): number {
    const lifeMs = expiresMs - (serverTimeMs ?? this.#clock.nowMs());
    if (lifeMs > 0) return lifeMs - Math.min(AHEAD_MS, lifeMs * AHEAD_OF_LIFE);
    if (serverTimeMs === null) return Number.POSITIVE_INFINITY;
    throw new ProtocolError('the service gave an access token that has expired');
  }

  #accepted(): void {
    this.#refused = null;
    this.#doubted = null;
    this.#cancelAgain();
    this.#againMs = REFUSED_AGAIN_MS;
  }

  #refuse(error: SignInError): SignInError {
    this.#refused = { error, askAgainMs: this.#clock.elapsedMs() + REFUSED_AGAIN_MS };
    this.#askAgainLater();
    if (this.#isRefusalTold) return error;
    this.#isRefusalTold = true;
    this.#onSignInRequired(error);
    return error;
  }

  /** Nobody is told to sign in: what wants a token fails as it does without a line. */
  #doubt(refusal: SignInError): TransportError {
    const nowMs = this.#clock.elapsedMs();
    const { times, sinceMs } = this.#doubted ?? { times: 0, sinceMs: nowMs };
    this.#doubted = { times: times + 1, sinceMs };
    const error = new StrangeNetworkError(refusal.message, 'but every request is refused here', {
      neverSent: true,
      cause: refusal,
    });
    const pauseMs = Math.min(DOUBTED_AGAIN_MS * 2 ** Math.min(times, 30), DOUBTED_AGAIN_MS_MAX);
    this.#refused = { error, askAgainMs: nowMs + pauseMs * (0.5 + this.#clock.random() / 2) };
    return error;
  }

  #askAgainLater(): void {
    this.#cancelAgain();
    // Jitter: the service refused many clients at the same moment, where it was its mistake.
    const pauseMs = this.#againMs * (1 + this.#clock.random() / 4);
    this.#againMs = Math.min(this.#againMs * 2, REFUSED_AGAIN_MS_MAX);
    this.#cancelAgain = this.#clock.after(pauseMs, () => {
      if (this.#closing.signal.aborted) return;
      this.#underWay ??= this.#ask();
      // A refusal has set the next pause. After any other failure it is still not known whether the service refuses.
      this.#underWay.catch((error: unknown) => {
        if (!(error instanceof SignInError) && this.signInRequired) this.#askAgainLater();
      });
    });
  }
}

import { unlessAborted } from '../../base/abort.ts';
import { backoffMs } from '../../base/backoff.ts';
import type { Clock } from '../../base/clock.ts';
import { ProtocolError, SignInError, type TransportError } from '../../base/errors.ts';
import { StrangeNetworkError } from '../strange-network.ts';

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

/** A token is renewed this long before it expires, or after nine tenths of its life if that is earlier. */
const AHEAD_MS = 60_000;
const AHEAD_OF_LIFE = 0.1;
/**
 * Shortest pause between attempts after a refused sign-in. Without a caller, the pause doubles from this to the
 * maximum.
 */
const REFUSED_AGAIN_MS = 60_000;
const REFUSED_AGAIN_MS_MAX = 3_600_000;
/** Retry pause after a refusal that may come from the network. */
const DOUBTED_BACKOFF = { firstMs: 1_000, maxMs: 10_000 };
/** A refusal that lasts this long is reported whatever its origin: the user may be able to resolve it. */
const DOUBTED_MS_MAX = 300_000;

interface HeldToken {
  readonly issued: IssuedToken;
  /** On the monotonic clock: our wall clock may be wrong, and may be set. */
  readonly renewAtMs: number;
}

/**
 * The access token, shared by all requests: requested once for all callers, renewed before it expires, and renewed once
 * more after a 401. Its lifetime is the difference between `expiration` and the Date header of the same response, so a
 * wrong local clock does not matter. Without a Date header, a token that is already expired by the local clock is used
 * until the service refuses it. The monotonic clock stops during suspend; a 401 then renews the token.
 *
 * A refused refresh token is a state: every request fails immediately with SignInError, and `onSignInRequired` is
 * called once. The refusal may be a mistake of the service. So the token is tried again: at most once a minute while
 * requests come, otherwise after pauses that grow to an hour. `onSignedIn` is called when the state ends.
 *
 * Before the first refusal is reported, `isFromService` decides where it came from. A network that refuses every
 * request causes a StrangeNetworkError, which is temporary and needs no sign-in.
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
  /** Consecutive refusals that may come from the network, and the time of the first (`elapsedMs`). */
  #doubted: { readonly times: number; readonly sinceMs: number } | null = null;
  #isRefusalReported = false;
  /** Pause until a refused refresh token is tried again without a caller, and the function that cancels the timer. */
  #againMs = REFUSED_AGAIN_MS;
  #cancelAgain: () => void = () => {};

  /**
   * @param options.issue requests a token; throws SignInError if the service refuses permanently
   * @param options.isFromService whether the service itself gave the refusal, not a network that refuses everything;
   * may throw what a request throws
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

  /** Whether the user must sign in again before requests can succeed. */
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

  /**
   * The token to use after `refused` was answered with 401. A token that was renewed in the meantime is returned as it
   * is.
   */
  after(refused: string, signal: AbortSignal | undefined): IssuedToken | Promise<IssuedToken> {
    if (this.#held?.issued.token === refused) this.#held = null;
    return this.current(signal);
  }

  /** The refresh token has changed: forgets the token, the refusal and the pending request. */
  reset(): void {
    this.#held = null;
    this.#accepted();
    this.#underWay = null;
  }

  close(): void {
    this.#cancelAgain();
    this.#closing.abort(new DOMException('the service is no longer needed', 'AbortError'));
  }

  /** The request is shared: the first caller may abort while others still wait. */
  #renewed(signal: AbortSignal | undefined): Promise<IssuedToken> {
    if (this.#refused !== null && this.#clock.elapsedMs() < this.#refused.askAgainMs) {
      return Promise.reject(this.#refused.error);
    }
    if (signal?.aborted) return Promise.reject(signal.reason); // no caller waits: send nothing
    this.#underWay ??= this.#ask();
    return signal === undefined ? this.#underWay : unlessAborted(this.#underWay, signal);
  }

  #ask(): Promise<IssuedToken> {
    const asked: Promise<IssuedToken> = this.#answer(() => this.#underWay === asked).finally(() => {
      if (this.#underWay === asked) this.#underWay = null;
    });
    return asked;
  }

  /** @param isCurrent false once the refresh token was replaced: the result then says nothing about the new one */
  async #answer(isCurrent: () => boolean): Promise<IssuedToken> {
    const askedMs = this.#clock.elapsedMs();
    try {
      const issued = await this.#issue(this.#closing.signal);
      if (!isCurrent()) return await this.current(this.#closing.signal);
      this.#held = { issued, renewAtMs: askedMs + this.#usedForMs(issued) };
      this.#accepted();
      if (this.#isRefusalReported) this.#onSignedIn();
      this.#isRefusalReported = false;
      return issued;
    } catch (error) {
      if (!(error instanceof SignInError)) throw error;
      const isBelieved = isCurrent() && (await this.#isBelieved(error));
      if (!isCurrent()) return await this.current(this.#closing.signal);
      throw isBelieved ? this.#refuse(error) : this.#doubt(error);
    }
  }

  /** Whether the refusal comes from the service. A refusal that was already reported, or that lasts, counts as one. */
  async #isBelieved(refusal: SignInError): Promise<boolean> {
    if (this.#isRefusalReported) return true;
    if (this.#doubted !== null && this.#clock.elapsedMs() - this.#doubted.sinceMs >= DOUBTED_MS_MAX) return true;
    return await this.#isFromService(refusal, this.#closing.signal);
  }

  /** @returns lifetime in milliseconds; Infinity: until the service refuses it */
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
    if (this.#isRefusalReported) return error;
    this.#isRefusalReported = true;
    this.#onSignInRequired(error);
    return error;
  }

  /** The user is not asked to sign in: requests that need a token fail as they do while offline. */
  #doubt(refusal: SignInError): TransportError {
    const nowMs = this.#clock.elapsedMs();
    const { times, sinceMs } = this.#doubted ?? { times: 0, sinceMs: nowMs };
    this.#doubted = { times: times + 1, sinceMs };
    const error = new StrangeNetworkError(refusal.message, 'but every request is refused here', {
      neverSent: true,
      cause: refusal,
    });
    this.#refused = { error, askAgainMs: nowMs + backoffMs(times + 1, this.#clock.random(), DOUBTED_BACKOFF) };
    return error;
  }

  #askAgainLater(): void {
    this.#cancelAgain();
    // Jitter: a mistake of the service refuses many clients at the same moment.
    const pauseMs = this.#againMs * (1 + this.#clock.random() / 4);
    this.#againMs = Math.min(this.#againMs * 2, REFUSED_AGAIN_MS_MAX);
    this.#cancelAgain = this.#clock.after(pauseMs, () => {
      if (this.#closing.signal.aborted) return;
      this.#underWay ??= this.#ask();
      // A refusal schedules the next attempt itself. After any other failure the state of the refresh token is still
      // unknown.
      this.#underWay.catch((error: unknown) => {
        if (!(error instanceof SignInError) && this.signInRequired) this.#askAgainLater();
      });
    });
  }
}

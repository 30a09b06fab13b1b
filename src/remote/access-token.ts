import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ProtocolError, SignInError } from '../base/errors.ts';

/** An access token as the service gave it (interface 2.2). */
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
/** A refused sign-in is asked about again no more often than this. */
const REFUSED_AGAIN_MS = 60_000;

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
 * A refused refresh token is a state: every request fails with SignInError at once, `onSignInRequired` is told once, and the
 * service is asked again at most every minute, in case it was its mistake. `onSignedIn` is told when that state ends.
 */
export class AccessToken {
  readonly #issue: (signal: AbortSignal) => Promise<IssuedToken>;
  readonly #clock: Clock;
  readonly #onSignInRequired: (error: SignInError) => void;
  readonly #onSignedIn: () => void;
  readonly #closing = new AbortController();
  #held: HeldToken | null = null;
  #underWay: Promise<IssuedToken> | null = null;
  #refused: { readonly error: SignInError; readonly askAgainMs: number } | null = null;
  #isRefusalTold = false;

  /** `issue` asks the service; it throws SignInError where the service refuses for good. */
  constructor(options: {
    issue: (signal: AbortSignal) => Promise<IssuedToken>;
    clock: Clock;
    onSignInRequired: (error: SignInError) => void;
    onSignedIn: () => void;
  }) {
    this.#issue = options.issue;
    this.#clock = options.clock;
    this.#onSignInRequired = options.onSignInRequired;
    this.#onSignedIn = options.onSignedIn;
  }

  /** Whether somebody has to sign in again before anything works. */
  get signInRequired(): boolean {
    return this.#refused !== null;
  }

  /**
   * A token that is not known to be refused or about to expire.
   * @throws SignInError · TransportError · ApiError (the service cannot answer now)
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
    this.#refused = null;
    this.#underWay = null;
  }

  close(): void {
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
      this.#refused = null;
      if (this.#isRefusalTold) this.#onSignedIn();
      this.#isRefusalTold = false;
      return issued;
    } catch (error) {
      if (error instanceof SignInError && !isCurrent()) return await this.current(this.#closing.signal);
      if (error instanceof SignInError) this.#refuse(error);
      throw error;
    }
  }

  /** Infinity: until it is refused. */
  #usedForMs({ expiresMs, serverTimeMs }: IssuedToken): number {
    const lifeMs = expiresMs - (serverTimeMs ?? this.#clock.nowMs());
    if (lifeMs > 0) return lifeMs - Math.min(AHEAD_MS, lifeMs * AHEAD_OF_LIFE);
    if (serverTimeMs === null) return Number.POSITIVE_INFINITY;
    throw new ProtocolError('the service gave an access token that has expired');
  }

  #refuse(error: SignInError): void {
    this.#refused = { error, askAgainMs: this.#clock.elapsedMs() + REFUSED_AGAIN_MS };
    if (this.#isRefusalTold) return;
    this.#isRefusalTold = true;
    this.#onSignInRequired(error);
  }
}

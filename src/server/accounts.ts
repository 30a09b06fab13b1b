import type { Clock } from '../base/clock.ts';
import type { AppAuthorizationDocument, AuthRequestDocument, TokenAuthRequestDocument } from '../protocol/messages.ts';
import type { Database } from './database.ts';
import { unauthorized } from './refusal.ts';
import type { UserRow } from './rows.ts';
import { hashOf, NETWORKS_MAX, networkHash, newSecret, type Sender, SignIn } from './sign-in.ts';

/** The authenticated user of a request. */
export interface Session {
  readonly uid: string;
  /** Hash under which the access token is stored. */
  readonly token: string;
  /** Hash of its refresh token; null for a token issued for a password. */
  readonly refreshToken: string | null;
  /** Without a refresh token: how often the user was signed out everywhere before. */
  readonly signOuts: number;
}

/**
 * The caller of a rule that checks the access token of a session in its own step; or the uid of a caller who was checked before. Other
 * rules take a uid only.
 */
export type Caller = string | Session;

export function uidOf(caller: Caller): string {
  return typeof caller === 'string' ? caller : caller.uid;
}

/** A token in clear text, returned once. */
export interface IssuedToken {
  readonly secret: string;
  readonly uid: string;
  readonly expiresMs: number;
}

/**
 * Authentication: passwords, developers' keys, refresh and access tokens (docs/service.md 3).
 *
 * Secrets are stored as hashes only: passwords by scrypt, keys and tokens (256 random bits, so one round is enough) by
 * SHA-256.
 */
export class Accounts {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #accessTokenMs: number;
  readonly #signIn: SignIn;
  constructor(deps: { database: Database; clock: Clock; accessTokenMs: number; acceptAnyKeys: boolean }) {
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#accessTokenMs = deps.accessTokenMs;
    const { emails, users, keyPairs, applications } = deps.database;
    const rows = {
      user: (email: string) => {
        const uid = emails.get(email);
        return uid === undefined ? undefined : users.get(uid);
      },
      keyPair: (accessKeyId: string) => keyPairs.get(accessKeyId),
      isEnabled: (application: string) => applications.get(application)?.enabled === true,
    };
    this.#signIn = new SignIn({ rows, clock: deps.clock, acceptAnyKeys: deps.acceptAnyKeys });
  }

  /**
   * @throws Refusal 401 for any wrong input, always with the same message; 503 after too many wrong passwords, or
   * during too many sign-ins
   */
  async createRefreshToken(request: AppAuthorizationDocument, sender: Sender): Promise<IssuedToken> {
    const user = await this.#signIn.userOf(request, request.application, sender);
    const secret = newSecret();
    await this.#database.changeTogether(() => {
      this.#checkUnchanged(user);
      const row = { uid: user.uid, application: request.application, createdMs: this.#clock.nowMs() };
      this.#database.addRefreshToken(hashOf(secret), row);
      this.#remember(user.uid, sender.network);
    });
    return { secret, uid: user.uid, expiresMs: Number.POSITIVE_INFINITY };
  }

  /** @param refreshSecret the last part of the refresh token's URL; null for a URL of another server */
  async createAccessToken(request: TokenAuthRequestDocument, refreshSecret: string | null): Promise<IssuedToken> {
    if (!(await this.#signIn.areKeysRight(request))) throw unauthorized();
    const hash = refreshSecret === null ? null : hashOf(refreshSecret);
    const refreshToken = hash === null ? undefined : this.#database.refreshTokens.get(hash);
    if (hash === null || refreshToken === undefined) throw unauthorized();
    if (!(await this.#signIn.isEnabled(refreshToken.application))) throw unauthorized();
    return this.#issue(refreshToken.uid, hash);
  }

  /** The older request for an access token, without a refresh token (docs/service.md 3.3). */
  async createAccessTokenByPassword(request: AuthRequestDocument, sender: Sender): Promise<IssuedToken> {
    const user = await this.#signIn.userOf(request, null, sender);
    return this.#issue(user.uid, null, user);
  }

  /** The session of an access token; null if the token is unknown or expired, or its refresh token was revoked. */
  session(secret: string): Session | null {
    const token = hashOf(secret);
    const row = this.#database.accessTokens.get(token);
    if (row === undefined || row.expiresMs <= this.#clock.nowMs()) return null;
    const { uid, refreshToken } = row;
    // A refresh token ends with its user, and whenever the user is signed out: so no row of the user is read.
    if (refreshToken !== null && !this.#database.refreshTokens.doesExist(refreshToken)) return null;
    const user = refreshToken === null ? this.#database.users.get(uid) : null;
    return user === undefined ? null : { uid, token, refreshToken, signOuts: user?.signOuts ?? 0 };
  }

  /**
   * Whether the session was not ended since it began. An access token that expires during a long transfer ends
   * nothing.
   */
  isCurrent({ uid, refreshToken, signOuts }: Session): boolean {
    if (refreshToken !== null) return this.#database.refreshTokens.doesExist(refreshToken);
    const user = this.#database.users.get(uid);
    return user !== undefined && (user.signOuts ?? 0) === signOuts;
  }

  /** @throws Refusal 401 if the session was ended */
  checkCurrent(session: Session): void {
    if (!this.isCurrent(session)) throw unauthorized();
  }

  /** Expires one access token immediately. */
  expire(session: Session): void {
    this.#database.change(() => this.#database.removeToken('access', session.token));
  }

  /** Deletes expired access tokens. @returns how many */
  forgetExpired(): number {
    const now = this.#clock.nowMs();
    const dead = [...this.#database.accessTokens.getRange({})].filter(({ value }) => value.expiresMs <= now);
    if (dead.length > 0) {
      this.#database.change(() => {
        for (const { key } of dead) this.#database.removeToken('access', key);
      });
    }
    return dead.length;
  }

  /** @param user who signed in by a password */
  async #issue(uid: string, refreshToken: string | null, user: UserRow | null = null): Promise<IssuedToken> {
    const secret = newSecret();
    const expiresMs = this.#clock.nowMs() + this.#accessTokenMs;
    const row = { uid, refreshToken, expiresMs };
    await this.#database.changeTogether(() => {
      if (user !== null) this.#checkUnchanged(user);
      this.#database.addAccessToken(hashOf(secret), row);
      if (refreshToken !== null) this.#database.useRefreshToken(refreshToken, this.#clock.nowMs());
    });
    return { secret, uid, expiresMs };
  }

  /** While a password is hashed, the user may be removed or get another one. @throws Refusal 401 */
  #checkUnchanged({ uid, signOuts = 0 }: UserRow): void {
    const user = this.#database.users.get(uid);
    if (user === undefined || (user.signOuts ?? 0) !== signOuts) throw unauthorized();
  }

  /** Remembers a network from which a user signed in. Only within `change`. */
  #remember(uid: string, network: string): void {
    const user = this.#database.users.get(uid);
    const hash = networkHash(uid, network);
    const networks = user?.networks ?? [];
    if (user === undefined || networks.slice(0, NETWORKS_MAX / 2).includes(hash)) return;
    const others = networks.filter((known) => known !== hash);
    void this.#database.users.put(uid, { ...user, networks: [hash, ...others].slice(0, NETWORKS_MAX) });
  }
}

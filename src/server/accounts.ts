import { createHash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { AppAuthorizationDocument, AuthRequestDocument, TokenAuthRequestDocument } from '../protocol/messages.ts';
import type { Database, KeyPairRow, PasswordHash, UserRow } from './database.ts';
import { Refusal, unauthorized } from './refusal.ts';
import { Turns } from './turns.ts';

/** The authenticated user of a request. */
export interface Session {
  readonly uid: string;
  /** Hash under which the access token is stored. */
  readonly token: string;
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
  readonly #acceptAnyKeys: boolean;
  readonly #guesses: PasswordGuesses;
  /**
   * Limits concurrent password hashing. Unauthenticated clients can trigger it, for any number of names. Each hash
   * occupies one of the four libuv pool threads, which file reads and writes need too.
   */
  readonly #hashing = new Turns({ atOnceMax: HASHING_AT_ONCE_MAX, waitingMax: HASHING_WAITING_MAX });

  constructor(deps: { database: Database; clock: Clock; accessTokenMs: number; acceptAnyKeys: boolean }) {
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#accessTokenMs = deps.accessTokenMs;
    this.#acceptAnyKeys = deps.acceptAnyKeys;
    this.#guesses = new PasswordGuesses(deps.clock);
  }

  /**
   * @throws Refusal 401 for any wrong input, always with the same message; 503 after too many wrong passwords, or
   * during too many sign-ins
   */
  async createRefreshToken(request: AppAuthorizationDocument, remote: string): Promise<IssuedToken> {
    const user = await this.#signIn(request.username, request.password, remote);
    this.#checkKeys(request);
    this.#checkApplication(request.application);
    const secret = newSecret();
    await this.#database.changeTogether(() => {
      const row = { uid: user.uid, application: request.application, createdMs: this.#clock.nowMs() };
      void this.#database.refreshTokens.put(hashOf(secret), row);
    });
    return { secret, uid: user.uid, expiresMs: Number.POSITIVE_INFINITY };
  }

  /** @param refreshSecret the last part of the refresh token's URL; null for a URL of another server */
  async createAccessToken(request: TokenAuthRequestDocument, refreshSecret: string | null): Promise<IssuedToken> {
    this.#checkKeys(request);
    const hash = refreshSecret === null ? null : hashOf(refreshSecret);
    const refreshToken = hash === null ? undefined : this.#database.refreshTokens.get(hash);
    if (hash === null || refreshToken === undefined) throw unauthorized();
    this.#checkApplication(refreshToken.application);
    return this.#issue(refreshToken.uid, hash);
  }

  /** The older request for an access token, without a refresh token (docs/service.md 3.3). */
  async createAccessTokenByPassword(request: AuthRequestDocument, remote: string): Promise<IssuedToken> {
    const user = await this.#signIn(request.username, request.password, remote);
    this.#checkKeys(request);
    return this.#issue(user.uid, null);
  }

  /** The session of an access token; null if the token is unknown or expired, or its refresh token was revoked. */
  session(secret: string): Session | null {
    const token = hashOf(secret);
    const row = this.#database.accessTokens.get(token);
    if (row === undefined || row.expiresMs <= this.#clock.nowMs()) return null;
    if (row.refreshToken !== null && this.#database.refreshTokens.get(row.refreshToken) === undefined) return null;
    return this.#database.users.get(row.uid) === undefined ? null : { uid: row.uid, token };
  }

  /** Expires one access token immediately. */
  expire(session: Session): void {
    this.#database.change(() => void this.#database.accessTokens.remove(session.token));
  }

  /** Deletes expired access tokens. @returns how many */
  forgetExpired(): number {
    const now = this.#clock.nowMs();
    const dead = [...this.#database.accessTokens.getRange({})].filter(({ value }) => value.expiresMs <= now);
    if (dead.length > 0) {
      this.#database.change(() => {
        for (const { key } of dead) void this.#database.accessTokens.remove(key);
      });
    }
    return dead.length;
  }

  async #issue(uid: string, refreshToken: string | null): Promise<IssuedToken> {
    const secret = newSecret();
    const expiresMs = this.#clock.nowMs() + this.#accessTokenMs;
    const row = { uid, refreshToken, expiresMs };
    await this.#database.changeTogether(() => void this.#database.accessTokens.put(hashOf(secret), row));
    return { secret, uid, expiresMs };
  }

  async #signIn(username: string, password: string, remote: string): Promise<UserRow> {
    const email = username.trim().toLowerCase();
    // Hashed, because the key is stored and unauthenticated input has any length.
    return this.#guesses.inTurn(hashOf(`${email}\0${remote}`), () => this.#userOf(email, password));
  }

  /** Null if the name or the password is wrong. */
  async #userOf(email: string, password: string): Promise<UserRow | null> {
    const uid = email.length > EMAIL_CHARS_MAX ? undefined : this.#database.emails.get(email);
    const user = uid === undefined ? undefined : this.#database.users.get(uid);
    // Hash for unknown users too: the response time must not reveal whether the user exists.
    const matches = await this.#hashing.inTurn(() => passwordMatches(password, user?.password ?? NOBODYS_PASSWORD));
    return user === undefined || !matches ? null : user;
  }

  #checkApplication(id: string): void {
    if (this.#acceptAnyKeys) return;
    if (id.length > KEY_CHARS_MAX || this.#database.applications.get(id)?.enabled !== true) throw unauthorized();
  }

  // ASSUMED (docs/service.md 3.1): any developer's keys are valid for any enabled application; the interface requires
  // no more.
  #checkKeys(keys: { accessKeyId: string; privateAccessKey: string }): void {
    if (this.#acceptAnyKeys) return;
    const row = keys.accessKeyId.length > KEY_CHARS_MAX ? undefined : this.#database.keyPairs.get(keys.accessKeyId);
    const expected = row?.secretHash ?? NO_HASH;
    const given = createHash('sha256').update(keys.privateAccessKey).digest();
    if (!timingSafeEqual(expected, given) || row === undefined) throw unauthorized();
  }
}

/** Half of the threads, and a queue that they process in a few seconds. */
const HASHING_AT_ONCE_MAX = 2;
const HASHING_WAITING_MAX = 64;
const EMAIL_CHARS_MAX = 254;
const KEY_CHARS_MAX = 100;
const NO_HASH = new Uint8Array(32);

/**
 * Back-off for wrong passwords, per remote address and user: the first are free, then each doubles the pause.
 *
 * INVARIANT: at most one guess per key is checked at a time. Concurrent guesses would otherwise be free. Counting them
 * before the check would delay programs that sign in together with the right password.
 */
class PasswordGuesses {
  readonly #clock: Clock;
  readonly #wrong = new Map<string, { count: number; notBeforeMs: number }>();
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * The user found by `look`, after all earlier guesses of `key`. @throws Refusal 401 if there is none; 503 during the
   * pause
   */
  inTurn<T>(key: string, look: () => Promise<T | null>): Promise<T> {
    const guess = (this.#last.get(key) ?? Promise.resolve()).then(() => this.#guess(key, look));
    const done = guess
      .catch(() => {})
      .finally(() => {
        if (this.#last.get(key) === done) this.#last.delete(key);
      });
    this.#last.set(key, done);
    return guess;
  }

  async #guess<T>(key: string, look: () => Promise<T | null>): Promise<T> {
    this.#check(key);
    const found = await look();
    if (found === null) {
      this.#failed(key);
      throw unauthorized();
    }
    this.#wrong.delete(key);
    return found;
  }

  /** @throws Refusal 503 with Retry-After during the pause (docs/service.md 13.3 allows only 5xx besides 400 and 401) */
  #check(key: string): void {
    const waitMs = (this.#wrong.get(key)?.notBeforeMs ?? 0) - this.#clock.elapsedMs();
    if (waitMs <= 0) return;
    throw new Refusal(503, 'Too many wrong passwords', { 'Retry-After': String(Math.ceil(waitMs / 1000)) });
  }

  #failed(key: string): void {
    const count = (this.#wrong.get(key)?.count ?? 0) + 1;
    const pauseMs =
      count < FREE_GUESSES ? 0 : Math.min(GUESS_PAUSE_MS * 2 ** (count - FREE_GUESSES), GUESS_PAUSE_MAX_MS);
    this.#wrong.delete(key);
    this.#wrong.set(key, { count, notBeforeMs: this.#clock.elapsedMs() + pauseMs });
    if (this.#wrong.size > GUESSERS_MAX) this.#wrong.delete(this.#wrong.keys().next().value as string);
  }
}

const FREE_GUESSES = 5;
const GUESS_PAUSE_MS = 1000;
const GUESS_PAUSE_MAX_MS = 15 * 60_000;
const GUESSERS_MAX = 10_000;

/** 256 random bits, in the alphabet of the service's URLs. */
export function newSecret(): string {
  return randomBytes(32).toString('base64url');
}

export function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64url');
}

/** A new key pair for `uid`; the private key is returned here only. */
export function newKeyPair(uid: string, createdMs: number): { row: KeyPairRow; privateAccessKey: string } {
  const privateAccessKey = newSecret();
  const secretHash = createHash('sha256').update(privateAccessKey).digest();
  return {
    row: { accessKeyId: randomBytes(10).toString('hex').toUpperCase(), uid, secretHash, createdMs },
    privateAccessKey,
  };
}

const deriveKey = promisify<string, Uint8Array, number, { N: number; r: number; p: number; maxmem: number }, Buffer>(
  scrypt,
);

/** About 60 ms and 32 MiB for each guess. */
export const SCRYPT_COST = 2 ** 15;

export async function hashPassword(password: string, cost: number = SCRYPT_COST): Promise<PasswordHash> {
  const salt = randomBytes(16);
  return { salt, hash: await derive(password, salt, cost), cost };
}

async function passwordMatches(password: string, expected: PasswordHash): Promise<boolean> {
  return timingSafeEqual(await derive(password, expected.salt, expected.cost), expected.hash);
}

function derive(password: string, salt: Uint8Array, cost: number): Promise<Buffer> {
  return deriveKey(password, salt, 32, { N: cost, r: 8, p: 1, maxmem: 256 * cost * 8 + 65_536 });
}

const NOBODYS_PASSWORD: PasswordHash = { salt: new Uint8Array(16), hash: new Uint8Array(32), cost: SCRYPT_COST };

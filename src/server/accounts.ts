import { createHash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { AppAuthorizationDocument, AuthRequestDocument, TokenAuthRequestDocument } from '../protocol/messages.ts';
import type { Database, KeyPairRow, PasswordHash, UserRow } from './database.ts';
import { Refusal, unauthorized } from './refusal.ts';
import { Turns } from './turns.ts';

/** Whom a request acts for. */
export interface Session {
  readonly uid: string;
  /** Hash under which the access token is kept. */
  readonly token: string;
}

/** A token as it is given away, once. */
export interface IssuedToken {
  readonly secret: string;
  readonly uid: string;
  readonly expiresMs: number;
}

/**
 * Who may do anything at all: passwords, developers' keys, refresh and access tokens (docs/service.md 3).
 *
 * Secrets are never kept: passwords as scrypt, keys and tokens (256 random bits, so one round is enough) as SHA-256.
 */
export class Accounts {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #accessTokenMs: number;
  readonly #acceptAnyKeys: boolean;
  readonly #guesses: PasswordGuesses;
  /**
   * Anybody may have a password looked at, for as many names as he likes. Each takes one of the four threads of libuv's pool for long, and
   * so do reads and writes of files: whoever waits for his data would wait behind all of them.
   */
  readonly #hashing = new Turns({ atOnceMax: HASHING_AT_ONCE_MAX, waitingMax: HASHING_WAITING_MAX });

  constructor(deps: { database: Database; clock: Clock; accessTokenMs: number; acceptAnyKeys: boolean }) {
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#accessTokenMs = deps.accessTokenMs;
    this.#acceptAnyKeys = deps.acceptAnyKeys;
    this.#guesses = new PasswordGuesses(deps.clock);
  }

  /** @throws Refusal 401 for anything wrong, always in the same words; 503 after too many wrong passwords, or where too many sign in at once */
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

  /** @param refreshSecret the last part of the refresh token's URL; null for a URL that is none of ours */
  async createAccessToken(request: TokenAuthRequestDocument, refreshSecret: string | null): Promise<IssuedToken> {
    this.#checkKeys(request);
    const hash = refreshSecret === null ? null : hashOf(refreshSecret);
    const refreshToken = hash === null ? undefined : this.#database.refreshTokens.get(hash);
    if (hash === null || refreshToken === undefined) throw unauthorized();
    this.#checkApplication(refreshToken.application);
    return this.#issue(refreshToken.uid, hash);
  }

  /** The older way to an access token, without a refresh token (docs/service.md 3.3). */
  async createAccessTokenByPassword(request: AuthRequestDocument, remote: string): Promise<IssuedToken> {
    const user = await this.#signIn(request.username, request.password, remote);
    this.#checkKeys(request);
    return this.#issue(user.uid, null);
  }

  /** Whom an access token speaks for; null for one that is unknown, expired, or whose refresh token was revoked. */
  session(secret: string): Session | null {
    const token = hashOf(secret);
    const row = this.#database.accessTokens.get(token);
    if (row === undefined || row.expiresMs <= this.#clock.nowMs()) return null;
    if (row.refreshToken !== null && this.#database.refreshTokens.get(row.refreshToken) === undefined) return null;
    return this.#database.users.get(row.uid) === undefined ? null : { uid: row.uid, token };
  }

  /** Ends one access token now. */
  expire(session: Session): void {
    this.#database.change(() => void this.#database.accessTokens.remove(session.token));
  }

  /** Forgets access tokens that nobody can use any more. @returns how many */
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
    // Hashed: what anybody may send is kept, and is as long as he likes.
    return this.#guesses.inTurn(hashOf(`${email}\0${remote}`), () => this.#userOf(email, password));
  }

  /** Null for anything wrong. */
  async #userOf(email: string, password: string): Promise<UserRow | null> {
    const uid = email.length > EMAIL_CHARS_MAX ? undefined : this.#database.emails.get(email);
    const user = uid === undefined ? undefined : this.#database.users.get(uid);
    // Also for a user who does not exist: the time of the answer must not tell.
    const matches = await this.#hashing.inTurn(() => passwordMatches(password, user?.password ?? NOBODYS_PASSWORD));
    return user === undefined || !matches ? null : user;
  }

  #checkApplication(id: string): void {
    if (this.#acceptAnyKeys) return;
    if (id.length > KEY_CHARS_MAX || this.#database.applications.get(id)?.enabled !== true) throw unauthorized();
  }

  // ASSUMED (docs/service.md 3.1): any developer's keys open any enabled application; the interface asks for no more.
  #checkKeys(keys: { accessKeyId: string; privateAccessKey: string }): void {
    if (this.#acceptAnyKeys) return;
    const row = keys.accessKeyId.length > KEY_CHARS_MAX ? undefined : this.#database.keyPairs.get(keys.accessKeyId);
    const expected = row?.secretHash ?? NO_HASH;
    const given = createHash('sha256').update(keys.privateAccessKey).digest();
    if (!timingSafeEqual(expected, given) || row === undefined) throw unauthorized();
  }
}

/** Half of the threads; and what they do in a few seconds. */
const HASHING_AT_ONCE_MAX = 2;
const HASHING_WAITING_MAX = 64;
const EMAIL_CHARS_MAX = 254;
const KEY_CHARS_MAX = 100;
const NO_HASH = new Uint8Array(32);

/**
 * Wrong passwords from one address for one user: free at first, then each costs twice the pause of the one before.
 *
 * INVARIANT: at most one guess of a key is being looked at. Those that are sent together would be free otherwise, however many; and
 * counting them before they are looked at would put programs that sign in together with the right password into the pause.
 */
class PasswordGuesses {
  readonly #clock: Clock;
  readonly #wrong = new Map<string, { count: number; notBeforeMs: number }>();
  readonly #last = new Map<string, Promise<unknown>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whom `look` finds, after all earlier guesses of `key`. @throws Refusal 401 when that is nobody; 503 while the pause lasts */
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

  /** @throws Refusal 503 with Retry-After while the pause lasts (5xx is all that docs/service.md 13.3 leaves besides 400 and 401) */
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

/** 256 random bits, in the alphabet of the service's addresses. */
export function newSecret(): string {
  return randomBytes(32).toString('base64url');
}

export function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('base64url');
}

/** A new key pair for `uid`; the private key is in the answer and nowhere else. */
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

/** Some 60 ms and 32 MiB of a processor that guesses. */
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

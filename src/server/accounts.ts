import { createHash, hash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { AppAuthorizationDocument, AuthRequestDocument, TokenAuthRequestDocument } from '../protocol/messages.ts';
import type { Database } from './database.ts';
import { type GuessCounter, PasswordGuesses } from './password-guesses.ts';
import { unauthorized } from './refusal.ts';
import type { KeyPairRow, PasswordHash, UserRow } from './rows.ts';
import { Turns } from './turns.ts';

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
  readonly #hashing = new Turns({
    atOnceMax: HASHING_AT_ONCE_MAX,
    waitingMax: HASHING_WAITING_MAX,
    perPartyMax: HASHING_PER_PARTY_MAX,
  });

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
  async createRefreshToken(request: AppAuthorizationDocument, sender: Sender): Promise<IssuedToken> {
    const user = await this.#signIn(request, request.application, sender);
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
    if (!this.#areKeysRight(request)) throw unauthorized();
    const hash = refreshSecret === null ? null : hashOf(refreshSecret);
    const refreshToken = hash === null ? undefined : this.#database.refreshTokens.get(hash);
    if (hash === null || refreshToken === undefined) throw unauthorized();
    if (!this.#isEnabled(refreshToken.application)) throw unauthorized();
    return this.#issue(refreshToken.uid, hash);
  }

  /** The older request for an access token, without a refresh token (docs/service.md 3.3). */
  async createAccessTokenByPassword(request: AuthRequestDocument, sender: Sender): Promise<IssuedToken> {
    const user = await this.#signIn(request, null, sender);
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

  /**
   * The user of a right name, password, key pair and application. All of it is one guess: no answer reveals
   * which part was right.
   *
   * Guesses count per user and network, and per user. A network from which the user signed in before counts only its
   * own guesses, and so does the user's own key pair: others cannot hold up a user who has either.
   */
  async #signIn(
    request: AuthRequestDocument | AppAuthorizationDocument,
    application: string | null,
    sender: Sender,
  ): Promise<UserRow> {
    const email = request.username.trim().toLowerCase();
    const uid = email.length > EMAIL_CHARS_MAX ? undefined : this.#database.emails.get(email);
    const user = uid === undefined ? undefined : this.#database.users.get(uid);
    const keyPair = this.#keyPair(request);
    const hasRightKeys = keyPair !== null || this.#acceptAnyKeys;
    // Hashed, because the key is stored and unauthenticated input has any length.
    const counter = (kind: string, part: string, free: number): GuessCounter => ({
      key: hashOf(`${kind}\0${email}\0${part}`),
      free,
    });
    const ofNetwork = counter('network', sender.network, FREE_GUESSES);
    const isKnown = user?.networks?.includes(networkHash(user.uid, sender.network)) === true;
    const counters: [GuessCounter, ...GuessCounter[]] =
      keyPair !== null && keyPair.uid === user?.uid
        ? [counter('keys', keyPair.accessKeyId, FREE_GUESSES)]
        : isKnown
          ? [ofNetwork]
          : [ofNetwork, counter('user', '', FREE_GUESSES_OF_ALL)];
    return this.#guesses.inTurn(counters, async () => {
      // Hash for unknown users too: the response time must not reveal whether the user exists.
      const matches = await this.#hashing.inTurn(
        () => passwordMatches(request.password, user?.password ?? NOBODYS_PASSWORD),
        { party: keyPair?.accessKeyId ?? sender.network, isGone: sender.isGone },
      );
      const isRight = matches && hasRightKeys && (application === null || this.#isEnabled(application));
      return user === undefined || !isRight ? null : user;
    });
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

  #isEnabled(application: string): boolean {
    if (this.#acceptAnyKeys) return true;
    return application.length <= KEY_CHARS_MAX && this.#database.applications.get(application)?.enabled === true;
  }

  // ASSUMED (docs/service.md 3.1): any developer's keys are valid for any enabled application; the interface requires
  // no more.
  #areKeysRight(keys: { accessKeyId: string; privateAccessKey: string }): boolean {
    return this.#acceptAnyKeys || this.#keyPair(keys) !== null;
  }

  /** Null if the id or the private key is wrong. */
  #keyPair(keys: { accessKeyId: string; privateAccessKey: string }): KeyPairRow | null {
    const row = keys.accessKeyId.length > KEY_CHARS_MAX ? undefined : this.#database.keyPairs.get(keys.accessKeyId);
    const expected = row?.secretHash ?? NO_HASH;
    const given = createHash('sha256').update(keys.privateAccessKey).digest();
    return timingSafeEqual(expected, given) && row !== undefined ? row : null;
  }
}

/** The sender of a sign-in. */
export interface Sender {
  /** An IPv4 address, or 64 bits of an IPv6 address. */
  readonly network: string;
  /** Whether the connection has closed. */
  readonly isGone: () => boolean;
}

function networkHash(uid: string, network: string): string {
  return hashOf(`${uid}\0${network}`).slice(0, 22);
}

/** Wrong guesses without a pause: from one network, and from all networks together. */
const FREE_GUESSES = 5;
const FREE_GUESSES_OF_ALL = 30;
/** Networks remembered per user. */
const NETWORKS_MAX = 16;
/** Half of the threads, and a queue that they process in a few seconds. */
const HASHING_AT_ONCE_MAX = 2;
const HASHING_WAITING_MAX = 256;
const HASHING_PER_PARTY_MAX = 32;
const EMAIL_CHARS_MAX = 254;
const KEY_CHARS_MAX = 100;
const NO_HASH = new Uint8Array(32);

/** 256 random bits, in the alphabet of the service's URLs. */
export function newSecret(): string {
  return randomBytes(32).toString('base64url');
}

export function hashOf(secret: string): string {
  return hash('sha256', secret, 'base64url');
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

import { createHash, hash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { AppAuthorizationDocument, AuthRequestDocument } from '../protocol/messages.ts';
import { type GuessCounter, PasswordGuesses } from './password-guesses.ts';
import type { KeyPairRow, PasswordHash, UserRow } from './rows.ts';
import { Turns } from './turns.ts';

/** Rows that a sign-in compares its input with. */
export interface SignInRows {
  /** @param email in lower case, of a possible length */
  user(email: string): UserRow | undefined | Promise<UserRow | undefined>;
  keyPair(accessKeyId: string): KeyPairRow | undefined | Promise<KeyPairRow | undefined>;
  isEnabled(application: string): boolean | Promise<boolean>;
}

/** Checks passwords and developers' keys, and slows down guesses (docs/service.md 3). */
export class SignIn {
  readonly #rows: SignInRows;
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

  constructor(deps: { rows: SignInRows; clock: Clock; acceptAnyKeys: boolean; guesses?: PasswordGuesses }) {
    this.#rows = deps.rows;
    this.#acceptAnyKeys = deps.acceptAnyKeys;
    this.#guesses = deps.guesses ?? new PasswordGuesses(deps.clock);
  }

  /**
   * The user of a right name, password, key pair and application. All of it is one guess: no answer reveals
   * which part was right.
   *
   * Guesses count per user and network, and per user. A network from which the user signed in before counts only its
   * own guesses, and so does the user's own key pair: others cannot hold up a user who has either.
   * @throws Refusal 401, 503
   */
  async userOf(
    request: AuthRequestDocument | AppAuthorizationDocument,
    application: string | null,
    sender: Sender,
  ): Promise<UserRow> {
    const email = request.username.trim().toLowerCase();
    const user = email.length > EMAIL_CHARS_MAX ? undefined : await this.#rows.user(email);
    const keyPair = await this.#keyPair(request);
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
      const isRight = matches && hasRightKeys && (application === null || (await this.isEnabled(application)));
      return user === undefined || !isRight ? null : user;
    });
  }

  async isEnabled(application: string): Promise<boolean> {
    if (this.#acceptAnyKeys) return true;
    return application.length <= KEY_CHARS_MAX && (await this.#rows.isEnabled(application));
  }

  // ASSUMED (docs/service.md 3.1): any developer's keys are valid for any enabled application; the interface requires
  // no more.
  async areKeysRight(keys: { accessKeyId: string; privateAccessKey: string }): Promise<boolean> {
    return this.#acceptAnyKeys || (await this.#keyPair(keys)) !== null;
  }

  /** Null if the id or the private key is wrong. */
  async #keyPair(keys: { accessKeyId: string; privateAccessKey: string }): Promise<KeyPairRow | null> {
    const row = keys.accessKeyId.length > KEY_CHARS_MAX ? undefined : await this.#rows.keyPair(keys.accessKeyId);
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

/** Stored of a network from which a user signed in. */
export function networkHash(uid: string, network: string): string {
  return hashOf(`${uid}\0${network}`).slice(0, 22);
}

/** Wrong guesses without a pause: from one network, and from all networks together. */
const FREE_GUESSES = 5;
const FREE_GUESSES_OF_ALL = 30;
/** Networks remembered per user. */
export const NETWORKS_MAX = 16;
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

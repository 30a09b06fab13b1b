import { createHash } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type {
  AppAuthorizationDocument,
  AuthRequestDocument,
  TokenAuthRequestDocument,
} from '../../protocol/messages.ts';
import type { IssuedToken, Session } from '../accounts.ts';
import { PasswordGuesses } from '../password-guesses.ts';
import { notFound, unauthorized } from '../refusal.ts';
import { ACCESS_TOKENS_MAX, type KeyPairRow, REFRESH_TOKENS_MAX, USED_STEP_MS, type UserRow } from '../rows.ts';
import type { AccountRules } from '../rules.ts';
import { hashOf, NETWORKS_MAX, networkHash, newSecret, type Sender, SignIn } from '../sign-in.ts';
import { BatchedCalls } from './batched-calls.ts';
import type { Postgres } from './postgres.ts';
import { PostgresGuesses } from './postgres-guesses.ts';
import { type SqlUser, userRow } from './postgres-rows.ts';

/** Sign-in and tokens over PostgreSQL. */
export class PostgresAccounts implements AccountRules {
  readonly #postgres: Postgres;
  readonly #clock: Clock;
  readonly #accessTokenMs: number;
  readonly #acceptAnyKeys: boolean;
  readonly #signIn: SignIn;
  /** By the hash of an access token. Listings and downloads are to wait for no other request. */
  readonly #sessions = new BatchedCalls<string, SqlSession>(
    (tokens) => this.#postgres.keptRows<SqlSession>('SELECT * FROM sessions($1, $2)', tokens, this.#clock.nowMs()),
    0,
  );

  /**
   * By the hash of an access token, the latest last. INVARIANT: a token keeps its user, refresh token and count of sign-outs until it
   * ends. Only whether it has ended must be asked.
   */
  readonly #remembered = new Map<string, Session>();

  constructor(deps: { postgres: Postgres; clock: Clock; accessTokenMs: number; acceptAnyKeys: boolean }) {
    this.#postgres = deps.postgres;
    this.#clock = deps.clock;
    this.#accessTokenMs = deps.accessTokenMs;
    this.#acceptAnyKeys = deps.acceptAnyKeys;
    const { postgres, clock, acceptAnyKeys } = deps;
    const rows = {
      user: async (email: string): Promise<UserRow | undefined> => {
        if (email.includes('\0')) return undefined;
        const row = await postgres.row<SqlUser>('SELECT * FROM users WHERE email = $1', email);
        return row && userRow(row);
      },
      keyPair: (accessKeyId: string): Promise<KeyPairRow | undefined> =>
        postgres.row<KeyPairRow>(
          `SELECT access_key_id AS "accessKeyId", uid, secret_hash AS "secretHash", created_ms AS "createdMs"
          FROM key_pairs WHERE access_key_id = $1`,
          withoutNul(accessKeyId),
        ),
      isEnabled: async (id: string): Promise<boolean> =>
        (await postgres.row('SELECT FROM applications WHERE id = $1 AND enabled', withoutNul(id))) !== undefined,
    };
    const guesses = new PasswordGuesses(clock, new PostgresGuesses({ postgres, clock }));
    this.#signIn = new SignIn({ rows, clock, acceptAnyKeys, guesses });
  }

  async createRefreshToken(request: AppAuthorizationDocument, sender: Sender): Promise<IssuedToken> {
    const { uid, signOuts } = await this.#signIn.userOf(request, request.application, sender);
    const secret = newSecret();
    await this.#postgres.rows(
      'SELECT add_refresh_token($1, $2, $3, $4, $5, $6, $7, $8)',
      hashOf(secret),
      uid,
      signOuts,
      withoutNul(request.application),
      networkHash(uid, sender.network),
      NETWORKS_MAX,
      REFRESH_TOKENS_MAX,
      this.#clock.nowMs(),
    );
    return { secret, uid, expiresMs: Number.POSITIVE_INFINITY };
  }

  async createAccessToken(request: TokenAuthRequestDocument, refreshSecret: string | null): Promise<IssuedToken> {
    if (refreshSecret === null) throw unauthorized();
    const secret = newSecret();
    const expiresMs = this.#clock.nowMs() + this.#accessTokenMs;
    const { uid } = await this.#postgres.one<{ uid: string }>(
      'SELECT add_access_token($1, $2, $3, $4, $5, $6, $7, $8, $9) AS uid',
      hashOf(secret),
      hashOf(refreshSecret),
      withoutNul(request.accessKeyId),
      createHash('sha256').update(request.privateAccessKey).digest(),
      this.#acceptAnyKeys,
      ACCESS_TOKENS_MAX,
      USED_STEP_MS,
      this.#clock.nowMs(),
      expiresMs,
    );
    return { secret, uid, expiresMs };
  }

  async createAccessTokenByPassword(request: AuthRequestDocument, sender: Sender): Promise<IssuedToken> {
    const { uid, signOuts } = await this.#signIn.userOf(request, null, sender);
    const secret = newSecret();
    const expiresMs = this.#clock.nowMs() + this.#accessTokenMs;
    await this.#postgres.rows(
      'SELECT add_access_token_by_password($1, $2, $3, $4, $5)',
      hashOf(secret),
      uid,
      signOuts,
      ACCESS_TOKENS_MAX,
      expiresMs,
    );
    return { secret, uid, expiresMs };
  }

  async session(secret: string): Promise<Session | null> {
    const token = hashOf(secret);
    const row = await this.#sessions.call(token);
    this.#remembered.delete(token);
    if (row.uid === null) return null;
    const session = { uid: row.uid, token, refreshToken: row.refresh_token, signOuts: row.sign_outs };
    this.#remembered.set(token, session);
    if (this.#remembered.size > REMEMBERED_MAX) this.#remembered.delete(this.#remembered.keys().next().value as string);
    return session;
  }

  remembered(secret: string): Session | null {
    return this.#remembered.get(hashOf(secret)) ?? null;
  }

  async expire(session: Session): Promise<void> {
    await this.#postgres.rows('DELETE FROM access_tokens WHERE hash = $1', session.token);
  }

  async user(uid: string): Promise<{ readonly row: UserRow; readonly usageBytes: number }> {
    const row = await this.#postgres.row<SqlUser>('SELECT * FROM users WHERE uid = $1', uid);
    if (row === undefined) throw notFound();
    return { row: userRow(row), usageBytes: row.usage_bytes };
  }
}

/** `uid`: null for a token that is not valid. */
interface SqlSession {
  readonly uid: string | null;
  readonly refresh_token: string | null;
  readonly sign_outs: number;
}

/** Some 5 MB. */
const REMEMBERED_MAX = 10_000;

/** PostgreSQL's texts have no NUL. No id contains one, so any other text does for the comparison. */
function withoutNul(id: string): string {
  return id.replaceAll('\0', '\n').slice(0, 200);
}

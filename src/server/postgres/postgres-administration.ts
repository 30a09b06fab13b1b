import { randomInt } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import { UsageError } from '../../base/errors.ts';
import { addressOf, DEFAULT_QUOTA_BYTES, HOUSE_UID, KEY_PAIRS_MAX } from '../administration.ts';
import type { HoldingLimits } from '../holdings.ts';
import { randomSuffix } from '../random-suffix.ts';
import { type NameRules, nameHash, SYSTEM_FOLDER_NAMES } from '../repository.ts';
import type { AdministrationRules, KeyPair, UserSummary } from '../rules.ts';
import { hashPassword, newKeyPair } from '../sign-in.ts';
import type { Postgres } from './postgres.ts';
import { type SqlLimits, type SqlNames, sqlLimits, sqlNames } from './postgres-rows.ts';

/** The operator's functions over PostgreSQL. */
export class PostgresAdministration implements AdministrationRules {
  readonly #postgres: Postgres;
  readonly #clock: Clock;

  readonly #names: SqlNames;
  readonly #limits: SqlLimits;

  constructor(deps: { postgres: Postgres; clock: Clock; rules: NameRules; limits: HoldingLimits }) {
    this.#postgres = deps.postgres;
    this.#clock = deps.clock;
    this.#names = sqlNames(deps.rules);
    this.#limits = sqlLimits(deps.limits);
  }

  async addUser(
    email: string,
    password: string,
    options: { nickname?: string; quotaBytes?: number; scryptCost?: number } = {},
  ): Promise<{ userId: string }> {
    const address = addressOf(email);
    if (password === '') throw new UsageError('an empty password');
    const { salt, hash, cost } = await hashPassword(password, options.scryptCost);
    const row = await this.#postgres.row<{ uid: string }>(
      `WITH added AS (
        INSERT INTO users (email, nickname, salt, hash, cost, quota_bytes, created_ms)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (email) DO NOTHING RETURNING uid
      ), folders AS (
        INSERT INTO resources (uid, local, is_file, seq, name, name_hash, parent, created_ms, role)
        SELECT uid, local, false, local::bigint, name, name_hash, 'folders', $7, 'system'
        FROM added, unnest($8::text[], $9::text[], $10::text[]) AS system (local, name, name_hash)
      ) SELECT uid FROM added`,
      address,
      options.nickname ?? (address.split('@')[0] as string),
      salt,
      hash,
      cost,
      options.quotaBytes ?? DEFAULT_QUOTA_BYTES,
      this.#clock.nowMs(),
      SYSTEM_FOLDER_NAMES.map(([local]) => local),
      SYSTEM_FOLDER_NAMES.map(([, name]) => name),
      SYSTEM_FOLDER_NAMES.map(([, name]) => nameHash(name)),
    );
    if (row === undefined) throw new UsageError(`there is a user ${address} already`);
    return { userId: row.uid };
  }

  async setPassword(email: string, password: string): Promise<void> {
    const uid = await this.#uid(email);
    if (password === '') throw new UsageError('an empty password');
    const { salt, hash, cost } = await hashPassword(password);
    await this.#postgres.rows(
      `WITH changed AS (UPDATE users SET salt = $2, hash = $3, cost = $4, sign_outs = sign_outs + 1 WHERE uid = $1),
        ended AS (DELETE FROM access_tokens WHERE uid = $1)
      DELETE FROM refresh_tokens WHERE uid = $1`,
      uid,
      salt,
      hash,
      cost,
    );
  }

  /**
   * First its sign-in and shares, then its files in small changes, then its row with what is left. An interrupted
   * removal can be repeated.
   */
  async removeUser(email: string): Promise<void> {
    const uid = await this.#uid(email);
    await this.#postgres.rows(
      `WITH ended AS (SELECT sign_out($1)), keys AS (DELETE FROM key_pairs WHERE uid = $1)
      DELETE FROM shares WHERE owner = $1 OR receiver = $1 OR (SELECT count(*) FROM ended) = 0`,
      uid,
    );
    for (let hasMore = true; hasMore; )
      hasMore = (
        await this.#postgres.one<{ more: boolean }>('SELECT delete_some($1, $2) AS more', uid, DELETED_AT_ONCE)
      ).more;
    await this.#postgres.rows('DELETE FROM users WHERE uid = $1', uid);
  }

  async checkUser(email: string): Promise<void> {
    await this.#uid(email);
  }

  async setQuota(email: string, quotaBytes: number): Promise<void> {
    await this.#postgres.rows('UPDATE users SET quota_bytes = $2 WHERE uid = $1', await this.#uid(email), quotaBytes);
  }

  async users(): Promise<UserSummary[]> {
    return this.#postgres.rows<UserSummary>(
      `SELECT uid AS "userId", email, nickname, quota_bytes AS "quotaBytes", usage_bytes AS "usageBytes",
        ARRAY(SELECT access_key_id FROM key_pairs WHERE key_pairs.uid = users.uid ORDER BY 1) AS "keyPairs"
      FROM users ORDER BY uid`,
    );
  }

  async addApplication(name: string, options: { owner?: string } = {}): Promise<string> {
    const uid = options.owner === undefined ? HOUSE_UID : await this.#uid(options.owner);
    const { id } = await this.#postgres.one<{ id: string }>(
      `INSERT INTO applications (id, name)
      SELECT '/sc/' || $1::text || '/' || nextval('numbers') || '_' || $2::text, $3 RETURNING id`,
      uid,
      String(randomInt(2 ** 32)),
      name,
    );
    return id;
  }

  async setApplicationEnabled(id: string, enabled: boolean): Promise<void> {
    const row = await this.#postgres.row(
      'UPDATE applications SET enabled = $2 WHERE id = $1 RETURNING id',
      id,
      enabled,
    );
    if (row === undefined) throw new UsageError(`there is no application ${id}`);
  }

  async applications(): Promise<{ id: string; name: string; enabled: boolean }[]> {
    return this.#postgres.rows('SELECT id, name, enabled FROM applications ORDER BY id');
  }

  async addKeyPair(email: string): Promise<KeyPair> {
    const uid = await this.#uid(email);
    const { row, privateAccessKey } = newKeyPair(uid, this.#clock.nowMs());
    const { added } = await this.#postgres.one<{ added: boolean }>(
      'SELECT add_key_pair($1, $2, $3, $4, $5) AS added',
      uid,
      row.accessKeyId,
      row.secretHash,
      KEY_PAIRS_MAX,
      row.createdMs,
    );
    if (!added) throw new UsageError(`${email} has ${KEY_PAIRS_MAX} key pairs already: revoke one first`);
    return { accessKeyId: row.accessKeyId, privateAccessKey };
  }

  async revokeKeyPair(accessKeyId: string): Promise<void> {
    const row = await this.#postgres.row('DELETE FROM key_pairs WHERE access_key_id = $1 RETURNING uid', accessKeyId);
    if (row === undefined) throw new UsageError(`there is no key ${accessKeyId}`);
  }

  async revokeTokens(email: string): Promise<number> {
    const { ended } = await this.#postgres.one<{ ended: number }>(
      'SELECT sign_out($1) AS ended',
      await this.#uid(email),
    );
    return ended;
  }

  async share(owner: string, folder: string, receiver: string, options: { writeAllowed: boolean }): Promise<void> {
    const [from, to] = [await this.#uid(owner), await this.#uid(receiver)];
    if (from === to) throw new UsageError('a share needs two users');
    const row = await this.#postgres.row(
      `INSERT INTO shares SELECT $1, uid, local, $4, $5 FROM resources WHERE uid = $2 AND local = $3 AND NOT is_file
      ON CONFLICT (receiver, owner, folder) DO UPDATE SET write_allowed = $4, created_ms = $5 RETURNING folder`,
      to,
      from,
      folder,
      options.writeAllowed,
      this.#clock.nowMs(),
    );
    if (row === undefined) throw new UsageError(`no folder ${folder} of ${owner}`);
  }

  async unshare(owner: string, folder: string, receiver: string): Promise<void> {
    const [from, to] = [await this.#uid(owner), await this.#uid(receiver)];
    const row = await this.#postgres.row(
      'DELETE FROM shares WHERE receiver = $1 AND owner = $2 AND folder = $3 RETURNING folder',
      to,
      from,
      folder,
    );
    if (row === undefined) throw new UsageError('there is no such share');
  }

  async addWorkspace(email: string, name: string, options: { syncFolders?: readonly string[] } = {}): Promise<string> {
    const uid = await this.#uid(email);
    const folders = options.syncFolders ?? [];
    const { local } = await this.#postgres.one<{ local: string }>(
      `WITH added AS (
        INSERT INTO workspaces SELECT $1, nextval('numbers') || '_' || $2::text, $3, '1', $4 RETURNING uid, local
      ), folders AS (
        SELECT count(add_entry(uid, uid, 'folders', false, name, hash, NULL, 'sync', local, suffix, $8, $4, $9))
        FROM added, unnest($5::text[], $6::text[], $7::text[]) AS wanted (name, hash, suffix)
      ) SELECT local FROM added, folders`,
      uid,
      randomSuffix(),
      name,
      this.#clock.nowMs(),
      folders,
      folders.map(nameHash),
      folders.map(() => randomSuffix()),
      this.#names,
      this.#limits,
    );
    return local;
  }

  async #uid(email: string): Promise<string> {
    const address = email.trim().toLowerCase().slice(0, 254);
    const row = await this.#postgres.row<{ uid: string }>('SELECT uid FROM users WHERE email = $1', address);
    if (row === undefined) throw new UsageError(`there is no user ${email}`);
    return row.uid;
  }
}

/** Files and folders of a removed account in one change. */
const DELETED_AT_ONCE = 500;

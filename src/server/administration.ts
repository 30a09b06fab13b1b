import { randomInt } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { removeAccountData } from './account-removal.ts';
import type { Blobs } from './blobs.ts';
import type { Database } from './database.ts';
import { randomSuffix } from './random-suffix.ts';
import type { Repository } from './repository.ts';
import type { UserRow } from './rows.ts';
import type { AdministrationRules, KeyPair, UserSummary } from './rules.ts';
import { hashPassword, newKeyPair } from './sign-in.ts';

/**
 * The functions of the service's developer console and sign-up page: users, applications, keys, shares. Works on the
 * data directory, even while a server runs on it. Every mistake is a UsageError of one sentence.
 */
export class Administration implements AdministrationRules {
  readonly #database: Database;
  readonly #repository: Repository;
  readonly #blobs: Blobs;
  readonly #clock: Clock;

  constructor(deps: { database: Database; repository: Repository; blobs: Blobs; clock: Clock }) {
    this.#blobs = deps.blobs;
    this.#database = deps.database;
    this.#repository = deps.repository;
    this.#clock = deps.clock;
  }

  /** Creates an account with its system folders. `scryptCost` (a power of two) is for tests that create many. */
  async addUser(
    email: string,
    password: string,
    options: { nickname?: string; quotaBytes?: number; scryptCost?: number } = {},
  ): Promise<{ userId: string }> {
    const address = addressOf(email);
    if (password === '') throw new UsageError('an empty password');
    const hash = await hashPassword(password, options.scryptCost);
    return this.#database.change(() => {
      if (this.#database.emails.get(address) !== undefined) throw new UsageError(`there is a user ${address} already`);
      const uid = this.#nextUid();
      const createdMs = this.#clock.nowMs();
      const row: UserRow = {
        uid,
        email: address,
        nickname: options.nickname ?? (address.split('@')[0] as string),
        password: hash,
        quotaBytes: options.quotaBytes ?? DEFAULT_QUOTA_BYTES,
        createdMs,
      };
      void this.#database.users.put(uid, row);
      void this.#database.emails.put(address, uid);
      this.#repository.createSystemFolders(uid);
      return { userId: uid };
    });
  }

  /** Changes a password and signs the user out everywhere. */
  async setPassword(email: string, password: string): Promise<void> {
    this.#user(email);
    if (password === '') throw new UsageError('an empty password');
    const hash = await hashPassword(password);
    this.#database.change(() => {
      this.#changeUser(email, (row) => ({ ...row, password: hash }));
      this.#signOut(this.#user(email));
    });
  }

  /**
   * Removes an account: first its sign-in, keys, tokens and shares, then its data. A running server ends its requests.
   * If the process is killed in between, the server removes the rest.
   */
  async removeUser(email: string): Promise<void> {
    const uid = this.#database.change(() => {
      const user = this.#user(email);
      const { uid, email: address } = user;
      this.#signOut(user);
      for (const { key, value } of [...this.#database.keyPairs.getRange({})])
        if (value.uid === uid) void this.#database.keyPairs.remove(key);
      for (const [receiver, owner, folder] of [...this.#database.shares.getKeys({})]) {
        if (receiver !== uid && owner !== uid) continue;
        void this.#database.shares.remove([receiver, owner, folder]);
        void this.#database.sharedFolders.remove([owner, folder, receiver]);
      }
      void this.#database.users.remove(uid);
      void this.#database.emails.remove(address);
      void this.#database.removals.put(uid, true);
      return uid;
    });
    await removeAccountData(this.#database, this.#blobs, uid);
  }

  async checkUser(email: string): Promise<void> {
    this.#user(email);
  }

  async setQuota(email: string, quotaBytes: number): Promise<void> {
    this.#changeUser(email, (row) => ({ ...row, quotaBytes }));
  }

  async users(): Promise<UserSummary[]> {
    const keys = [...this.#database.keyPairs.getRange({})].map(({ value }) => value);
    return [...this.#database.users.getRange({})].map(({ value: { uid, email, nickname, quotaBytes } }) => ({
      userId: uid,
      email,
      nickname,
      quotaBytes,
      usageBytes: this.#database.usage.get(uid) ?? 0,
      keyPairs: keys.filter((key) => key.uid === uid).map((key) => key.accessKeyId),
    }));
  }

  /** @returns its id, `/sc/<uid>/<n>_<n>` */
  async addApplication(name: string, options: { owner?: string } = {}): Promise<string> {
    return this.#database.change(() => {
      const uid = options.owner === undefined ? HOUSE_UID : this.#user(options.owner).uid;
      const id = `/sc/${uid}/${this.#database.nextNumber()}_${randomInt(2 ** 32)}`;
      void this.#database.applications.put(id, { id, name, enabled: true });
      return id;
    });
  }

  /** A disabled application gets no new tokens; its access tokens expire within the hour. */
  async setApplicationEnabled(id: string, enabled: boolean): Promise<void> {
    this.#database.change(() => {
      const row = this.#database.applications.get(id);
      if (row === undefined) throw new UsageError(`there is no application ${id}`);
      void this.#database.applications.put(id, { ...row, enabled });
    });
  }

  async applications(): Promise<{ id: string; name: string; enabled: boolean }[]> {
    return [...this.#database.applications.getRange({})].map(({ value }) => value);
  }

  /** @throws UsageError above ten pairs (docs/service.md 3.1) */
  async addKeyPair(email: string): Promise<KeyPair> {
    return this.#database.change(() => {
      const { uid } = this.#user(email);
      const count = [...this.#database.keyPairs.getRange({})].filter(({ value }) => value.uid === uid).length;
      if (count >= KEY_PAIRS_MAX)
        throw new UsageError(`${email} has ${KEY_PAIRS_MAX} key pairs already: revoke one first`);
      const { row, privateAccessKey } = newKeyPair(uid, this.#clock.nowMs());
      void this.#database.keyPairs.put(row.accessKeyId, row);
      return { accessKeyId: row.accessKeyId, privateAccessKey };
    });
  }

  async revokeKeyPair(accessKeyId: string): Promise<void> {
    this.#database.change(() => {
      if (this.#database.keyPairs.get(accessKeyId) === undefined)
        throw new UsageError(`there is no key ${accessKeyId}`);
      void this.#database.keyPairs.remove(accessKeyId);
    });
  }

  /** Revokes all refresh tokens of a user, and with them all access tokens. @returns how many */
  async revokeTokens(email: string): Promise<number> {
    return this.#database.change(() => this.#signOut(this.#user(email)));
  }

  /** Shares a folder of `owner` with `receiver`, read-only unless `writeAllowed`. Also changes an existing share. */
  async share(owner: string, folder: string, receiver: string, options: { writeAllowed: boolean }): Promise<void> {
    this.#database.change(() => {
      const from = this.#user(owner).uid;
      const to = this.#user(receiver).uid;
      if (from === to) throw new UsageError('a share needs two users');
      if (this.#database.resources.get([from, folder])?.kind !== 'folder')
        throw new UsageError(`no folder ${folder} of ${owner}`);
      const row = { writeAllowed: options.writeAllowed, createdMs: this.#clock.nowMs() };
      void this.#database.shares.put([to, from, folder], row);
      void this.#database.sharedFolders.put([from, folder, to], true);
    });
  }

  async unshare(owner: string, folder: string, receiver: string): Promise<void> {
    this.#database.change(() => {
      const from = this.#user(owner).uid;
      const to = this.#user(receiver).uid;
      if (this.#database.shares.get([to, from, folder]) === undefined) throw new UsageError('there is no such share');
      void this.#database.shares.remove([to, from, folder]);
      void this.#database.sharedFolders.remove([from, folder, to]);
    });
  }

  /** Adds a workspace (the service's term for a computer) with sync folders of its own. @returns its local id */
  async addWorkspace(email: string, name: string, options: { syncFolders?: readonly string[] } = {}): Promise<string> {
    return this.#database.change(() => {
      const { uid } = this.#user(email);
      const createdMs = this.#clock.nowMs();
      const local = `${this.#database.nextNumber()}_${randomSuffix()}`;
      void this.#database.workspaces.put([uid, local], { uid, local, name, iconId: '1', createdMs });
      for (const folder of options.syncFolders ?? []) this.#repository.createSyncFolder(uid, folder, local);
      return local;
    });
  }

  /** @returns how many refresh tokens it ended */
  #signOut(user: UserRow): number {
    void this.#database.users.put(user.uid, { ...user, signOuts: (user.signOuts ?? 0) + 1 });
    this.#database.removeTokens(user.uid, 'access');
    return this.#database.removeTokens(user.uid, 'refresh');
  }

  #user(email: string): UserRow {
    const uid = this.#database.emails.get(email.trim().toLowerCase().slice(0, 254));
    const row = uid === undefined ? undefined : this.#database.users.get(uid);
    if (row === undefined) throw new UsageError(`there is no user ${email}`);
    return row;
  }

  #changeUser(email: string, change: (row: UserRow) => UserRow): void {
    this.#database.change(() => {
      const row = this.#user(email);
      void this.#database.users.put(row.uid, change(row));
    });
  }

  #nextUid(): string {
    const uid = (this.#database.meta.get('nextUid') as number | undefined) ?? FIRST_UID;
    void this.#database.meta.put('nextUid', uid + 1);
    return String(uid);
  }
}

/** @throws UsageError if it is no e-mail address */
export function addressOf(email: string): string {
  const address = email.trim().toLowerCase();
  if (!/^[^\s@]+@[^\s@]+$/.test(address) || address.length > 254)
    throw new UsageError(`not an e-mail address: ${email}`);
  return address;
}

export const FIRST_UID = 1001;
/** Owner id of the operator's own applications. */
export const HOUSE_UID = '1000';
export const KEY_PAIRS_MAX = 10;
export const DEFAULT_QUOTA_BYTES = 100 * 1024 ** 3;

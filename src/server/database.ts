import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, linkSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type Key, open, type RootDatabase, type Database as Table } from 'lmdb';
import { StorageError } from '../base/errors.ts';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import { makeDataDirectory, refuseForeignFile, refuseWritableByOthers, syncNow } from './data-directory.ts';
import { DiskReserve, type DiskSpace, diskSpaceOf } from './disk-reserve.ts';
import { entryBytes, HOLDING_LIMITS, type HoldingLimits, Holdings, versionBytes } from './holdings.ts';
import { ObjectTable } from './object-table.ts';
import { noRoom } from './refusal.ts';
import {
  ACCESS_TOKENS_MAX,
  type AccessTokenRow,
  type ApplicationRow,
  type HoldingRow,
  type KeyPairRow,
  REFRESH_TOKENS_MAX,
  type RefreshTokenRow,
  type ResourceRow,
  SEQ_END,
  type ShareRow,
  type TokenKind,
  USED_STEP_MS,
  type UserRow,
  type VersionRow,
  type WorkspaceRow,
} from './rows.ts';

/**
 * The reference server's state as LMDB tables: everything except the bytes of larger versions (`blobs.ts`).
 *
 * A change is synchronous code. It sees its own writes, rolls back if it throws, is durable before it is acknowledged,
 * and excludes other processes, so that administration works beside a running server. Concurrent requests share a
 * commit (`changeTogether`): the event loop blocks for one fdatasync per turn (0.2 to 0.7 ms), independent of the
 * number of clients.
 *
 * lmdb's asynchronous transactions are not used: they run in another thread, and measured two to four times the cost,
 * alone and with eight at once. A commit that fails (full disk) causes an unhandled rejection and a flush that never
 * completes, instead of an error for the caller.
 */
export class Database {
  readonly meta: Table<number | string, string>;
  readonly users: Table<UserRow, string>;
  /** E-mail address in lower case → uid. */
  readonly emails: Table<string, string>;
  readonly usage: Table<number, string>;
  readonly applications: Table<ApplicationRow, string>;
  readonly keyPairs: Table<KeyPairRow, string>;
  /** Tokens are keyed by the SHA-256 of their secret: a reader of this file cannot use them. */
  readonly refreshTokens: Table<RefreshTokenRow, string>;
  readonly accessTokens: Table<AccessTokenRow, string>;
  /** [uid, kind, time, hash]: the tokens of a user, the oldest first. */
  readonly userTokens: Table<true, TokenKey>;
  /** [uid, local] */
  readonly resources: Table<ResourceRow, [string, string]>;
  /** [uid, parent, rank, seq] → local; rank 0 folders, 1 files: the order of an unsorted listing. */
  readonly children: Table<string, [string, string, number, number]>;
  /** [uid, parent, hash of the folded name, local]: finds equal names without reading the folder. */
  readonly names: Table<true, [string, string, string, string]>;
  /** [uid, file, seq] */
  readonly versions: Table<VersionRow, [string, string, number]>;
  /** Bytes of small complete versions, by blob name. */
  readonly smallBlobs: Table<Uint8Array, string>;
  /** [uid, workspace] */
  readonly workspaces: Table<WorkspaceRow, [string, string]>;
  /** [receiver, owner, folder] */
  readonly shares: Table<ShareRow, [string, string, string]>;
  /** [owner, folder, receiver] */
  readonly sharedFolders: Table<true, [string, string, string]>;
  /** [uid, token] → local id of the file. */
  readonly publicLinks: Table<string, [string, string]>;
  /** Everything that each account stores. */
  readonly holdings: Holdings;
  /** The blobs in an object store. */
  readonly objects: ObjectTable;
  readonly reserve: DiskReserve;
  /** Uids of accounts whose data are being removed. */
  readonly removals: Table<true, string>;
  readonly #holdings: Table<HoldingRow, string>;
  readonly #root: RootDatabase;
  #isChanging = false;
  /** Disk space that creations of the running change may still use. */
  #spareBytes = 0;
  /** Greater than every number that this process has reserved, stored or not. */
  #givenEnd = 0;
  #waiting: WaitingChange[] = [];

  /** @throws StorageError when the directory cannot be used or was written by a newer version of this program */
  static open(
    dataDirectory: string,
    options: { readonly disk?: DiskSpace | undefined; readonly limits?: HoldingLimits | undefined } = {},
  ): Database {
    try {
      makeDataDirectory(dataDirectory);
      const path = join(dataDirectory, 'service.mdb');
      refuseWritableByOthers(dataDirectory);
      for (const file of [path, `${path}-lock`]) refuseForeignFile(file);
      if (!existsSync(path)) makeFile(path);
      for (const file of [path, `${path}-lock`]) makePrivate(file);
      const reserve = new DiskReserve(options.disk ?? diskSpaceOf(dataDirectory));
      return new Database(openFile(path), reserve, options.limits ?? HOLDING_LIMITS);
    } catch (error) {
      if (error instanceof StorageError) throw error;
      throw new StorageError(`cannot use ${dataDirectory}: ${(error as Error).message}`, { cause: error });
    }
  }

  private constructor(root: RootDatabase, reserve: DiskReserve, limits: HoldingLimits) {
    this.#root = root;
    this.reserve = reserve;
    const table = <V, K extends Key>(name: string): Table<V, K> => root.openDB<V, K>({ name });
    this.meta = table('meta');
    this.users = table('users');
    this.emails = table('emails');
    this.usage = table('usage');
    this.applications = table('applications');
    this.keyPairs = table('keyPairs');
    this.refreshTokens = table('refreshTokens');
    this.accessTokens = table('accessTokens');
    this.userTokens = table('userTokens');
    this.resources = table('resources');
    this.children = table('children');
    this.names = table('names');
    this.versions = table('versions');
    this.smallBlobs = root.openDB<Uint8Array, string>({ name: 'smallBlobs', encoding: 'binary' });
    this.workspaces = table('workspaces');
    this.shares = table('shares');
    this.sharedFolders = table('sharedFolders');
    this.publicLinks = table('publicLinks');
    this.removals = table('removals');
    this.objects = new ObjectTable({
      blobs: table('storedBlobs'),
      references: table('objects'),
      pending: table('pendingObjects'),
    });
    this.#holdings = table('holdings');
    this.holdings = new Holdings(
      {
        stored: (uid) => this.#holdings.get(uid),
        store: (uid, row) => void this.#holdings.put(uid, row),
        claim: (bytes) => this.#claim(bytes),
        quotaBytes: (uid) => this.users.get(uid)?.quotaBytes ?? 0,
        newestBytes: (uid) => this.usage.get(uid) ?? 0,
      },
      limits,
    );
    const schema = this.meta.get('schema') ?? SCHEMA;
    if (schema !== SCHEMA && schema !== OBJECT_SCHEMA)
      throw new StorageError(`the data are of schema ${schema}, this program knows ${OBJECT_SCHEMA}`);
    if (this.meta.get('schema') === undefined) this.change(() => void this.meta.put('schema', SCHEMA));
    if (this.meta.get('holdings') === undefined) this.#upgrade();
  }

  /**
   * Runs `action` as one atomic change, durable on return. An exception rolls it back. A nested change is part of the
   * outer one.
   *
   * @throws StorageError (full) on an almost full disk, before LMDB runs out of space, which may end the process
   * (`store/index-room.ts`)
   */
  change<T>(action: () => T): T {
    if (this.#isChanging) return action();
    const freeBytes = this.reserve.freeBytes();
    if ((freeBytes ?? FREE_BYTES_MIN) < FREE_BYTES_MIN)
      throw new StorageError('no room for the change', { full: true });
    this.#spareBytes = this.reserve.spareBytes(freeBytes);
    this.#isChanging = true;
    try {
      return this.#root.transactionSync(() => {
        const result = action();
        this.holdings.write();
        return result;
      });
    } finally {
      this.holdings.end();
      this.#isChanging = false;
    }
  }

  /**
   * A change that shares its commit with all others of the same loop turn. They run one after another, and each sees
   * the effects of the earlier ones; an exception rolls back only its own change.
   * @returns the result of `action`, once it is durable
   */
  changeTogether<T>(action: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      // After the requests that already arrived, before the loop waits for more.
      if (this.#waiting.length === 0) setImmediate(() => this.#commitWaiting());
      this.#waiting.push({ action, resolve: resolve as (result: unknown) => void, reject });
    });
  }

  #commitWaiting(): void {
    const changes = this.#waiting;
    this.#waiting = [];
    const [first] = changes;
    if (first === undefined) return;
    try {
      if (changes.length === 1) {
        first.resolve(this.change(first.action));
        return;
      }
      const outcomes = this.change(() => changes.map((change) => this.#withinBatch(change)));
      for (const settle of outcomes) settle();
    } catch (error) {
      for (const { reject } of changes) reject(error);
    }
  }

  /** @returns a function that settles the caller's promise after the commit */
  #withinBatch({ action, resolve, reject }: WaitingChange): () => void {
    try {
      const result = this.#root.childTransaction(action);
      this.holdings.settle();
      return () => resolve(result);
    } catch (error) {
      this.holdings.undo();
      return () => reject(error);
    }
  }

  /** A new number, greater than all earlier ones. Only within `change`. */
  nextNumber(): number {
    const next = this.reserveNumber();
    void this.meta.put('nextNumber', next + 1);
    return next;
  }

  /**
   * As `nextNumber` without a change and so without a commit. Once a change has stored it (`keepNumber`), it is unique
   * across restarts too. Before that, another process may get the same number: only for rows that this process alone
   * creates.
   */
  reserveNumber(): number {
    const next = Math.max(this.#keptEnd, this.#givenEnd);
    this.#givenEnd = next + 1;
    return next;
  }

  /** Stores a reserved number. Only within the change that writes its row. */
  keepNumber(number: number): void {
    if (number >= this.#keptEnd) void this.meta.put('nextNumber', number + 1);
  }

  /** Adds a token; beyond a limit per user the one that was not used for the longest time goes. Only within `change`. */
  addRefreshToken(hash: string, row: RefreshTokenRow): void {
    void this.refreshTokens.put(hash, row);
    this.#indexToken('refresh', hash, row);
    this.removeTokens(row.uid, 'refresh', REFRESH_TOKENS_MAX);
  }

  /** The token was used: others go before it. Only within `change`. */
  useRefreshToken(hash: string, nowMs: number): void {
    const row = this.refreshTokens.get(hash);
    if (row === undefined || nowMs - usedMsOf(row) < USED_STEP_MS) return;
    const used = { ...row, usedMs: nowMs };
    void this.userTokens.remove(tokenKey('refresh', hash, row));
    void this.refreshTokens.put(hash, used);
    this.#indexToken('refresh', hash, used);
  }

  addAccessToken(hash: string, row: AccessTokenRow): void {
    void this.accessTokens.put(hash, row);
    this.#indexToken('access', hash, row);
    this.removeTokens(row.uid, 'access', ACCESS_TOKENS_MAX);
  }

  removeToken(kind: TokenKind, hash: string): void {
    const row = kind === 'access' ? this.accessTokens.get(hash) : this.refreshTokens.get(hash);
    if (row === undefined) return;
    void (kind === 'access' ? this.accessTokens : this.refreshTokens).remove(hash);
    void this.userTokens.remove(tokenKey(kind, hash, row));
  }

  /** Removes the tokens of a user but the newest `keptMax`. @returns how many */
  removeTokens(uid: string, kind: TokenKind, keptMax = 0): number {
    const [start, end] = [
      [uid, kind, 0, ''],
      [uid, kind, SEQ_END, ''],
    ] as [TokenKey, TokenKey];
    // LMDB's binding changes the options that it gets.
    const surplus = this.userTokens.getKeysCount({ start, end }) - keptMax;
    if (surplus <= 0) return 0;
    const keys = [...this.userTokens.getKeys({ start, end, limit: surplus })];
    for (const [, , , hash] of keys) this.removeToken(kind, hash);
    return keys.length;
  }

  /** Removes the bytes of a version with its row, unless they are a file. Only within `change`. */
  dropBlob(name: string): void {
    void this.smallBlobs.remove(name);
    this.objects.drop(name);
  }

  /** The id of the installation in the object store; null without one. */
  get storeId(): string | null {
    return (this.meta.get('objectStore') as string | undefined) ?? null;
  }

  /** From now on, blobs may be in an object store: earlier programs refuse these data. Only within `change`. */
  keepStoreId(id: string): void {
    void this.meta.put('objectStore', id);
    void this.meta.put('schema', OBJECT_SCHEMA);
  }

  /** Of a copy into these data that was interrupted (`local-installation.ts`): the installation it came from. */
  get unfinishedCopyOf(): string | null {
    return (this.meta.get(UNFINISHED_COPY) as string | undefined) ?? null;
  }

  /** @throws StorageError */
  refuseUnfinishedCopy(): void {
    if (this.unfinishedCopyOf !== null)
      throw new StorageError('a copy into this directory was interrupted: repeat its cfs serve copy');
  }

  /** Removes the totals of a removed account. Only within `change`. */
  removeHoldings(uid: string): void {
    void this.#holdings.remove(uid);
  }

  #indexToken(kind: TokenKind, hash: string, row: RefreshTokenRow | AccessTokenRow): void {
    void this.userTokens.put(tokenKey(kind, hash, row), true);
  }

  /** @throws Refusal 507 if `bytes` more would use the reserve for deletions, sign-ins and administration */
  #claim(bytes: number): void {
    if (bytes <= 0) return;
    if (bytes > this.#spareBytes) throw noRoom();
    this.#spareBytes -= bytes;
  }

  /** Data of an earlier program have no counts and no index of tokens. On a full disk, a later start adds them. */
  #upgrade(): void {
    try {
      this.change(() => {
        for (const { key, value } of this.refreshTokens.getRange({})) this.#indexToken('refresh', key, value);
        for (const { key, value } of this.accessTokens.getRange({})) this.#indexToken('access', key, value);
        for (const { value: row } of this.resources.getRange({}))
          if (row.kind === 'file' || row.role !== 'system')
            this.holdings.note(row.uid, { entries: 1, bytes: entryBytes(row) });
        for (const { value: row } of this.versions.getRange({}))
          this.holdings.note(row.uid, { unfinished: row.complete ? 0 : 1, bytes: versionBytes(row) });
        void this.meta.put('holdings', 1);
      });
    } catch (error) {
      if (!(error instanceof StorageError && error.full)) throw error;
    }
  }

  get #keptEnd(): number {
    return (this.meta.get('nextNumber') as number | undefined) ?? FIRST_NUMBER;
  }

  /** The rows of a range in pieces, with other work between them. Rows that change meanwhile appear in either state. */
  async *inPieces<V, K extends Key>(
    table: Table<V, K>,
    start: K,
    end: K,
  ): AsyncGenerator<readonly { readonly key: K; readonly value: V }[], void, undefined> {
    for (let from: object = { start }; ; ) {
      const rows = [...table.getRange({ ...from, end, limit: PIECE_ROWS })];
      yield rows;
      const last = rows.at(-1);
      if (last === undefined || rows.length < PIECE_ROWS) return;
      from = { start: last.key, exclusiveStart: true };
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  isReadable(): boolean {
    try {
      return this.meta.get('schema') !== undefined;
    } catch {
      return false;
    }
  }

  async close(): Promise<void> {
    this.#commitWaiting();
    await this.#root.close();
  }
}

export type { Database as Table, Key as TableKey } from 'lmdb';

interface WaitingChange {
  readonly action: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

const SCHEMA = 1;
/** Of data with blobs in an object store. */
const OBJECT_SCHEMA = 2;
/** Takes a few milliseconds to read. */
const PIECE_ROWS = 500;
const PRIVATE_MODE = 0o600;
/** More than one commit needs. */
const FREE_BYTES_MIN = 4 * 1024 * 1024;

function openFile(path: string): RootDatabase {
  refuseUnopenable({ data: path, lock: `${path}-lock` });
  // lmdb's type declarations lack the last option; its default is 0664.
  const options = { path, maxDbs: 32, permissionsMode: PRIVATE_MODE };
  return open(options);
}

/**
 * Creates the file under a temporary name and links it after a sync. LMDB does not sync the first two pages of a new
 * file, and after a power cut a file with a length but without those pages can never be opened.
 *
 * link(2) instead of rename(2), if available: administration may create the same file at this moment (docs/service.md
 * 1), and a file that the first process has opened must stay.
 */
function makeFile(path: string): void {
  const draft = `${path}.${randomBytes(8).toString('hex')}${DRAFT}`;
  try {
    // close() completes synchronously, because nothing was written.
    void openFile(draft).close();
    syncNow(draft);
    giveName(draft, path);
  } catch (error) {
    if (!existsSync(path)) throw error;
  } finally {
    // Also removes temporary files of killed processes. A temporary file still in use is obsolete too, once the file
    // exists.
    const folder = dirname(path);
    const made = existsSync(path) ? `${basename(path)}.` : basename(draft);
    for (const name of readdirSync(folder)) {
      const isDraft = name.startsWith(made) && (name.endsWith(DRAFT) || name.endsWith(`${DRAFT}-lock`));
      if (isDraft) rmSync(join(folder, name), { force: true });
    }
    syncNow(folder);
  }
}

function giveName(draft: string, path: string): void {
  try {
    linkSync(draft, path);
  } catch (error) {
    if (existsSync(path)) throw error;
    // The file system has no hard links (exFAT, some network file systems) or forbids them (Android).
    renameSync(draft, path);
  }
}

/** Suffix of a database file under construction. */
const DRAFT = '.new';

/** Makes the file private: earlier versions of this program created it world-readable. */
function makePrivate(file: string): void {
  const mode = statSync(file, { throwIfNoEntry: false })?.mode ?? PRIVATE_MODE;
  if ((mode & 0o077) !== 0) chmodSync(file, PRIVATE_MODE);
}

/** The name in `meta` of an unfinished copy. */
export const UNFINISHED_COPY = 'unfinishedCopyOf';

/** System folders use the small numbers (docs/service.md 2.1). */
export const FIRST_NUMBER = 5000;

type TokenKey = [string, TokenKind, number, string];

function tokenKey(kind: TokenKind, hash: string, row: RefreshTokenRow | AccessTokenRow): TokenKey {
  return [row.uid, kind, 'expiresMs' in row ? row.expiresMs : usedMsOf(row), hash];
}

function usedMsOf({ usedMs, createdMs }: RefreshTokenRow): number {
  return usedMs ?? createdMs;
}

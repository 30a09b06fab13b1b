import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, linkSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type Key, open, type RootDatabase, type Database as Table } from 'lmdb';
import { StorageError } from '../base/errors.ts';
import { freeBytesOf } from '../base/free-bytes.ts';
import { refuseUnopenable } from '../base/lmdb-file.ts';
import { makeDataDirectory, syncNow } from './data-directory.ts';

/**
 * What the reference server keeps, as LMDB tables: everything but the bytes of larger versions (`blobs.ts`).
 *
 * Every change is plain synchronous code: it sees its own writes, is undone whole when something is thrown in it, is on the disk
 * before anybody is told, and holds against other processes, so that administration works beside a running server. Changes of
 * requests that are there at the same time share a commit (`changeTogether`): the loop stands still for one fdatasync per turn
 * (some 0.2 to 0.7 ms), however many clients there are.
 *
 * Not lmdb's asynchronous transactions, which wait in another thread: measured, each costs two to four times as much here,
 * alone and with eight at once, and a commit that fails (a full disk) ends in a promise in nobody's hands and a flush that
 * never comes, instead of an error for those who asked.
 */
export class Database {
  readonly meta: Table<number | string, string>;
  readonly users: Table<UserRow, string>;
  /** E-mail address in lower case → uid. */
  readonly emails: Table<string, string>;
  readonly usage: Table<number, string>;
  readonly applications: Table<ApplicationRow, string>;
  readonly keyPairs: Table<KeyPairRow, string>;
  /** Tokens stand under the SHA-256 of their secret: whoever reads this file cannot use them. */
  readonly refreshTokens: Table<RefreshTokenRow, string>;
  readonly accessTokens: Table<AccessTokenRow, string>;
  /** [uid, local] */
  readonly resources: Table<ResourceRow, [string, string]>;
  /** [uid, parent, rank, seq] → local; rank 0 folders, 1 files: the order of an unsorted listing. */
  readonly children: Table<string, [string, string, number, number]>;
  /** [uid, parent, hash of the folded name, local]: finds equal names without reading the folder. */
  readonly names: Table<true, [string, string, string, string]>;
  /** [uid, file, seq] */
  readonly versions: Table<VersionRow, [string, string, number]>;
  /** Bytes of complete versions that are small, by the name of their blob. */
  readonly smallBlobs: Table<Uint8Array, string>;
  /** [uid, workspace] */
  readonly workspaces: Table<WorkspaceRow, [string, string]>;
  /** [receiver, owner, folder] */
  readonly shares: Table<ShareRow, [string, string, string]>;
  /** [owner, folder, receiver] */
  readonly sharedFolders: Table<true, [string, string, string]>;
  /** [uid, token] → local id of the file. */
  readonly publicLinks: Table<string, [string, string]>;
  readonly #root: RootDatabase;
  /** Null where the disk cannot be asked: it fails LMDB as well, whose error is the one to tell. */
  readonly #freeBytes: () => number | null;
  #isChanging = false;
  /** Above all numbers that this process was given, kept or not. */
  #givenEnd = 0;
  #waiting: WaitingChange[] = [];

  /** @throws StorageError when the directory cannot be used or was written by a newer version of this program */
  static open(dataDirectory: string, freeBytes = () => freeBytesOf(dataDirectory)): Database {
    try {
      makeDataDirectory(dataDirectory);
      const path = join(dataDirectory, 'service.mdb');
      if (!existsSync(path)) makeFile(path);
      for (const file of [path, `${path}-lock`]) makePrivate(file);
      return new Database(openFile(path), freeBytes);
    } catch (error) {
      if (error instanceof StorageError) throw error;
      throw new StorageError(`cannot use ${dataDirectory}: ${(error as Error).message}`, { cause: error });
    }
  }

  private constructor(root: RootDatabase, freeBytes: () => number | null) {
    this.#root = root;
    this.#freeBytes = freeBytes;
    const table = <V, K extends Key>(name: string): Table<V, K> => root.openDB<V, K>({ name });
    this.meta = table('meta');
    this.users = table('users');
    this.emails = table('emails');
    this.usage = table('usage');
    this.applications = table('applications');
    this.keyPairs = table('keyPairs');
    this.refreshTokens = table('refreshTokens');
    this.accessTokens = table('accessTokens');
    this.resources = table('resources');
    this.children = table('children');
    this.names = table('names');
    this.versions = table('versions');
    this.smallBlobs = root.openDB<Uint8Array, string>({ name: 'smallBlobs', encoding: 'binary' });
    this.workspaces = table('workspaces');
    this.shares = table('shares');
    this.sharedFolders = table('sharedFolders');
    this.publicLinks = table('publicLinks');
    const schema = this.meta.get('schema') ?? SCHEMA;
    if (schema !== SCHEMA) throw new StorageError(`the data are of schema ${schema}, this program knows ${SCHEMA}`);
    if (this.meta.get('schema') === undefined) this.change(() => void this.meta.put('schema', SCHEMA));
  }

  /**
   * Runs `action` as one change: all of it or nothing, on the disk when this returns. What it throws undoes it. A change within a change
   * is part of it.
   *
   * @throws StorageError (full) on a disk with next to no room, before LMDB meets it: that may end the process (`store/index-room.ts`)
   */
  change<T>(action: () => T): T {
    if (this.#isChanging) return action();
    if ((this.#freeBytes() ?? FREE_BYTES_MIN) < FREE_BYTES_MIN)
      throw new StorageError('no room for the change', { full: true });
    this.#isChanging = true;
    try {
      return this.#root.transactionSync(action);
    } finally {
      this.#isChanging = false;
    }
  }

  /**
   * A change that shares its commit with all others that are asked for in the same turn of the loop. They run one after
   * another, each seeing what those before it did; what one throws undoes that one alone.
   * @returns what `action` returned, when it is on the disk
   */
  changeTogether<T>(action: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      // After the requests that have arrived by now, before the loop waits for more.
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

  /** @returns what tells the one who asked, once the commit is done */
  #withinBatch({ action, resolve, reject }: WaitingChange): () => void {
    try {
      const result = this.#root.childTransaction(action);
      return () => resolve(result);
    } catch (error) {
      return () => reject(error);
    }
  }

  /** A number that was never given before, greater than all that were. Only within `change`. */
  nextNumber(): number {
    const next = this.reserveNumber();
    void this.meta.put('nextNumber', next + 1);
    return next;
  }

  /**
   * The same without a change, and so without a commit: once a change has kept it (`keepNumber`), nobody is given it after a restart
   * either. Until then another process may be: only for rows that this one alone makes.
   */
  reserveNumber(): number {
    const next = Math.max(this.#keptEnd, this.#givenEnd);
    this.#givenEnd = next + 1;
    return next;
  }

  /** A reserved number is that of a row now. Only within the change that writes the row. */
  keepNumber(number: number): void {
    if (number >= this.#keptEnd) void this.meta.put('nextNumber', number + 1);
  }

  get #keptEnd(): number {
    return (this.meta.get('nextNumber') as number | undefined) ?? FIRST_NUMBER;
  }

  async close(): Promise<void> {
    this.#commitWaiting();
    await this.#root.close();
  }
}

interface WaitingChange {
  readonly action: () => unknown;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

const SCHEMA = 1;
const PRIVATE_MODE = 0o600;
/** More than a commit takes. */
const FREE_BYTES_MIN = 4 * 1024 * 1024;

function openFile(path: string): RootDatabase {
  refuseUnopenable({ data: path, lock: `${path}-lock` });
  // lmdb's declarations do not know the last one; its default is 0664.
  const options = { path, maxDbs: 32, permissionsMode: PRIVATE_MODE };
  return open(options);
}

/**
 * The file is made beside its place and gets its name when it is on the disk. LMDB does not sync the first two pages of a new one; and one
 * that has a length and not those, as a power cut leaves it, no later start can open.
 *
 * By link(2), not rename(2), where there is that: administration may be making the same file at this moment (docs/service.md 1), and what the first one has
 * opened has to stay.
 */
function makeFile(path: string): void {
  const draft = `${path}.${randomBytes(8).toString('hex')}${DRAFT}`;
  try {
    // Closed when this returns, as nothing was written.
    void openFile(draft).close();
    syncNow(draft);
    giveName(draft, path);
  } catch (error) {
    if (!existsSync(path)) throw error;
  } finally {
    // With those of processes that were killed. One that somebody is working on is for nothing as well, once the file is there.
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
    // No hard links there (exFAT, some network file systems), or none allowed (Android).
    renameSync(draft, path);
  }
}

/** Ends the name of a database that is being made. */
const DRAFT = '.new';

/** Its owner's alone: earlier versions of this program let everybody read it. */
function makePrivate(file: string): void {
  const mode = statSync(file, { throwIfNoEntry: false })?.mode ?? PRIVATE_MODE;
  if ((mode & 0o077) !== 0) chmodSync(file, PRIVATE_MODE);
}

/** Leaves the small numbers to the system folders (docs/service.md 2.1). */
const FIRST_NUMBER = 5000;
/** Above every sequence number, as the end of a range. */
export const SEQ_END = Number.MAX_SAFE_INTEGER;
/** Sorts after every text in the server's keys, which are ASCII. */
export const TEXT_END = '\uffff';
/** The parent of the top-level folders. */
export const TOP = 'folders';

export interface PasswordHash {
  readonly salt: Uint8Array;
  readonly hash: Uint8Array;
  /** scrypt's N; r is 8 and p is 1. */
  readonly cost: number;
}

export interface UserRow {
  readonly uid: string;
  readonly email: string;
  readonly nickname: string;
  readonly password: PasswordHash;
  readonly quotaBytes: number;
  readonly createdMs: number;
}

export interface ApplicationRow {
  /** `/sc/<uid>/<n>_<n>` */
  readonly id: string;
  readonly name: string;
  readonly enabled: boolean;
}

export interface KeyPairRow {
  readonly accessKeyId: string;
  readonly uid: string;
  readonly secretHash: Uint8Array;
  readonly createdMs: number;
}

export interface RefreshTokenRow {
  readonly uid: string;
  readonly application: string;
  readonly createdMs: number;
}

export interface AccessTokenRow {
  readonly uid: string;
  /** Hash of the refresh token it came from; null for one made from a password. It dies with that token. */
  readonly refreshToken: string | null;
  readonly expiresMs: number;
}

interface NamedRow {
  readonly uid: string;
  readonly local: string;
  readonly seq: number;
  readonly name: string;
  /** Local id of the folder it lies in (which need not exist any more), or TOP. */
  readonly parent: string;
  readonly createdMs: number;
}

export interface FolderRow extends NamedRow {
  readonly kind: 'folder';
  /** `system` and `sync` folders are top-level and cannot be moved; system folders cannot be deleted either. */
  readonly role: 'system' | 'sync' | 'plain';
  /** The workspace that a sync folder belongs to. */
  readonly workspace?: string;
}

/** What a file is to those who do not ask for its history: its newest complete version. */
export interface NewestVersion {
  readonly seq: number;
  readonly sizeBytes: number;
  readonly lastModifiedMs: number;
  readonly blob: string;
}

export interface FileRow extends NamedRow {
  readonly kind: 'file';
  readonly mediaType: string;
  /** Token of its public link. */
  readonly publicLink: string | null;
  /** Null for a file that was never filled. */
  readonly newest: NewestVersion | null;
}

export type ResourceRow = FolderRow | FileRow;

export interface VersionRow {
  readonly uid: string;
  readonly file: string;
  readonly seq: number;
  readonly version: string;
  readonly createdMs: number;
  readonly lastModifiedMs: number;
  readonly mediaType: string;
  readonly complete: boolean;
  /** Of a complete version. Of an incomplete one: how many bytes were certainly on the disk; its blob may hold more. */
  readonly sizeBytes: number;
  readonly blob: string;
  /** Hexadecimal; of a complete version, soon after it was completed. */
  readonly sha256: string | null;
}

export interface WorkspaceRow {
  readonly uid: string;
  readonly local: string;
  readonly name: string;
  readonly iconId: string;
  readonly createdMs: number;
}

export interface ShareRow {
  readonly writeAllowed: boolean;
  readonly createdMs: number;
}

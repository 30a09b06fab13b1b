import { systemCodeOf } from '../base/errors.ts';
import type { ListingQuery, ResourceId } from '../protocol/endpoints.ts';
import { type Caller, type Session, uidOf } from './accounts.ts';
import { Collections } from './collections.ts';
import { namedPage, type Page, sorted } from './list-page.ts';
import { notFound, Refusal } from './refusal.ts';
import { DEFAULT_PAGE } from './repository.ts';
import type { FileRow, FolderRow, ResourceRow, VersionRow } from './rows.ts';
import type { AccountRules, FileChange, HistoryRules, RepositoryRules, Rules, ShownFolder } from './rules.ts';
import type { Parts } from './server-parts.ts';

/** The rules over the tables and files of this machine. */
export function localRules(parts: Parts): Rules {
  return {
    accounts: new LocalAccounts(parts),
    repository: new LocalRepository(parts),
    collections: new Collections(parts),
    histories: new LocalHistories(parts),
    uploads: parts.uploads,
    blobs: parts.blobs,
  };
}

class LocalAccounts implements AccountRules {
  readonly #parts: Parts;
  readonly createRefreshToken: AccountRules['createRefreshToken'];
  readonly createAccessToken: AccountRules['createAccessToken'];
  readonly createAccessTokenByPassword: AccountRules['createAccessTokenByPassword'];

  constructor(parts: Parts) {
    this.#parts = parts;
    const { accounts } = parts;
    this.createRefreshToken = (...given) => accounts.createRefreshToken(...given);
    this.createAccessToken = (...given) => accounts.createAccessToken(...given);
    this.createAccessTokenByPassword = (...given) => accounts.createAccessTokenByPassword(...given);
  }

  async session(secret: string): Promise<Session | null> {
    return this.#parts.accounts.session(secret);
  }

  /** Sessions are checked without a wait. */
  remembered(): null {
    return null;
  }

  async expire(session: Session): Promise<void> {
    this.#parts.accounts.expire(session);
  }

  async user(uid: string) {
    const { database, repository } = this.#parts;
    const row = database.users.get(uid);
    if (row === undefined) throw notFound();
    return { row, usageBytes: repository.usageBytes(uid) };
  }
}

/** Each change shares a commit with others of the same loop turn; each creation makes room in the account's history. */
class LocalRepository implements RepositoryRules {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  get pageMax(): number {
    return this.#parts.repository.pageMax;
  }

  async folder(caller: string, id: ResourceId): Promise<FolderRow> {
    return this.#parts.repository.folder(caller, id);
  }

  async file(caller: string, id: ResourceId, need: 'read' | 'write' = 'read'): Promise<FileRow> {
    return this.#parts.repository.file(caller, id, need);
  }

  async shownFolder(caller: string, id: ResourceId): Promise<ShownFolder> {
    const { repository } = this.#parts;
    const row = repository.folder(caller, id);
    const isPrivate = row.uid === caller && !repository.isShared(row);
    const sharing = isPrivate ? null : { writeAllowed: repository.permission(caller, row) === 'write' };
    return { row, sharing, showsParent: this.#showsParent(caller, row) };
  }

  async list(caller: string, id: ResourceId, query: ListingQuery): Promise<Page<ResourceRow>> {
    const { repository } = this.#parts;
    const row = repository.folder(caller, id);
    return query.order === null ? repository.listInPieces(row, query) : this.#listInOrder(row, query);
  }

  async listTop(uid: string, query: ListingQuery): Promise<Page<FolderRow>> {
    return this.#parts.repository.listTop(uid, query);
  }

  createFolder(caller: Caller, parent: ResourceId, name: string): Promise<ResourceId> {
    const uid = uidOf(caller);
    return this.#create(uid, parent.uid, () => this.#parts.repository.createFolder(uid, parent, name));
  }

  async createSyncFolder(uid: string, name: string): Promise<void> {
    await this.#create(uid, uid, () => this.#parts.repository.createSyncFolder(uid, name));
  }

  createFile(caller: Caller, parent: ResourceId, name: string, mediaType: string): Promise<ResourceId> {
    const uid = uidOf(caller);
    return this.#create(uid, parent.uid, () => this.#parts.repository.createFile(uid, parent, name, mediaType));
  }

  async copyFile(caller: Caller, parent: ResourceId, source: ResourceId, name: string): Promise<ResourceId> {
    for (;;) {
      try {
        return await this.#copyFile(uidOf(caller), parent, source, name);
      } catch (error) {
        if (!(error instanceof SourceGone)) throw error;
      }
    }
  }

  /**
   * Stores the bytes of the copy before its row: as a second blob, or with the row if they are few or in the object
   * store. A file without data is copied without data.
   * @throws SourceGone if the object was deleted meanwhile
   */
  async #copyFile(caller: string, parent: ResourceId, source: ResourceId, name: string): Promise<ResourceId> {
    const { database, repository, histories, blobs, sealer } = this.#parts;
    const blob = blobs.newName();
    const { original, version, bytes, isShared } = await this.#duplicated(() => repository.file(caller, source), blob);
    if (original.newest === null) return this.createFile(caller, parent, name, original.mediaType);
    if (version === null) throw notFound();
    try {
      const { sizeBytes, sha256 } = version;
      const { row, version: copied } = await this.#create(caller, parent.uid, () => {
        if (isShared && !database.objects.share(version.blob, blob)) throw new SourceGone();
        const file = repository.createFile(caller, parent, name, original.mediaType);
        return { row: file, ...histories.add(file, { blob, sizeBytes, sha256, bytes }) };
      });
      sealer.add(copied);
      return row;
    } catch (error) {
      await blobs.remove([blob]);
      throw error;
    }
  }

  async updateFolder(caller: string, id: ResourceId, change: FileChange): Promise<void> {
    const { database, repository } = this.#parts;
    await database.changeTogether(() => repository.updateFolder(caller, id, change));
  }

  updateFile(caller: string, id: ResourceId, change: FileChange): Promise<FileRow> {
    const { database, repository } = this.#parts;
    return database.changeTogether(() => repository.updateFile(caller, id, change));
  }

  async deleteFolder(caller: string, id: ResourceId): Promise<void> {
    const { database, repository } = this.#parts;
    await database.changeTogether(() => repository.deleteFolder(caller, id));
  }

  async deleteFile(caller: string, id: ResourceId): Promise<void> {
    const { database, repository, blobs } = this.#parts;
    for (let isRemoved = false; !isRemoved; ) {
      const step = await database.changeTogether(() => repository.deleteFile(caller, id));
      await blobs.remove(step.blobs);
      isRemoved = step.isRemoved;
    }
  }

  async mayReadOn(session: Session, id: ResourceId): Promise<boolean> {
    const { accounts, repository } = this.#parts;
    return accounts.isCurrent(session) && repository.mayReadOn(session.uid, id);
  }

  /** A receiver of a share drops no versions of other files. */
  #create<T>(caller: string, uid: string, make: () => T): Promise<T> {
    const { database, histories } = this.#parts;
    const target = caller === uid ? { uid } : { uid, file: '' };
    return histories.withRoom(target, () => database.changeTogether(make));
  }

  /** A folder is sorted as a whole; it is read in pieces, so that others are answered in between. */
  async #listInOrder(folder: FolderRow, query: ListingQuery): Promise<Page<ResourceRow>> {
    const { order, type, start, max } = query;
    if (order === null) throw new Error('a listing without an order');
    const rows: ResourceRow[] = [];
    for (const rank of [0, 1] as const) {
      if (type === (rank === 0 ? 'file' : 'folder')) continue;
      const ofRank: ResourceRow[] = [];
      for await (const piece of this.#parts.repository.inPieces(folder, rank)) ofRank.push(...piece);
      rows.push(...sorted(ofRank, order));
    }
    return namedPage(rows, start ?? 0, Math.min(max ?? DEFAULT_PAGE, this.pageMax));
  }

  #showsParent(caller: string, row: FolderRow): boolean {
    if (row.uid === caller) return true;
    try {
      this.#parts.repository.folder(caller, { uid: row.uid, local: row.parent });
      return true;
    } catch (error) {
      if (error instanceof Refusal) return false;
      throw error;
    }
  }

  /**
   * The newest version of the file returned by `look` (null: no data), with its bytes copied to `blob`, or returned if
   * they are few; `isShared`: they are in the object store. If the version is deleted meanwhile, the then newest one is
   * copied.
   */
  async #duplicated(look: () => FileRow, blob: string): Promise<Duplicate> {
    const { blobs, histories, uploads } = this.#parts;
    for (let original = look(); ; ) {
      const version = histories.newest(original);
      const isShared = version !== null && blobs.isStored(version.blob);
      if (version === null || isShared) return { original, version, bytes: null, isShared };
      try {
        const bytes = blobs.small(version.blob) ?? (await uploads.duplicate(version.blob, blob, version.sizeBytes));
        return { original, version, bytes, isShared };
      } catch (error) {
        original = look();
        const isMoved = blobs.isStored(version.blob);
        // A version without its bytes is damage.
        if (systemCodeOf(error) !== 'ENOENT' || (original.newest?.blob === version.blob && !isMoved)) throw error;
      }
    }
  }
}

interface Duplicate {
  readonly original: FileRow;
  readonly version: VersionRow | null;
  readonly bytes: Uint8Array | null;
  readonly isShared: boolean;
}

/** The version to be copied was deleted. */
class SourceGone extends Error {}

class LocalHistories implements HistoryRules {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  async list(file: FileRow, start: number, max: number): Promise<Page<VersionRow>> {
    return this.#parts.histories.list(file, start, max);
  }

  async version(file: FileRow, version: string): Promise<VersionRow> {
    return this.#parts.histories.version(file, version);
  }

  create(caller: string, id: ResourceId): Promise<VersionRow> {
    const { database, histories, blobs } = this.#parts;
    const target = caller === id.uid ? { uid: id.uid } : { uid: id.uid, file: id.local };
    return histories.withRoom(target, () =>
      database.changeTogether(() => histories.create(caller, id, blobs.newName())),
    );
  }
}

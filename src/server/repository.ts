import { hash, randomInt } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { type ListingQuery, type ResourceId, SYSTEM_FOLDERS } from '../protocol/endpoints.ts';
import type { Database } from './database.ts';
import { shortMediaType } from './default-media-type.ts';
import { entryBytes, versionBytes } from './holdings.ts';
import { PAGE_NAME_CHARS_MAX, type Page } from './list-page.ts';
import { randomSuffix } from './random-suffix.ts';
import { forbidden, malformed, notFound, Refusal } from './refusal.ts';
import { type FileRow, type FolderRow, type ResourceRow, SEQ_END, type ShareRow, TEXT_END, TOP } from './rows.ts';

/** Rules for names; the original service allowed everything (docs/service.md 13.4), others reportedly answer 409. */
export interface NameRules {
  /** Entries of one folder must have different names. */
  readonly uniqueNames: boolean;
  /** Names must also differ when case is ignored. */
  readonly foldCase: boolean;
}

/** Required permission. */
export type Need = 'read' | 'write';

/** A change of name or parent; absent fields stay unchanged. */
export interface Relocation {
  readonly name?: string | undefined;
  readonly parent?: ResourceId | undefined;
}

/**
 * The service's rules for folders, files and their names (docs/service.md 5 and 6): visibility and valid places. Every
 * method acts for a caller and throws Refusal; each change is one transaction.
 *
 * INVARIANT: a resource is in `resources`, in `children` under its parent, and in `names` under its parent and folded
 * name, or in none of them. Its parent need not exist: deleting a folder leaves its contents behind (docs/service.md 5.7).
 */
export class Repository {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #rules: NameRules;
  /** Upper limit of entries on one page. */
  readonly pageMax: number;

  /** @param deps.pageMax upper limit of entries on one page */
  constructor(deps: { database: Database; clock: Clock; rules: NameRules; pageMax: number }) {
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#rules = deps.rules;
    this.pageMax = deps.pageMax;
  }

  /** @throws Refusal 404, 400 for a file, 403 if the caller has only read permission and needs more */
  folder(caller: string, id: ResourceId, need: Need = 'read'): FolderRow {
    const row = this.#resource(caller, id, need);
    if (row.kind !== 'folder') throw malformed('Not a folder');
    return row;
  }

  /** @throws Refusal 404, 400 for a folder, 403 if the caller has only read permission and needs more */
  file(caller: string, id: ResourceId, need: Need = 'read'): FileRow {
    const row = this.#resource(caller, id, need);
    if (row.kind !== 'file') throw malformed('Not a file');
    return row;
  }

  /** One page of a folder: folders first, then files, each in the order of creation. */
  list(folder: FolderRow, query: ListingQuery): Page<ResourceRow> {
    return this.#children(folder.uid, folder.local, query, DEFAULT_PAGE);
  }

  /** As `list`; a long page is read in pieces, so that others are answered in between. */
  async listInPieces(folder: FolderRow, query: ListingQuery): Promise<Page<ResourceRow>> {
    const { locals, start, max } = this.#locals(folder.uid, folder.local, query, DEFAULT_PAGE);
    const builder = new PageBuilder(locals, max);
    while (this.#readOn(builder, folder.uid, builder.readCount + PIECE_ENTRIES))
      await new Promise((resolve) => setImmediate(resolve));
    // Entries that left the folder in between.
    const entries = builder.entries.filter(({ parent }) => parent === folder.local);
    return { start, hasMore: builder.hasMore, entries };
  }

  /** The account's top level: system folders and sync folders. */
  listTop(uid: string, query: ListingQuery): Page<FolderRow> {
    return this.#children(uid, TOP, query, Number.MAX_SAFE_INTEGER) as Page<FolderRow>;
  }

  createFolder(caller: string, parentId: ResourceId, name: string): FolderRow {
    return this.#database.change(() => {
      const parent = this.folder(caller, parentId, 'write');
      return this.#add({ ...this.#newRow(parent.uid, parent.local, name), kind: 'folder', role: 'plain' });
    });
  }

  /** @param workspace the computer that the folder belongs to, if any */
  createSyncFolder(uid: string, name: string, workspace?: string): FolderRow {
    return this.#database.change(() => {
      const row = { ...this.#newRow(uid, TOP, name), kind: 'folder', role: 'sync' } as const;
      return this.#add(workspace === undefined ? row : { ...row, workspace });
    });
  }

  /** The system folders of a new account. Only within the change that creates the account. */
  createSystemFolders(uid: string): void {
    const createdMs = this.#clock.nowMs();
    for (const [local, name] of SYSTEM_FOLDER_NAMES) {
      this.#link({ kind: 'folder', role: 'system', uid, local, seq: Number(local), name, parent: TOP, createdMs });
    }
  }

  /** A file without data. */
  createFile(caller: string, parentId: ResourceId, name: string, mediaType: string): FileRow {
    return this.#database.change(() => {
      const parent = this.folder(caller, parentId, 'write');
      const row = this.#newRow(parent.uid, parent.local, name);
      return this.#add({ ...row, kind: 'file', mediaType, publicLink: null, newest: null });
    });
  }

  /** @returns whether anything changed */
  updateFolder(caller: string, id: ResourceId, change: Relocation): boolean {
    return this.#database.change(() => {
      const row = this.folder(caller, id, 'write');
      const moved = this.#moved(caller, row, change);
      if (moved.name === row.name && moved.parent === row.parent) return false;
      if (row.uid !== caller && this.#shareOf(caller, row) !== undefined) throw forbidden('Can not rename a share.');
      if (row.role !== 'plain') throw forbidden('Can not move sync folder.');
      if (this.liesWithin(moved.uid, moved.parent, row.local)) throw forbidden('Can not move a folder into itself.');
      this.#replace(row, moved);
      return true;
    });
  }

  /** @param change.publicLink whether to enable the public link */
  updateFile(
    caller: string,
    id: ResourceId,
    change: Relocation & { mediaType?: string | undefined; publicLink?: boolean | undefined },
  ): FileRow {
    return this.#database.change(() => {
      const row = this.file(caller, id, 'write');
      const moved = this.#moved(caller, row, change);
      const isLinkChange = change.publicLink !== undefined && change.publicLink !== (row.publicLink !== null);
      if (isLinkChange && row.uid !== caller) throw forbidden('Only the owner can link a file.');
      const publicLink = this.#publicLink(row, change.publicLink);
      const next = { ...moved, mediaType: shortMediaType(change.mediaType) ?? row.mediaType, publicLink };
      this.#replace(row, next);
      return next;
    });
  }

  /**
   * Deletes permanently. Its contents stay in place, reachable only by their own URLs. ASSUMED (docs/service.md 5.7)
   */
  deleteFolder(caller: string, id: ResourceId): void {
    this.#database.change(() => {
      const row = this.folder(caller, id, 'write');
      if (row.role === 'system') throw forbidden('Can not delete system folder.');
      if (row.uid !== caller && this.#shareOf(caller, row) !== undefined) throw forbidden('Can not delete a share.');
      this.#remove(row);
      for (const key of [...this.#database.sharedFolders.getKeys(textRange(row.uid, row.local))]) {
        void this.#database.sharedFolders.remove(key);
        void this.#database.shares.remove([key[2], row.uid, row.local]);
      }
    });
  }

  /**
   * Deletes permanently, with all versions. Of a long history only the oldest versions are deleted: repeat it, because
   * one change must not keep others waiting. @returns the blobs without a row
   */
  deleteFile(caller: string, id: ResourceId): { blobs: string[]; isRemoved: boolean } {
    return this.#database.change(() => {
      const row = this.file(caller, id, 'write');
      const blobs: string[] = [];
      const { uid, local } = row;
      const range = { start: [uid, local, 0], end: [uid, local, SEQ_END], limit: DELETED_AT_ONCE + 1 };
      const versions = [...this.#database.versions.getRange(range as unknown as VersionRange)];
      const isRemoved = versions.length <= DELETED_AT_ONCE;
      if (isRemoved) {
        this.#remove(row);
        this.#publicLink(row, false);
        this.#addUsage(row.uid, -(row.newest?.sizeBytes ?? 0));
      }
      for (const { key, value } of isRemoved ? versions : versions.slice(0, DELETED_AT_ONCE)) {
        if (!isRemoved && value.seq === row.newest?.seq) continue;
        blobs.push(value.blob);
        const unfinished = value.complete ? 0 : -1;
        this.#database.holdings.note(uid, { unfinished, bytes: -versionBytes(value) });
        void this.#database.versions.remove(key);
        this.#database.dropBlob(value.blob);
      }
      return { blobs, isRemoved };
    });
  }

  /** Whether a download may continue: a deletion does not end it, a withdrawn share does. */
  mayReadOn(caller: string, { uid, local }: ResourceId): boolean {
    if (caller === uid) return true;
    const row = this.#database.resources.get([uid, local]);
    return row === undefined || this.permission(caller, row) !== null;
  }

  /** Whether other users may see the folder. */
  isShared(folder: FolderRow): boolean {
    return this.#database.sharedFolders.getKeysCount(textRange(folder.uid, folder.local)) > 0;
  }

  /** The permission of `caller` on another user's resource; null for none. */
  permission(caller: string, row: ResourceRow): Need | null {
    if (row.uid === caller) return 'write';
    const local = this.#shareAbove(caller, row);
    const share = local === null ? undefined : this.#database.shares.get([caller, row.uid, local]);
    if (share === undefined) return null;
    return share.writeAllowed ? 'write' : 'read';
  }

  /** Local id of the innermost folder through which `caller` receives another user's resource; null for none. */
  #shareAbove(caller: string, row: ResourceRow): string | null {
    let local = row.kind === 'folder' ? row.local : row.parent;
    for (let depth = 0; depth < DEPTH_MAX && local !== TOP; depth += 1) {
      if (this.#database.shares.doesExist([caller, row.uid, local])) return local;
      const folder = this.#database.resources.get([row.uid, local]);
      if (folder === undefined) return null;
      local = folder.parent;
    }
    return null;
  }

  usageBytes(uid: string): number {
    return this.#database.usage.get(uid) ?? 0;
  }

  /** Yields the rows of `rowsIn` in pieces. */
  async *inPieces({ uid, local }: FolderRow, rank: 0 | 1): AsyncGenerator<readonly ResourceRow[], void, undefined> {
    const { children } = this.#database;
    const [start, end] = [
      [uid, local, rank, 0],
      [uid, local, rank, SEQ_END],
    ] as [ChildKey, ChildKey];
    for await (const rows of this.#database.inPieces(children, start, end))
      yield rows.flatMap(({ value }) => this.#rowOf(uid, value));
  }

  /** All folders (rank 0) or files (rank 1) of a folder, in the order of creation. */
  rowsIn(uid: string, parent: string, rank: 0 | 1): ResourceRow[] {
    const range = { start: [uid, parent, rank, 0], end: [uid, parent, rank, SEQ_END] } as ChildRange;
    return [...this.#database.children.getRange(range)].flatMap(({ value }) => this.#rowOf(uid, value));
  }

  /**
   * Whether a folder is `ancestor` or a descendant of it.
   * @param known results for folders, to be kept for further calls: many folders then cost as much as their common tree
   */
  liesWithin(uid: string, local: string, ancestor: string, known?: Map<string, boolean>): boolean {
    const path: string[] = [];
    let at = local;
    let lies: boolean | undefined = known?.get(at);
    for (let depth = 0; lies === undefined; depth += 1) {
      path.push(at);
      const row = at === ancestor ? undefined : this.#database.resources.get([uid, at]);
      if (at === ancestor || depth === DEPTH_MAX) lies = true;
      else if (row === undefined) lies = false;
      else {
        at = row.parent;
        lies = known?.get(at);
      }
    }
    for (const each of path) known?.set(each, lies);
    return lies;
  }

  #resource(caller: string, id: ResourceId, need: Need): ResourceRow {
    const row = id.local.length > LOCAL_CHARS_MAX ? undefined : this.#database.resources.get([id.uid, id.local]);
    const permission = row === undefined ? null : this.permission(caller, row);
    if (row === undefined || permission === null) throw notFound();
    if (need === 'write' && permission !== 'write') throw forbidden('Not allowed');
    return row;
  }

  #shareOf(caller: string, row: FolderRow): ShareRow | undefined {
    return this.#database.shares.get([caller, row.uid, row.local]);
  }

  #children(uid: string, parent: string, query: ListingQuery, maxDefault: number): Page<ResourceRow> {
    const { locals, start, max } = this.#locals(uid, parent, query, maxDefault);
    const builder = new PageBuilder(locals, max);
    this.#readOn(builder, uid, Number.POSITIVE_INFINITY);
    return { start, hasMore: builder.hasMore, entries: builder.entries };
  }

  /** Reads rows up to the position `end`. @returns whether the page has more */
  #readOn(builder: PageBuilder, uid: string, end: number): boolean {
    while (!builder.isComplete && builder.readCount < end)
      builder.add(this.#database.resources.get([uid, builder.nextLocal]));
    return !builder.isComplete;
  }

  /** The ids of a page, and of one entry more if there is one. */
  #locals(uid: string, parent: string, query: ListingQuery, maxDefault: number) {
    const start = query.start ?? 0;
    const max = Math.min(query.max ?? maxDefault, this.pageMax);
    const first = query.type === 'file' ? 1 : 0;
    const last = query.type === 'folder' ? 0 : 1;
    // One more than requested shows whether there is more. Only the page itself is read.
    const range = {
      start: [uid, parent, first, 0],
      end: [uid, parent, last, SEQ_END],
      // LMDB's binding has 32 bits for it and takes 2^32 for 0. No folder has so many entries.
      offset: Math.min(start, 2 ** 32 - 1),
      limit: max + 1,
    };
    const locals = [...this.#database.children.getRange(range as unknown as ChildRange)].map(({ value }) => value);
    return { locals, start, max };
  }

  #rowOf(uid: string, local: string): ResourceRow[] {
    const row = this.#database.resources.get([uid, local]);
    return row === undefined ? [] : [row];
  }

  #newRow(uid: string, parent: string, name: string) {
    checkName(name);
    const seq = this.#database.nextNumber();
    const local = `${seq}_${randomSuffix()}`;
    return { uid, local, seq, name, parent, createdMs: this.#clock.nowMs() };
  }

  /** The row with a changed name or parent, after checking all rules except those for folders only. */
  #moved<R extends ResourceRow>(caller: string, row: R, change: Relocation): R {
    const name = change.name ?? row.name;
    checkName(name);
    if (change.parent === undefined) return { ...row, name };
    const { uid, local } = change.parent;
    if (uid === row.uid && local === row.parent) return { ...row, name };
    if (row.uid !== caller && row.kind === 'folder' && this.#shareOf(caller, row) !== undefined)
      throw forbidden('Can not move a share.');
    // A receiver sees only the own trash: files that a receiver deletes go into the owner's.
    // ASSUMED (docs/service.md 9.2)
    const isOwnTrash = uid === caller && local === SYSTEM_FOLDERS.deleted;
    const parent = isOwnTrash ? this.#trashOf(row.uid) : this.#destination(caller, change.parent);
    if (parent.uid !== row.uid) throw forbidden('Can not move to another account.');
    // The receivers of another share are others: a move would give them the data.
    if (row.uid !== caller && !isOwnTrash && this.#shareAbove(caller, row) !== this.#shareAbove(caller, parent))
      throw forbidden('Can not move to another share.');
    return { ...row, name, parent: parent.local };
  }

  #trashOf(uid: string): FolderRow {
    return this.#database.resources.get([uid, SYSTEM_FOLDERS.deleted]) as FolderRow;
  }

  /** Another user's folder and a missing one get the same refusal (docs/service.md 2.4). */
  #destination(caller: string, id: ResourceId): FolderRow {
    try {
      return this.folder(caller, id, 'write');
    } catch (error) {
      if (error instanceof Refusal && error.status === 404 && id.uid !== caller) throw forbidden('Not allowed');
      throw error;
    }
  }

  #publicLink(row: FileRow, wanted: boolean | undefined): string | null {
    if (wanted === undefined || wanted === (row.publicLink !== null)) return row.publicLink;
    if (row.publicLink !== null) {
      void this.#database.publicLinks.remove([row.uid, row.publicLink]);
      return null;
    }
    // 94 random bits in the form of the service's links, which must not be guessable.
    const token = `D${row.uid}_${randomInt(2 ** 47)}_${randomInt(2 ** 47)}`;
    void this.#database.publicLinks.put([row.uid, token], row.local);
    return token;
  }

  #add<R extends ResourceRow>(row: R): R {
    this.#checkFree(row);
    this.#database.holdings.add(row.uid, { entries: 1, bytes: entryBytes(row) });
    this.#link(row);
    return row;
  }

  #replace(old: ResourceRow, row: ResourceRow): void {
    if (row.name !== old.name || row.parent !== old.parent) this.#checkFree(row);
    this.#database.holdings.add(row.uid, { bytes: entryBytes(row) - entryBytes(old) });
    this.#unlink(old);
    this.#link(row);
  }

  #remove(row: ResourceRow): void {
    this.#unlink(row);
    this.#database.holdings.note(row.uid, { entries: -1, bytes: -entryBytes(row) });
    void this.#database.resources.remove([row.uid, row.local]);
  }

  #link(row: ResourceRow): void {
    void this.#database.resources.put([row.uid, row.local], row);
    void this.#database.children.put([row.uid, row.parent, row.kind === 'folder' ? 0 : 1, row.seq], row.local);
    void this.#database.names.put([row.uid, row.parent, nameHash(row.name), row.local], true);
  }

  #unlink(row: ResourceRow): void {
    void this.#database.children.remove([row.uid, row.parent, row.kind === 'folder' ? 0 : 1, row.seq]);
    void this.#database.names.remove([row.uid, row.parent, nameHash(row.name), row.local]);
  }

  /** The trash allows duplicate names (docs/service.md 5.6). @throws Refusal 409 */
  #checkFree(row: ResourceRow): void {
    const { uniqueNames, foldCase } = this.#rules;
    if (!(uniqueNames || foldCase) || row.parent === SYSTEM_FOLDERS.deleted) return;
    const folded = nameHash(row.name);
    const range = { start: [row.uid, row.parent, folded, ''], end: [row.uid, row.parent, folded, TEXT_END] };
    for (const [, , , local] of [...this.#database.names.getKeys(range as NameRange)]) {
      if (local === row.local) continue;
      const other = this.#database.resources.get([row.uid, local]);
      if (other === undefined) continue;
      if (foldCase || other.name === row.name) throw new Refusal(409, 'Name is already in use');
    }
  }

  #addUsage(uid: string, bytes: number): void {
    void this.#database.usage.put(uid, Math.max(0, this.usageBytes(uid) + bytes));
  }
}

/** The entries of a page, up to a limit of all names. */
class PageBuilder {
  readonly entries: ResourceRow[] = [];
  readonly #locals: readonly string[];
  readonly #end: number;
  #nameChars = 0;
  #readCount = 0;

  /** @param locals the ids of the page, and of one entry more if there is one */
  constructor(locals: readonly string[], max: number) {
    this.#locals = locals;
    this.#end = Math.min(max, locals.length);
  }

  get readCount(): number {
    return this.#readCount;
  }

  get isComplete(): boolean {
    return this.#readCount >= this.#end || this.#nameChars > PAGE_NAME_CHARS_MAX;
  }

  get hasMore(): boolean {
    return this.#locals.length > this.#readCount;
  }

  get nextLocal(): string {
    return this.#locals[this.#readCount] as string;
  }

  /** The row of `nextLocal`; undefined if it was deleted meanwhile. */
  add(row: ResourceRow | undefined): void {
    this.#readCount += 1;
    if (row === undefined) return;
    this.#nameChars += row.name.length;
    this.entries.push(row);
  }
}

type VersionRange = { start: [string, string, number]; end: [string, string, number]; limit: number };
type ChildKey = [string, string, number, number];
type ChildRange = { start: ChildKey; end: ChildKey };
type NameRange = { start: [string, string, string, string]; end: [string, string, string, string] };

export const SYSTEM_FOLDER_NAMES: readonly (readonly [string, string])[] = [
  [SYSTEM_FOLDERS.webArchive, 'Web Archive'],
  [SYSTEM_FOLDERS.magicBriefcase, 'Magic Briefcase'],
  [SYSTEM_FOLDERS.mobilePhotos, 'Mobile Photos'],
  [SYSTEM_FOLDERS.deleted, 'Deleted Files'],
];

/** Entries of a page read in one turn of the event loop: about a millisecond. */
const PIECE_ENTRIES = 100;
/** Versions of a file that one change deletes. */
const DELETED_AT_ONCE = 500;
/** Default page size of folder, workspace and album contents (docs/service.md 5.2). */
export const DEFAULT_PAGE = 500;
/** Nesting limit. A loop cannot be created; the limit is a cheap safeguard. */
const DEPTH_MAX = 10_000;
/** Longer ids were never issued, and would not fit into a key. */
const LOCAL_CHARS_MAX = 64;
const NAME_CHARS_MAX = 16_383;

function textRange(uid: string, local: string): { start: [string, string, string]; end: [string, string, string] } {
  return { start: [uid, local, ''], end: [uid, local, TEXT_END] };
}

/** All other texts are valid names: `/`, `.`, and also the empty text. */
export function checkName(name: string): void {
  if (name.length > NAME_CHARS_MAX) throw malformed('Name too long');
}

/** Equal for names that differ only by case. */
export function nameHash(name: string): string {
  return hash('sha256', name.toLowerCase(), 'base64url').slice(0, 22);
}

import { type ResourceId, SYSTEM_FOLDERS } from '../protocol/endpoints.ts';
import type { Database } from './database.ts';
import { notFound } from './refusal.ts';
import { checkName, type Repository } from './repository.ts';
import { type FileRow, type FolderRow, TEXT_END, TOP, type UserRow, type WorkspaceRow } from './rows.ts';
import type { CollectionRules, ReceivedShare } from './rules.ts';

/** Derived collections, shares and contacts, from the tables of this machine. */
export class Collections implements CollectionRules {
  readonly #database: Database;
  readonly #repository: Repository;

  constructor(deps: { database: Database; repository: Repository }) {
    this.#database = deps.database;
    this.#repository = deps.repository;
  }

  /** The file of a public link, unless it is in the trash. */
  async linkedFile(token: string): Promise<FileRow | null> {
    const uid = /^D(\d+)_/.exec(token)?.[1];
    const local = uid === undefined ? undefined : this.#database.publicLinks.get([uid, token]);
    const row = uid === undefined || local === undefined ? undefined : this.#database.resources.get([uid, local]);
    if (row?.kind !== 'file') return null;
    return this.#repository.liesWithin(row.uid, row.parent, SYSTEM_FOLDERS.deleted) ? null : row;
  }

  /** All files of an account that have a public link. */
  async linkedFiles(uid: string): Promise<readonly FileRow[]> {
    const files: FileRow[] = [];
    for await (const links of this.#database.inPieces(this.#database.publicLinks, [uid, ''], [uid, TEXT_END])) {
      for (const { value } of links) {
        const row = this.#database.resources.get([uid, value]);
        if (row?.kind === 'file') files.push(row);
      }
    }
    return files;
  }

  /** A folder that contains an image (docs/service.md 8.2). */
  async album(caller: string, id: ResourceId): Promise<FolderRow> {
    const folder = this.#repository.folder(caller, id);
    for await (const rows of this.#repository.inPieces(folder, 1))
      if (rows.some((row) => row.kind === 'file' && isImage(row.mediaType))) return folder;
    throw notFound();
  }

  /** All folders of an account with images, outside the trash. Reads the whole account, in pieces. */
  async albums(uid: string): Promise<readonly FolderRow[]> {
    const found = new Set<string>();
    for await (const rows of this.#database.inPieces(this.#database.resources, [uid, ''], [uid, TEXT_END])) {
      for (const { value } of rows) if (value.kind === 'file' && isImage(value.mediaType)) found.add(value.parent);
    }
    const known = new Map<string, boolean>();
    const folders: FolderRow[] = [];
    let looked = 0;
    for (const local of found) {
      const row = this.#database.resources.get([uid, local]);
      if (row?.kind !== 'folder') continue;
      if (!this.#repository.liesWithin(uid, local, SYSTEM_FOLDERS.deleted, known)) folders.push(row);
      looked += 1;
      if (looked % FOLDERS_AT_ONCE === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    return folders.sort((a, b) => a.seq - b.seq);
  }

  async workspaces(uid: string): Promise<readonly WorkspaceRow[]> {
    const range = { start: [uid, ''], end: [uid, TEXT_END] } as { start: [string, string]; end: [string, string] };
    return [...this.#database.workspaces.getRange(range)].map(({ value }) => value);
  }

  async workspace(caller: string, id: ResourceId): Promise<WorkspaceRow> {
    return this.#workspace(caller, id);
  }

  async renameWorkspace(caller: string, id: ResourceId, name: string | undefined): Promise<void> {
    await this.#database.changeTogether(() => {
      const row = this.#workspace(caller, id);
      checkName(name ?? '');
      void this.#database.workspaces.put([row.uid, row.local], { ...row, name: name ?? row.name });
    });
  }

  /** The sync folders of a workspace. */
  async workspaceFolders(caller: string, id: ResourceId): Promise<readonly FolderRow[]> {
    const { uid, local } = this.#workspace(caller, id);
    return this.#repository
      .rowsIn(uid, TOP, 0)
      .filter((row): row is FolderRow => row.kind === 'folder' && row.workspace === local);
  }

  async receivedShares(caller: string): Promise<readonly ReceivedShare[]> {
    const range = { start: [caller, '', ''], end: [caller, TEXT_END, ''] } as Triples;
    return [...this.#database.shares.getRange(range)].flatMap(({ key: [, owner, local], value }) => {
      const folder = this.#database.resources.get([owner, local]);
      return folder?.kind === 'folder' ? [{ folder, share: value }] : [];
    });
  }

  async receivedShare(caller: string, { uid, local }: ResourceId): Promise<ReceivedShare> {
    const share = this.#database.shares.get([caller, uid, local]);
    const folder = share === undefined ? undefined : this.#database.resources.get([uid, local]);
    if (share === undefined || folder?.kind !== 'folder') throw notFound();
    return { folder, share };
  }

  /** Another user, while one of the two shares a folder with the other. */
  async contact(caller: string, uid: string): Promise<UserRow> {
    const between = (receiver: string, owner: string): boolean => {
      const range = { start: [receiver, owner, ''], end: [receiver, owner, TEXT_END] } as Triples;
      return this.#database.shares.getKeysCount(range) > 0;
    };
    const user = between(caller, uid) || between(uid, caller) ? this.#database.users.get(uid) : undefined;
    if (user === undefined) throw notFound();
    return user;
  }

  #workspace(caller: string, id: ResourceId): WorkspaceRow {
    const isPossible = id.uid === caller && id.local.length < 64;
    const row = isPossible ? this.#database.workspaces.get([id.uid, id.local]) : undefined;
    if (row === undefined) throw notFound();
    return row;
  }
}

/** Between two turns of the event loop. */
const FOLDERS_AT_ONCE = 500;

function isImage(mediaType: string): boolean {
  return mediaType.toLowerCase().startsWith('image/');
}

type Triples = { start: [string, string, string]; end: [string, string, string] };

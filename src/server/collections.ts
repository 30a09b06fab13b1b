import { SYSTEM_FOLDERS } from '../protocol/endpoints.ts';
import { type Database, type FileRow, type FolderRow, TEXT_END, TOP } from './database.ts';
import type { Repository } from './repository.ts';

/** Derived collections: public links, albums, folders of a computer (docs/service.md 8). */
export class Collections {
  readonly #database: Database;
  readonly #repository: Repository;

  constructor(deps: { database: Database; repository: Repository }) {
    this.#database = deps.database;
    this.#repository = deps.repository;
  }

  /** The file of a public link, unless it is in the trash. */
  linkedFile(token: string): FileRow | null {
    const uid = /^D(\d+)_/.exec(token)?.[1];
    const local = uid === undefined ? undefined : this.#database.publicLinks.get([uid, token]);
    const row = uid === undefined || local === undefined ? undefined : this.#database.resources.get([uid, local]);
    if (row?.kind !== 'file') return null;
    return this.#repository.liesWithin(row.uid, row.parent, SYSTEM_FOLDERS.deleted) ? null : row;
  }

  /** All files of an account that have a public link. */
  linkedFiles(uid: string): FileRow[] {
    const links = [...this.#database.publicLinks.getRange({ start: [uid, ''], end: [uid, TEXT_END] })];
    return links.flatMap(({ value }) => {
      const row = this.#database.resources.get([uid, value]);
      return row?.kind === 'file' ? [row] : [];
    });
  }

  /** Whether a folder contains an image and so is an album (docs/service.md 8.2). */
  isAlbum(folder: FolderRow): boolean {
    return this.#repository
      .rowsIn(folder.uid, folder.local, 1)
      .some((row) => row.kind === 'file' && isImage(row.mediaType));
  }

  /** All folders of an account with images, outside the trash. */
  albums(uid: string): FolderRow[] {
    const found = new Set<string>();
    for (const { value } of this.#database.resources.getRange({ start: [uid, ''], end: [uid, TEXT_END] })) {
      if (value.kind === 'file' && isImage(value.mediaType)) found.add(value.parent);
    }
    const known = new Map<string, boolean>();
    const folders = [...found].flatMap((local) => {
      const row = this.#database.resources.get([uid, local]);
      if (row?.kind !== 'folder') return [];
      return this.#repository.liesWithin(uid, local, SYSTEM_FOLDERS.deleted, known) ? [] : [row];
    });
    return folders.sort((a, b) => a.seq - b.seq);
  }

  /** The sync folders of a workspace. */
  workspaceFolders(uid: string, workspace: string): FolderRow[] {
    return this.#repository
      .rowsIn(uid, TOP, 0)
      .filter((row): row is FolderRow => row.kind === 'folder' && row.workspace === workspace);
  }
}

function isImage(mediaType: string): boolean {
  return mediaType.toLowerCase().startsWith('image/');
}

import type { ResourceId } from '../../protocol/endpoints.ts';
import { notFound } from '../refusal.ts';
import { checkName } from '../repository.ts';
import { type FileRow, type FolderRow, TOP, type UserRow, type WorkspaceRow } from '../rows.ts';
import type { CollectionRules, ReceivedShare } from '../rules.ts';
import type { Postgres } from './postgres.ts';
import {
  checkId,
  fileRow,
  folderRow,
  type SqlResource,
  type SqlShare,
  type SqlUser,
  type SqlWorkspace,
  shareRow,
  userRow,
  workspaceRow,
} from './postgres-rows.ts';

/** Derived collections, shares and contacts over PostgreSQL. */
export class PostgresCollections implements CollectionRules {
  readonly #postgres: Postgres;

  constructor(deps: { postgres: Postgres }) {
    this.#postgres = deps.postgres;
  }

  async linkedFile(token: string): Promise<FileRow | null> {
    const uid = /^D(\d+)_\d+_\d+$/.exec(token)?.[1];
    if (uid === undefined) return null;
    const row = await this.#postgres.row<SqlResource>(
      `SELECT * FROM resources WHERE uid = $1 AND public_link = $2 AND is_file AND NOT lies_within(uid, parent, '9')`,
      uid,
      token,
    );
    return row === undefined ? null : fileRow(row);
  }

  async linkedFiles(uid: string): Promise<readonly FileRow[]> {
    const rows = await this.#postgres.rows<SqlResource>(
      'SELECT * FROM resources WHERE uid = $1 AND public_link IS NOT NULL ORDER BY public_link',
      uid,
    );
    return rows.map(fileRow);
  }

  async albums(uid: string): Promise<readonly FolderRow[]> {
    const rows = await this.#postgres.rows<SqlResource>(
      `WITH RECURSIVE trash AS (
        SELECT '9'::text COLLATE "C" AS local
        UNION SELECT r.local FROM resources r JOIN trash ON r.uid = $1 AND r.parent = trash.local AND NOT r.is_file
      ) SELECT * FROM resources f WHERE uid = $1 AND NOT is_file AND local NOT IN (SELECT local FROM trash)
        AND EXISTS (SELECT FROM resources r WHERE r.uid = $1 AND r.parent = f.local AND r.media_type ILIKE 'image/%')
      ORDER BY seq`,
      uid,
    );
    return rows.map(folderRow);
  }

  async album(caller: string, id: ResourceId): Promise<FolderRow> {
    checkId(id);
    const row = await this.#postgres.row<SqlResource>(
      `SELECT f.* FROM entry($1, $2, $3, 'read', false) f WHERE EXISTS (
        SELECT FROM resources r WHERE r.uid = f.uid AND r.parent = f.local AND r.media_type ILIKE 'image/%')`,
      caller,
      id.uid,
      id.local,
    );
    if (row === undefined) throw notFound();
    return folderRow(row);
  }

  async workspaces(uid: string): Promise<readonly WorkspaceRow[]> {
    const rows = await this.#postgres.rows<SqlWorkspace>('SELECT * FROM workspaces WHERE uid = $1 ORDER BY local', uid);
    return rows.map(workspaceRow);
  }

  async workspace(caller: string, id: ResourceId): Promise<WorkspaceRow> {
    checkOwn(caller, id);
    const row = await this.#postgres.row<SqlWorkspace>(
      'SELECT * FROM workspaces WHERE uid = $1 AND local = $2',
      id.uid,
      id.local,
    );
    if (row === undefined) throw notFound();
    return workspaceRow(row);
  }

  async renameWorkspace(caller: string, id: ResourceId, name: string | undefined): Promise<void> {
    checkOwn(caller, id);
    checkName(name ?? '');
    const row = await this.#postgres.row(
      'UPDATE workspaces SET name = coalesce($3, name) WHERE uid = $1 AND local = $2 RETURNING local',
      id.uid,
      id.local,
      name,
    );
    if (row === undefined) throw notFound();
  }

  async workspaceFolders(caller: string, id: ResourceId): Promise<readonly FolderRow[]> {
    await this.workspace(caller, id);
    const rows = await this.#postgres.rows<SqlResource>(
      `SELECT * FROM resources WHERE uid = $1 AND parent = '${TOP}' AND NOT is_file AND workspace = $2 ORDER BY seq`,
      id.uid,
      id.local,
    );
    return rows.map(folderRow);
  }

  async receivedShares(caller: string): Promise<readonly ReceivedShare[]> {
    const rows = await this.#postgres.rows<SqlResource & SqlShare>(`${SHARES} ORDER BY s.owner, s.folder`, caller);
    return rows.map((row) => ({ folder: folderRow(row), share: shareRow(row) }));
  }

  async receivedShare(caller: string, id: ResourceId): Promise<ReceivedShare> {
    checkId(id);
    const row = await this.#postgres.row<SqlResource & SqlShare>(
      `${SHARES} AND s.owner = $2 AND s.folder = $3`,
      caller,
      id.uid,
      id.local,
    );
    if (row === undefined) throw notFound();
    return { folder: folderRow(row), share: shareRow(row) };
  }

  async contact(caller: string, uid: string): Promise<UserRow> {
    const row = await this.#postgres.row<SqlUser>(
      `SELECT * FROM users WHERE uid = $2 AND EXISTS (SELECT FROM shares
        WHERE receiver = $1 AND owner = $2 OR receiver = $2 AND owner = $1)`,
      caller,
      uid,
    );
    if (row === undefined) throw notFound();
    return userRow(row);
  }
}

const SHARES = `SELECT r.*, s.write_allowed, s.created_ms AS share_created_ms FROM shares s
  JOIN resources r ON r.uid = s.owner AND r.local = s.folder WHERE s.receiver = $1`;

/** @throws Refusal 404 for another user's workspace */
function checkOwn(caller: string, id: ResourceId): void {
  checkId(id);
  if (id.uid !== caller) throw notFound();
}

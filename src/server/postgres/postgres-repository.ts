import { randomInt } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type { ListingQuery, ResourceId } from '../../protocol/endpoints.ts';
import { type Caller, type Session, uidOf } from '../accounts.ts';
import { shortMediaType } from '../default-media-type.ts';
import type { HoldingLimits } from '../holdings.ts';
import { namedPage, type Page, sorted } from '../list-page.ts';
import { randomSuffix } from '../random-suffix.ts';
import { checkName, DEFAULT_PAGE, type NameRules, type Need, nameHash, type Relocation } from '../repository.ts';
import { type FileRow, type FolderRow, type ResourceRow, TOP } from '../rows.ts';
import type { FileChange, RepositoryRules, ShownFolder } from '../rules.ts';
import { GroupedCalls, type GroupOutcome } from './grouped-calls.ts';
import type { Postgres } from './postgres.ts';
import {
  checkId,
  fileRow,
  folderRow,
  groupOutcome,
  joinedOutcomes,
  resourceRow,
  type SqlLimits,
  type SqlNames,
  type SqlOutcome,
  type SqlResource,
  type SqlTurn,
  sqlLimits,
  sqlNames,
  togetherOrApart,
} from './postgres-rows.ts';

/** Folders, files and their names over PostgreSQL: each rule is one call of a function in `schema.ts`. */
export class PostgresRepository implements RepositoryRules {
  readonly pageMax: number;
  readonly #postgres: Postgres;
  readonly #clock: Clock;
  readonly #limits: SqlLimits;
  readonly #names: SqlNames;
  /** By account, which changes lock until their commit. */
  readonly #creations = new GroupedCalls<Creation, ResourceId>(
    (creations, _uid, gathers) => this.#addTogether(creations, gathers ? 'free' : 'own'),
    {
      runJoined: (groups) =>
        joinedOutcomes(groups, (creations) => this.#addEntries(creations, 'joined', false), createdOf),
    },
  );

  constructor(deps: { postgres: Postgres; clock: Clock; rules: NameRules; pageMax: number; limits: HoldingLimits }) {
    this.#limits = sqlLimits(deps.limits);
    this.#postgres = deps.postgres;
    this.#clock = deps.clock;
    this.#names = sqlNames(deps.rules);
    this.pageMax = deps.pageMax;
  }

  async folder(caller: string, id: ResourceId): Promise<FolderRow> {
    return folderRow(await this.#entry(caller, id, 'read', false));
  }

  async file(caller: string, id: ResourceId, need: Need = 'read'): Promise<FileRow> {
    return fileRow(await this.#entry(caller, id, need, true));
  }

  async shownFolder(caller: string, id: ResourceId): Promise<ShownFolder> {
    checkId(id);
    const row = await this.#postgres.one<SqlResource & { allowed: Need; shared: boolean; shows_parent: boolean }>(
      `SELECT f.*, permission($1, f) AS allowed,
        EXISTS (SELECT FROM shares WHERE owner = f.uid AND folder = f.local) AS shared,
        f.uid = $1 OR EXISTS (SELECT FROM resources WHERE uid = f.uid AND local = f.parent)
          AND share_above($1, f.uid, f.parent) IS NOT NULL AS shows_parent
      FROM entry($1, $2, $3, 'read', false) f`,
      caller,
      id.uid,
      id.local,
    );
    const isPrivate = row.uid === caller && !row.shared;
    const sharing = isPrivate ? null : { writeAllowed: row.allowed === 'write' };
    return { row: folderRow(row), sharing, showsParent: row.shows_parent };
  }

  async list(caller: string, id: ResourceId, query: ListingQuery): Promise<Page<ResourceRow>> {
    checkId(id);
    const start = query.start ?? 0;
    const max = Math.min(query.max ?? DEFAULT_PAGE, this.pageMax);
    const isSorted = query.order !== null;
    const rows = await this.#postgres.rows<SqlResource>(
      `SELECT r.* FROM entry($1, $2, $3, 'read', false) f
      JOIN resources r ON r.uid = f.uid AND r.parent = f.local AND r.is_file = ANY ($4)
      ORDER BY r.is_file, r.seq OFFSET $5 LIMIT $6`,
      caller,
      id.uid,
      id.local,
      kindsOf(query),
      isSorted ? 0 : start,
      isSorted ? null : max + 1,
    );
    const all = rows.map(resourceRow);
    if (query.order === null) return { ...namedPage(all, 0, max), start };
    const ofKind = (kind: ResourceRow['kind']): ResourceRow[] => all.filter((row) => row.kind === kind);
    const inOrder = [...sorted(ofKind('folder'), query.order), ...sorted(ofKind('file'), query.order)];
    return namedPage(inOrder, start, max);
  }

  async listTop(uid: string, query: ListingQuery): Promise<Page<FolderRow>> {
    const start = query.start ?? 0;
    const max = Math.min(query.max ?? Number.MAX_SAFE_INTEGER, this.pageMax);
    const rows = await this.#postgres.rows<SqlResource>(
      `SELECT * FROM resources WHERE uid = $1 AND parent = '${TOP}' AND is_file = ANY ($2)
      ORDER BY seq OFFSET $3 LIMIT $4`,
      uid,
      kindsOf(query),
      start,
      max + 1,
    );
    return { ...namedPage(rows.map(folderRow), 0, max), start };
  }

  createFolder(caller: Caller, parent: ResourceId, name: string): Promise<ResourceId> {
    return this.#add(caller, parent, name, { mediaType: null, role: 'plain' });
  }

  async createSyncFolder(uid: string, name: string): Promise<void> {
    await this.#add(uid, { uid, local: TOP }, name, { mediaType: null, role: 'sync' });
  }

  createFile(caller: Caller, parent: ResourceId, name: string, mediaType: string): Promise<ResourceId> {
    // Only sync folders are made at the top.
    return this.#add(caller, parent, name, { mediaType, role: null });
  }

  /** The copy shares the bytes of the source. */
  async copyFile(caller: Caller, parent: ResourceId, source: ResourceId, name: string): Promise<ResourceId> {
    checkId(parent);
    checkId(source);
    checkName(name);
    const { uid, local } = await this.#postgres.one<SqlResource>(
      'SELECT * FROM copy_file($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)',
      uidOf(caller),
      tokenOf(caller),
      parent.uid,
      parent.local,
      source.uid,
      source.local,
      name,
      nameHash(name),
      [randomSuffix(), randomSuffix()],
      this.#names,
      this.#clock.nowMs(),
      this.#limits,
    );
    return { uid, local };
  }

  async updateFolder(caller: string, id: ResourceId, change: Relocation): Promise<void> {
    await this.#change(caller, id, false, change);
  }

  async updateFile(caller: string, id: ResourceId, change: FileChange): Promise<FileRow> {
    return fileRow(await this.#change(caller, id, true, change));
  }

  async deleteFolder(caller: string, id: ResourceId): Promise<void> {
    checkId(id);
    await this.#postgres.rows('SELECT delete_folder($1, $2, $3)', caller, id.uid, id.local);
  }

  async deleteFile(caller: string, id: ResourceId): Promise<void> {
    checkId(id);
    await this.#postgres.rows('SELECT delete_file($1, $2, $3)', caller, id.uid, id.local);
  }

  async mayReadOn({ uid: caller, refreshToken, signOuts }: Session, { uid, local }: ResourceId): Promise<boolean> {
    const { may } = await this.#postgres.one<{ may: boolean }>(
      `SELECT CASE WHEN $2::text IS NULL
          THEN EXISTS (SELECT FROM users WHERE uid = $1 AND sign_outs = $3)
          ELSE EXISTS (SELECT FROM refresh_tokens WHERE hash = $2) END
        AND ($1 = $4 OR NOT EXISTS (
          SELECT FROM resources r WHERE uid = $4 AND local = $5 AND permission($1, r) IS NULL)) AS may`,
      caller,
      refreshToken,
      signOuts,
      uid,
      local,
    );
    return may;
  }

  async #entry(caller: string, id: ResourceId, need: Need, isFile: boolean): Promise<SqlResource> {
    checkId(id);
    return this.#postgres.one<SqlResource>(
      'SELECT * FROM entry($1, $2, $3, $4, $5)',
      caller,
      id.uid,
      id.local,
      need,
      isFile,
    );
  }

  async #add(
    caller: Caller,
    parent: ResourceId,
    name: string,
    { mediaType, role }: { mediaType: string | null; role: FolderRow['role'] | null },
  ): Promise<ResourceId> {
    checkId(parent);
    checkName(name);
    return this.#creations.call(parent.uid, { caller, parent, name, mediaType, role, suffix: randomSuffix() });
  }

  async #addTogether(creations: readonly Creation[], turn: SqlTurn): Promise<GroupOutcome<ResourceId>> {
    const rows = await togetherOrApart(creations.length, (apart) => this.#addEntries(creations, turn, apart));
    return groupOutcome(rows, turn, createdOf);
  }

  #addEntries(creations: readonly Creation[], turn: SqlTurn, apart: boolean): Promise<SqlCreated[]> {
    return this.#postgres.keptRows<SqlCreated>(
      'SELECT * FROM add_entries($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)',
      creations.map(({ caller }) => uidOf(caller)),
      creations.map(({ caller }) => tokenOf(caller)),
      creations.map(({ parent }) => parent.uid),
      creations.map(({ parent }) => parent.local),
      creations.map(({ role }) => role === null),
      creations.map(({ name }) => name),
      creations.map(({ name }) => nameHash(name)),
      creations.map(({ mediaType }) => mediaType),
      creations.map(({ role }) => role),
      creations.map(({ suffix }) => suffix),
      this.#names,
      this.#clock.nowMs(),
      this.#limits,
      turn,
      apart,
    );
  }

  async #change(caller: string, id: ResourceId, isFile: boolean, change: FileChange): Promise<SqlResource> {
    checkId(id);
    const { name = null, parent, publicLink } = change;
    if (name !== null) checkName(name);
    if (parent !== undefined) checkId(parent);
    // 94 random bits in the form of the service's links, which must not be guessable.
    const newLink = (): string => `D${id.uid}_${randomInt(2 ** 47)}_${randomInt(2 ** 47)}`;
    return this.#postgres.one<SqlResource>(
      'SELECT * FROM change_entry($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)',
      caller,
      id.uid,
      id.local,
      isFile,
      name,
      name === null ? null : nameHash(name),
      parent?.uid,
      parent?.local,
      shortMediaType(change.mediaType),
      publicLink === undefined ? null : publicLink ? newLink() : '',
      this.#names,
      this.#limits,
    );
  }
}

type SqlCreated = Pick<SqlResource, 'uid' | 'local'> & SqlOutcome;

function createdOf({ uid, local }: SqlCreated): ResourceId {
  return { uid, local };
}

interface Creation {
  readonly caller: Caller;
  readonly parent: ResourceId;
  readonly name: string;
  readonly mediaType: string | null;
  /** Null for a file. */
  readonly role: FolderRow['role'] | null;
  readonly suffix: string;
}

/** Null for a caller who was checked before. */
function tokenOf(caller: Caller): string | null {
  return typeof caller === 'string' ? null : caller.token;
}

function kindsOf({ type }: ListingQuery): readonly boolean[] {
  return type === null ? [false, true] : [type === 'file'];
}

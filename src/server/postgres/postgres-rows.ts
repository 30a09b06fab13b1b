import type { ResourceId } from '../../protocol/endpoints.ts';
import type { HoldingLimits } from '../holdings.ts';
import { notFound, Refusal } from '../refusal.ts';
import type { NameRules } from '../repository.ts';
import type { FileRow, FolderRow, ResourceRow, ShareRow, UserRow, VersionRow, WorkspaceRow } from '../rows.ts';
import type { GroupOutcome } from './grouped-calls.ts';
import type { JoinedGroup } from './joined-groups.ts';

/** Rows as `pg` returns them, and the server's rows made of them. */

/** Entries, unfinished uploads, bytes as a multiple of the quota, bytes beside it. */
export type SqlLimits = readonly [number, number, number, number];

export function sqlLimits({ entriesMax, unfinishedMax, storageFactor, rowsBytes }: HoldingLimits): SqlLimits {
  return [entriesMax, unfinishedMax, storageFactor, rowsBytes];
}

export type SqlNames = 'any' | 'unique' | 'folded';

export function sqlNames({ uniqueNames, foldCase }: NameRules): SqlNames {
  return foldCase ? 'folded' : uniqueNames ? 'unique' : 'any';
}

export interface SqlUser {
  readonly uid: string;
  readonly email: string;
  readonly nickname: string;
  readonly salt: Uint8Array;
  readonly hash: Uint8Array;
  readonly cost: number;
  readonly quota_bytes: number;
  readonly usage_bytes: number;
  readonly created_ms: number;
  readonly sign_outs: number;
  readonly networks: readonly string[];
}

export function userRow(row: SqlUser): UserRow {
  const { uid, email, nickname, salt, hash, cost } = row;
  return {
    uid,
    email,
    nickname,
    password: { salt, hash, cost },
    quotaBytes: row.quota_bytes,
    createdMs: row.created_ms,
    signOuts: row.sign_outs,
    networks: row.networks,
  };
}

export interface SqlResource {
  readonly uid: string;
  readonly local: string;
  readonly is_file: boolean;
  readonly seq: number;
  readonly name: string;
  readonly parent: string;
  readonly created_ms: number;
  readonly role: FolderRow['role'] | null;
  readonly workspace: string | null;
  readonly media_type: string | null;
  readonly public_link: string | null;
  readonly newest_seq: number | null;
  readonly newest_size: number | null;
  readonly newest_modified_ms: number | null;
  readonly newest_blob: string | null;
}

export function folderRow(row: SqlResource): FolderRow {
  const { uid, local, seq, name, parent, role, workspace } = row;
  const folder = { uid, local, seq, name, parent, createdMs: row.created_ms, kind: 'folder' as const };
  return { ...folder, role: role ?? 'plain', ...(workspace === null ? {} : { workspace }) };
}

export function fileRow(row: SqlResource): FileRow {
  const { uid, local, seq, name, parent } = row;
  const newest =
    row.newest_seq === null
      ? null
      : {
          seq: row.newest_seq,
          sizeBytes: row.newest_size ?? 0,
          lastModifiedMs: row.newest_modified_ms ?? 0,
          blob: row.newest_blob ?? '',
        };
  return {
    ...{ uid, local, seq, name, parent, createdMs: row.created_ms, kind: 'file' },
    mediaType: row.media_type ?? '',
    publicLink: row.public_link,
    newest,
  };
}

export function resourceRow(row: SqlResource): ResourceRow {
  return row.is_file ? fileRow(row) : folderRow(row);
}

export interface SqlVersion {
  readonly uid: string;
  readonly file: string;
  readonly seq: number;
  readonly version: string;
  readonly created_ms: number;
  readonly last_modified_ms: number;
  readonly media_type: string;
  readonly complete: boolean;
  readonly size_bytes: number;
  readonly blob: string;
  readonly sha256: string | null;
  readonly epoch: number;
}

export function versionRow(row: SqlVersion): VersionRow {
  const { uid, file, seq, version, complete, blob, sha256 } = row;
  return {
    ...{ uid, file, seq, version, complete, blob, sha256 },
    createdMs: row.created_ms,
    lastModifiedMs: row.last_modified_ms,
    mediaType: row.media_type,
    sizeBytes: row.size_bytes,
  };
}

/** Of one call of a group. `refusal`: the HTTP status, or null. */
export interface SqlOutcome {
  readonly refusal: number | null;
  readonly message: string;
  readonly has_waited: boolean;
}

/**
 * Runs a group as one change, which a refusal of one call undoes; then each call has a change of its own.
 * @throws Refusal of the only call, or of all
 */
export async function togetherOrApart<Row>(calls: number, run: (apart: boolean) => Promise<Row[]>): Promise<Row[]> {
  try {
    return await run(false);
  } catch (error) {
    // Without an answer of the database, the group may have taken place.
    if (calls === 1 || !(error instanceof Refusal) || error.status >= 500) throw error;
    return run(true);
  }
}

/**
 * How a group waits for the turn of its account: until the turn is its own, until it is free (then the group runs again), or not at
 * all, as one of several groups in a statement.
 */
export type SqlTurn = 'own' | 'free' | 'joined';

/**
 * Runs groups of several accounts as one change, which a refusal of one call undoes.
 * @returns null for a group that must run alone: it had no effect
 */
export async function joinedOutcomes<Call, Row extends SqlOutcome, Answer>(
  groups: readonly JoinedGroup<Call>[],
  run: (calls: readonly Call[]) => Promise<Row[]>,
  answerOf: (row: Row) => Answer,
): Promise<(GroupOutcome<Answer> | null)[]> {
  let rows: Row[];
  try {
    rows = await run(groups.flatMap(({ calls }) => calls));
  } catch (error) {
    if (error instanceof Refusal && error.status < 500) return groups.map(() => null);
    throw error;
  }
  let at = 0;
  return groups.map(({ calls }) => {
    const own = rows.slice(at, at + calls.length);
    at += calls.length;
    return own[0]?.has_waited === false ? groupOutcome(own, 'joined', answerOf) : null;
  });
}

/** No answer: the group has waited until it may run. */
export function groupOutcome<Row extends SqlOutcome, Answer>(
  rows: readonly Row[],
  turn: SqlTurn,
  answerOf: (row: Row) => Answer,
): GroupOutcome<Answer> {
  const hasWaited = rows[0]?.has_waited ?? true;
  if (hasWaited && turn === 'free') return { answers: [], hasWaited };
  const answers = rows.map(
    (row): PromiseSettledResult<Answer> =>
      row.refusal === null
        ? { status: 'fulfilled', value: answerOf(row) }
        : { status: 'rejected', reason: new Refusal(row.refusal, row.message) },
  );
  return { answers, hasWaited };
}

export interface SqlShare {
  readonly write_allowed: boolean;
  readonly share_created_ms: number;
}

export function shareRow(row: SqlShare): ShareRow {
  return { writeAllowed: row.write_allowed, createdMs: row.share_created_ms };
}

export interface SqlWorkspace {
  readonly uid: string;
  readonly local: string;
  readonly name: string;
  readonly icon_id: string;
  readonly created_ms: number;
}

export function workspaceRow({ uid, local, name, icon_id, created_ms }: SqlWorkspace): WorkspaceRow {
  return { uid, local, name, iconId: icon_id, createdMs: created_ms };
}

/** Other ids were never issued, and PostgreSQL refuses some of them. @throws Refusal 404 */
export function checkId({ uid, local }: ResourceId): void {
  if (!/^\d{1,20}$/.test(uid) || !/^\w{1,64}$/.test(local)) throw notFound();
}

import type { InstallationRows, RowKind } from '../installation.ts';
import { nameHash } from '../repository.ts';
import type { ResourceRow, VersionRow } from '../rows.ts';
import {
  resourceRow,
  type SqlResource,
  type SqlUser,
  type SqlVersion,
  type SqlWorkspace,
  userRow,
  versionRow,
  workspaceRow,
} from './postgres-rows.ts';

/** How the rows of one kind lie in the database. */
export interface InstallationTable<R, S = never> {
  readonly name: string;
  /** The type of each column. */
  readonly columns: Readonly<Record<string, string>>;
  /** The columns of the key, in their order. */
  readonly key: readonly string[];
  readonly where?: string;
  fromSql(row: S): R;
  /** By column. */
  toSql(row: R): Readonly<Record<string, unknown>>;
}

type Tables = { readonly [K in RowKind]: InstallationTable<InstallationRows[K]> };

/** The tables that a copy reads and writes. */
export const INSTALLATION_TABLES: Tables = {
  users: table<InstallationRows['users'], SqlUser>({
    name: 'users',
    columns: {
      ...{ uid: 'text', email: 'text', nickname: 'text', salt: 'bytea', hash: 'bytea', cost: 'integer' },
      ...{ quota_bytes: 'bigint', created_ms: 'bigint', sign_outs: 'integer', networks: 'text[]' },
    },
    key: ['uid'],
    fromSql: userRow,
    toSql: ({ password, ...row }) => ({
      ...{ uid: row.uid, email: row.email, nickname: row.nickname, quota_bytes: row.quotaBytes },
      ...{ salt: bytes(password.salt), hash: bytes(password.hash), cost: password.cost, created_ms: row.createdMs },
      ...{ sign_outs: row.signOuts ?? 0, networks: row.networks ?? [] },
    }),
  }),
  applications: table<InstallationRows['applications'], InstallationRows['applications']>({
    name: 'applications',
    columns: { id: 'text', name: 'text', enabled: 'boolean' },
    key: ['id'],
    fromSql: (row) => row,
    toSql: ({ id, name, enabled }) => ({ id, name, enabled }),
  }),
  keyPairs: table<InstallationRows['keyPairs'], SqlKeyPair>({
    name: 'key_pairs',
    columns: { access_key_id: 'text', uid: 'text', secret_hash: 'bytea', created_ms: 'bigint' },
    key: ['access_key_id'],
    fromSql: (row) => ({
      ...{ accessKeyId: row.access_key_id, uid: row.uid, secretHash: row.secret_hash, createdMs: row.created_ms },
    }),
    toSql: (row) => ({
      ...{
        access_key_id: row.accessKeyId,
        uid: row.uid,
        secret_hash: bytes(row.secretHash),
        created_ms: row.createdMs,
      },
    }),
  }),
  refreshTokens: table<InstallationRows['refreshTokens'], SqlRefreshToken>({
    name: 'refresh_tokens',
    columns: { hash: 'text', uid: 'text', application: 'text', created_ms: 'bigint', used_ms: 'bigint' },
    key: ['hash'],
    fromSql: ({ hash, uid, application, created_ms, used_ms }) => ({
      ...{ hash, uid, application, createdMs: created_ms, usedMs: used_ms },
    }),
    toSql: ({ hash, uid, application, createdMs, usedMs }) => ({
      ...{ hash, uid, application, created_ms: createdMs, used_ms: usedMs ?? createdMs },
    }),
  }),
  accessTokens: table<InstallationRows['accessTokens'], SqlAccessToken>({
    name: 'access_tokens',
    columns: { hash: 'text', uid: 'text', refresh_token: 'text', expires_ms: 'bigint' },
    key: ['hash'],
    fromSql: ({ hash, uid, refresh_token, expires_ms }) => ({
      ...{ hash, uid, refreshToken: refresh_token, expiresMs: expires_ms },
    }),
    toSql: ({ hash, uid, refreshToken, expiresMs }) => ({
      ...{ hash, uid, refresh_token: refreshToken, expires_ms: expiresMs },
    }),
  }),
  resources: table<ResourceRow, SqlResource>({
    name: 'resources',
    columns: {
      ...{ uid: 'text', local: 'text', is_file: 'boolean', seq: 'bigint', name: 'text', name_hash: 'text' },
      ...{ parent: 'text', created_ms: 'bigint', role: 'text', workspace: 'text', media_type: 'text' },
      ...{ public_link: 'text', newest_seq: 'bigint', newest_size: 'bigint', newest_modified_ms: 'bigint' },
      newest_blob: 'text',
    },
    key: ['uid', 'local'],
    fromSql: resourceRow,
    toSql: resourceColumns,
  }),
  workspaces: table<InstallationRows['workspaces'], SqlWorkspace>({
    name: 'workspaces',
    columns: { uid: 'text', local: 'text', name: 'text', icon_id: 'text', created_ms: 'bigint' },
    key: ['uid', 'local'],
    fromSql: workspaceRow,
    toSql: ({ uid, local, name, iconId, createdMs }) => ({
      ...{ uid, local, name, icon_id: iconId, created_ms: createdMs },
    }),
  }),
  shares: table<InstallationRows['shares'], SqlCopiedShare>({
    name: 'shares',
    columns: { receiver: 'text', owner: 'text', folder: 'text', write_allowed: 'boolean', created_ms: 'bigint' },
    key: ['receiver', 'owner', 'folder'],
    fromSql: ({ receiver, owner, folder, write_allowed, created_ms }) => ({
      ...{ receiver, owner, folder, writeAllowed: write_allowed, createdMs: created_ms },
    }),
    toSql: ({ receiver, owner, folder, writeAllowed, createdMs }) => ({
      ...{ receiver, owner, folder, write_allowed: writeAllowed, created_ms: createdMs },
    }),
  }),
  versions: table<VersionRow, SqlVersion>({
    name: 'versions',
    columns: {
      ...{
        uid: 'text',
        file: 'text',
        seq: 'bigint',
        version: 'text',
        created_ms: 'bigint',
        last_modified_ms: 'bigint',
      },
      ...{ media_type: 'text', complete: 'boolean', size_bytes: 'bigint', blob: 'text', sha256: 'text' },
    },
    key: ['uid', 'file', 'seq'],
    // Others are of uploads that ended with their server.
    where: 'NOT hidden',
    fromSql: versionRow,
    toSql: (row) => ({
      ...{ uid: row.uid, file: row.file, seq: row.seq, version: row.version, created_ms: row.createdMs },
      ...{ last_modified_ms: row.lastModifiedMs, media_type: row.mediaType, complete: row.complete },
      ...{ size_bytes: row.sizeBytes, blob: row.blob, sha256: row.sha256 },
    }),
  }),
};

interface SqlKeyPair {
  readonly access_key_id: string;
  readonly uid: string;
  readonly secret_hash: Uint8Array;
  readonly created_ms: number;
}

interface SqlRefreshToken {
  readonly hash: string;
  readonly uid: string;
  readonly application: string;
  readonly created_ms: number;
  readonly used_ms: number;
}

interface SqlAccessToken {
  readonly hash: string;
  readonly uid: string;
  readonly refresh_token: string | null;
  readonly expires_ms: number;
}

interface SqlCopiedShare {
  readonly receiver: string;
  readonly owner: string;
  readonly folder: string;
  readonly write_allowed: boolean;
  readonly created_ms: number;
}

function resourceColumns(row: ResourceRow): Readonly<Record<string, unknown>> {
  const { uid, local, seq, name, parent } = row;
  const common = { uid, local, seq, name, name_hash: nameHash(name), parent, created_ms: row.createdMs };
  if (row.kind === 'folder') return { ...common, is_file: false, role: row.role, workspace: row.workspace };
  const { newest } = row;
  return {
    ...{ ...common, is_file: true, media_type: row.mediaType, public_link: row.publicLink },
    ...{ newest_seq: newest?.seq, newest_size: newest?.sizeBytes },
    ...{ newest_modified_ms: newest?.lastModifiedMs, newest_blob: newest?.blob },
  };
}

/** Hides the type of the rows that `pg` returns. */
function table<R, S>(description: InstallationTable<R, S>): InstallationTable<R> {
  return description as unknown as InstallationTable<R>;
}

/** As bytea in JSON (https://www.postgresql.org/docs/15/datatype-binary.html). */
export function bytes(value: Uint8Array): string {
  return `\\x${Buffer.from(value).toString('hex')}`;
}

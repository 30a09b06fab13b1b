import type { Clock } from '../../base/clock.ts';
import type { ResourceId } from '../../protocol/endpoints.ts';
import type { HoldingLimits } from '../holdings.ts';
import type { Page } from '../list-page.ts';
import { randomSuffix } from '../random-suffix.ts';
import { notFound } from '../refusal.ts';
import type { FileRow, VersionRow } from '../rows.ts';
import type { HistoryRules } from '../rules.ts';
import type { Postgres } from './postgres.ts';
import { checkId, type SqlLimits, type SqlVersion, sqlLimits, versionRow } from './postgres-rows.ts';

/** The rows of versions over PostgreSQL. */
export class PostgresHistories implements HistoryRules {
  readonly #postgres: Postgres;
  readonly #clock: Clock;
  readonly #newBlob: () => string;
  readonly #limits: SqlLimits;

  constructor(deps: { postgres: Postgres; clock: Clock; newBlob: () => string; limits: HoldingLimits }) {
    this.#limits = sqlLimits(deps.limits);
    this.#postgres = deps.postgres;
    this.#clock = deps.clock;
    this.#newBlob = deps.newBlob;
  }

  async list({ uid, local }: FileRow, start: number, max: number): Promise<Page<VersionRow>> {
    const rows = await this.#postgres.rows<SqlVersion>(
      'SELECT * FROM versions WHERE uid = $1 AND file = $2 AND NOT hidden ORDER BY seq DESC OFFSET $3 LIMIT $4',
      uid,
      local,
      start,
      max + 1,
    );
    return { entries: rows.slice(0, max).map(versionRow), start, hasMore: rows.length > max };
  }

  async version({ uid, local }: FileRow, version: string): Promise<VersionRow> {
    const seq = /^(\d{1,15})_\d{1,20}$/.exec(version)?.[1];
    if (seq === undefined) throw notFound();
    const row = await this.#postgres.row<SqlVersion>(
      'SELECT * FROM versions WHERE uid = $1 AND file = $2 AND seq = $3 AND version = $4 AND NOT hidden',
      uid,
      local,
      seq,
      version,
    );
    if (row === undefined) throw notFound();
    return versionRow(row);
  }

  async create(caller: string, id: ResourceId): Promise<VersionRow> {
    checkId(id);
    const row = await this.#postgres.one<SqlVersion>(
      'SELECT * FROM begin_version($1, $2, $3, NULL, $4, $5, $6, false, NULL, $7)',
      caller,
      id.uid,
      id.local,
      randomSuffix(),
      this.#newBlob(),
      this.#clock.nowMs(),
      this.#limits,
    );
    return versionRow(row);
  }
}

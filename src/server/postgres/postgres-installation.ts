import { createHash, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { systemClock } from '../../base/clock.ts';
import { StorageError, UsageError } from '../../base/errors.ts';
import type { CopyTarget, InstallationRows, NextNumbers, RowKind, StoredVersion } from '../installation.ts';
import type { ObjectStore } from '../object-store.ts';
import { Refusal } from '../refusal.ts';
import type { VersionRow } from '../rows.ts';
import { type CheckedVersions, checkVersions } from '../version-check.ts';
import { ArrivingPart, PART_BYTES } from './arriving-part.ts';
import { claimInstallation, hasTable, UNFINISHED_COPY, unfinishedCopyOf } from './installation-claim.ts';
import { bytes, INSTALLATION_TABLES, type InstallationTable } from './installation-tables.ts';
import { newObjectKey, newObjectName } from './object-name.ts';
import { Postgres } from './postgres.ts';
import { PostgresBlobs } from './postgres-blobs.ts';

/** A database with its object store, without servers, as the source or the target of a copy. */
export class PostgresInstallation implements CopyTarget {
  readonly name: string;
  readonly #postgres: Postgres;
  readonly #store: ObjectStore;
  readonly #blobs: PostgresBlobs;
  /** For the parts of versions that are being stored. */
  readonly #directory: string;

  /**
   * Opens an installation, or with `isNew` an empty database. Closes the store.
   * @param options.isInUse allows servers meanwhile: for a check
   * @throws UsageError if servers use the database or it has no data; StorageError if the data cannot be used
   */
  static async open(
    url: string,
    store: ObjectStore,
    options: { readonly isNew?: boolean; readonly isInUse?: boolean } = {},
  ): Promise<PostgresInstallation> {
    let postgres: Postgres | null = null;
    try {
      postgres = await Postgres.open(url);
      if (options.isInUse !== true) await refuseOthers(postgres);
      if (options.isNew !== true && !(await hasTable(postgres, 'installation')))
        throw new UsageError(`${url} has no data of cfs serve`);
      await postgres.migrate();
      const directory = await mkdtemp(join(tmpdir(), 'cfs-serve-copy-'));
      const opened = new PostgresInstallation(url, postgres, store, directory);
      const origin = await opened.origin();
      if (origin !== null) await claimInstallation(postgres, store, origin);
      return opened;
    } catch (error) {
      await postgres?.close();
      await store.close();
      if (error instanceof Refusal) throw new StorageError(error.message, { cause: error });
      throw error;
    }
  }

  private constructor(url: string, postgres: Postgres, store: ObjectStore, directory: string) {
    this.name = url;
    this.#postgres = postgres;
    this.#store = store;
    this.#directory = directory;
    this.#blobs = new PostgresBlobs({ postgres, store });
  }

  get identity(): string {
    return this.name;
  }

  async origin(): Promise<string | null> {
    return (await this.#postgres.row<{ origin: string }>('SELECT origin FROM installation'))?.origin ?? null;
  }

  async nextNumbers(): Promise<NextNumbers> {
    // A sequence that was not used yet gives its last value next.
    return this.#postgres.one<NextNumbers>(`
      SELECT (SELECT last_value + is_called::integer FROM uids) AS uid,
        (SELECT last_value + is_called::integer FROM numbers) AS entry`);
  }

  unfinishedCopyOf(): Promise<string | null> {
    return unfinishedCopyOf(this.#postgres);
  }

  async *rows<K extends RowKind>(kind: K): AsyncGenerator<readonly InstallationRows[K][], void, undefined> {
    const table: InstallationTable<InstallationRows[K], Readonly<Record<string, unknown>>> = INSTALLATION_TABLES[kind];
    const key = table.key.join(', ');
    const after = table.key.map((column, at) => `$${at + 1}::${table.columns[column]}`).join(', ');
    let last = table.key.map((column): unknown => (table.columns[column] === 'bigint' ? -1 : ''));
    for (;;) {
      const found = await this.#postgres.rows<Readonly<Record<string, unknown>>>(
        `SELECT ${Object.keys(table.columns).join(', ')} FROM ${table.name}
        WHERE (${key}) > (${after}) AND ${table.where ?? 'true'} ORDER BY ${key} LIMIT ${PIECE_ROWS}`,
        ...last,
      );
      yield found.map((row) => table.fromSql(row));
      const end = found.at(-1);
      if (end === undefined || found.length < PIECE_ROWS) return;
      last = table.key.map((column) => end[column]);
    }
  }

  storedBytes(version: VersionRow): Promise<number | null> {
    return this.#blobs.sizeBytes(version.blob);
  }

  async *read({ blob }: VersionRow, sizeBytes: number): AsyncGenerator<Uint8Array, void, undefined> {
    yield* await this.#blobs.read(blob, 0, sizeBytes);
  }

  /** Also while servers run. */
  check(): Promise<CheckedVersions> {
    return checkVersions({
      versions: () => this.rows('versions'),
      has: async (row) => (await this.knownVersions([row])).has(row),
      storedBytes: (row) => this.storedBytes(row),
      sha256: async (row) => {
        const hash = createHash('sha256');
        if (row.sizeBytes > 0) for await (const chunk of this.read(row, row.sizeBytes)) hash.update(chunk);
        return hash.digest('hex');
      },
    });
  }

  async begin(source: string, origin: string): Promise<void> {
    const begun = await this.unfinishedCopyOf();
    if (begun !== source) {
      const { used } = await this.#postgres.one<{ used: boolean }>(
        'SELECT EXISTS (SELECT FROM users) OR EXISTS (SELECT FROM installation) AS used',
      );
      if (begun !== null || used) throw new UsageError(`${this.name} has data already: give a new database`);
      await this.#postgres.rows(`CREATE TABLE IF NOT EXISTS ${UNFINISHED_COPY} (source text NOT NULL)`);
      await this.#postgres.rows(`INSERT INTO ${UNFINISHED_COPY} VALUES ($1)`, source);
    }
    await claimInstallation(this.#postgres, this.#store, origin);
  }

  async add<K extends Exclude<RowKind, 'versions'>>(kind: K, rows: readonly InstallationRows[K][]): Promise<void> {
    const table: InstallationTable<InstallationRows[K]> = INSTALLATION_TABLES[kind];
    await this.#postgres.rows(
      `INSERT INTO ${table.name} (${Object.keys(table.columns).join(', ')})
      SELECT * FROM json_to_recordset($1) AS given (${declared(table.columns)}) ON CONFLICT DO NOTHING`,
      JSON.stringify(rows.map(table.toSql)),
    );
  }

  async knownVersions(rows: readonly VersionRow[]): Promise<ReadonlySet<VersionRow>> {
    const known = await this.#postgres.rows<{ file: string; seq: number; uid: string }>(
      `SELECT v.uid, v.file, v.seq FROM versions v
      JOIN unnest($1::text[], $2::text[], $3::bigint[]) AS given (uid, file, seq) USING (uid, file, seq)`,
      rows.map(({ uid }) => uid),
      rows.map(({ file }) => file),
      rows.map(({ seq }) => seq),
    );
    const nameOf = ({ uid, file, seq }: { uid: string; file: string; seq: number }) => `${uid} ${file} ${seq}`;
    const names = new Set(known.map(nameOf));
    return new Set(rows.filter((row) => names.has(nameOf(row))));
  }

  async store(version: VersionRow, chunks: AsyncIterable<Uint8Array>): Promise<StoredVersion> {
    const row = { ...version, blob: newObjectName() };
    const parts: StoredVersion['parts'][number][] = [];
    let part = this.#newPart();
    try {
      for await (const chunk of chunks) {
        for (let rest = chunk; rest.byteLength > 0; ) {
          if (part.sizeBytes === PART_BYTES) {
            parts.push(await this.#put(part));
            part = this.#newPart();
          }
          const taken = rest.subarray(0, PART_BYTES - part.sizeBytes);
          await part.write(taken);
          rest = rest.subarray(taken.byteLength);
        }
      }
      const few = version.complete && parts.length === 0 ? part.bytes : null;
      if (few !== null) return { row, bytes: few, parts };
      if (part.sizeBytes > 0) parts.push(await this.#put(part));
      return { row, bytes: null, parts };
    } finally {
      await part.remove();
    }
  }

  async addVersions(versions: readonly StoredVersion[]): Promise<void> {
    const { columns, toSql } = INSTALLATION_TABLES.versions;
    const parts = versions.flatMap(({ row, parts }) => {
      let start = 0;
      return parts.map(({ key, etag, sizeBytes }) => {
        start += sizeBytes;
        return { blob: row.blob, start: start - sizeBytes, size: sizeBytes, key, etag };
      });
    });
    await this.#postgres.rows(
      `WITH given AS (SELECT * FROM json_to_recordset($1) AS given (${declared(columns)}, bytes bytea)),
        given_parts AS (SELECT * FROM json_to_recordset($2) AS given (blob text, start bigint, size bigint, key text, etag text)),
        stored AS (INSERT INTO blobs SELECT blob, 1, bytes FROM given),
        arrived AS (UPDATE objects SET state = 'live' WHERE key IN (SELECT key FROM given_parts)),
        added AS (INSERT INTO parts SELECT blob, start, size, key, etag FROM given_parts),
        newest AS (UPDATE resources r SET newest_blob = given.blob FROM given
          WHERE r.uid = given.uid AND r.local = given.file AND r.newest_seq = given.seq)
      INSERT INTO versions (${Object.keys(columns).join(', ')}) SELECT ${Object.keys(columns).join(', ')} FROM given`,
      JSON.stringify(
        versions.map(({ row, bytes: few }) => ({ ...toSql(row), bytes: few === null ? null : bytes(few) })),
      ),
      JSON.stringify(parts),
    );
  }

  async finish(next: NextNumbers): Promise<void> {
    // One account at a time, for the time limit of statements.
    for await (const users of this.rows('users')) {
      for (const { uid } of users)
        await this.#postgres.rows(
          `UPDATE users SET
            entries = (SELECT count(*) FROM resources r WHERE r.uid = $1 AND role IS DISTINCT FROM 'system'),
            unfinished = (SELECT count(*) FROM versions v WHERE v.uid = $1 AND NOT complete),
            usage_bytes = (SELECT coalesce(sum(newest_size), 0) FROM resources r WHERE r.uid = $1),
            held_bytes = (SELECT coalesce(sum(1024 + size_bytes), 0) FROM versions v WHERE v.uid = $1)
              + (SELECT coalesce(sum(entry_bytes(r)), 0) FROM resources r WHERE r.uid = $1 AND role IS DISTINCT FROM 'system')
          WHERE uid = $1`,
          uid,
        );
    }
    await this.#postgres.rows("SELECT setval('uids', $1, false), setval('numbers', $2, false)", next.uid, next.entry);
    await this.#postgres.rows(`DROP TABLE ${UNFINISHED_COPY}`);
  }

  async close(): Promise<void> {
    await this.#store.close();
    await this.#postgres.close();
    await rm(this.#directory, { recursive: true, force: true });
  }

  #newPart(): ArrivingPart {
    return new ArrivingPart({ path: join(this.#directory, randomUUID()), clock: systemClock });
  }

  /** Recorded before its first byte: after an interruption, the servers delete it. */
  async #put(part: ArrivingPart): Promise<StoredVersion['parts'][number]> {
    const key = newObjectKey();
    await this.#postgres.rows("INSERT INTO objects (key, state) VALUES ($1, 'arriving')", key);
    const content = await part.finish();
    try {
      const etag = await this.#store.put(key, content, AbortSignal.timeout(PUT_MS_MAX));
      return { key, etag, sizeBytes: content.sizeBytes };
    } finally {
      await part.remove();
    }
  }
}

/** Columns with their types, as for json_to_recordset. */
function declared(columns: Readonly<Record<string, string>>): string {
  return Object.entries(columns)
    .map(([name, type]) => `${name} ${type}`)
    .join(', ');
}

/**
 * Refuses a database that others use: what servers change during a copy would be missing.
 * @throws UsageError
 */
async function refuseOthers(postgres: Postgres): Promise<void> {
  // The connections of a program that has just ended last a moment.
  for (let tries = 1; ; tries += 1) {
    const { others } = await postgres.one<{ others: number }>(
      `SELECT count(*) AS others FROM pg_stat_activity
      WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()`,
    );
    if (others === 0) return;
    if (tries === LOOKS)
      throw new UsageError(
        `${others} other connections use the database: stop all servers, and give the address of the database instead of a pooler's`,
      );
    await sleep(LOOK_EVERY_MS);
  }
}

/** Rows in memory at a time. */
const PIECE_ROWS = 500;
const PUT_MS_MAX = 30 * 60_000;
const LOOKS = 20;
const LOOK_EVERY_MS = 250;

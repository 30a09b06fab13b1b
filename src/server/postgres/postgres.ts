import { noRoom, Refusal } from '../refusal.ts';
import { loadPostgres, type Pool } from './postgres-library.ts';
import { MIGRATIONS } from './schema.ts';

/**
 * The database of several servers. Each call is one statement and so one transaction; statements have no names and
 * sessions no state. So a pooler in transaction mode may be between.
 */
export class Postgres {
  readonly #pool: Pool;

  private constructor(pool: Pool) {
    this.#pool = pool;
  }

  /** @throws UsageError if the package for PostgreSQL is not installed */
  static async open(url: string, options: { connectionsMax?: number } = {}): Promise<Postgres> {
    const { Pool, types } = await loadPostgres();
    const pool = new Pool({
      connectionString: url,
      max: options.connectionsMax ?? CONNECTIONS_MAX,
      connectionTimeoutMillis: CONNECT_MS_MAX,
      idleTimeoutMillis: IDLE_MS,
      // Numbers of the service are below 2^53.
      types: { getTypeParser: (oid, format) => (oid === INT8 ? Number : types.getTypeParser(oid, format)) },
    });
    // An idle connection that breaks is replaced by the next call.
    pool.on('error', () => {});
    return new Postgres(pool);
  }

  close(): Promise<void> {
    return this.#pool.end();
  }

  /** Brings the schema up to date: any number of servers may start together. */
  async migrate(): Promise<void> {
    await this.#pool.query(`
      DO $migrate$ BEGIN
        PERFORM pg_advisory_xact_lock(${MIGRATION_LOCK});
        CREATE TABLE IF NOT EXISTS schema_version (number integer NOT NULL);
        ${MIGRATIONS.map((text, at) => migration(text, at + 1)).join('\n')}
      END $migrate$`);
  }

  /**
   * The rows of one statement. Repeated if it lost against another transaction; its effect is then none.
   * @throws Refusal of the rule, or 507 if the database's disk is full
   */
  async rows<T>(text: string, ...values: readonly unknown[]): Promise<T[]> {
    for (let tries = 1; ; tries += 1) {
      try {
        return (await this.#pool.query(text, values)).rows as T[];
      } catch (error) {
        const code = (error as { code?: unknown }).code;
        if (typeof code !== 'string') throw error;
        if (REPEATED.has(code) && tries < TRIES) continue;
        if (/^CF\d{3}$/.test(code)) throw new Refusal(Number(code.slice(2)), (error as Error).message);
        if (code === DISK_FULL) throw noRoom();
        throw error;
      }
    }
  }

  /** The only row, or undefined. */
  async row<T>(text: string, ...values: readonly unknown[]): Promise<T | undefined> {
    return (await this.rows<T>(text, ...values))[0];
  }

  /** The only row of a statement that always has one. */
  async one<T>(text: string, ...values: readonly unknown[]): Promise<T> {
    const row = await this.row<T>(text, ...values);
    if (row === undefined) throw new Error(`no row: ${text}`);
    return row;
  }
}

function migration(text: string, number: number): string {
  return `
    IF NOT EXISTS (SELECT FROM schema_version WHERE schema_version.number >= ${number}) THEN
      EXECUTE $text${number}$ ${text} $text${number}$;
      DELETE FROM schema_version;
      INSERT INTO schema_version VALUES (${number});
    END IF;`;
}

const CONNECTIONS_MAX = 16;
const CONNECT_MS_MAX = 10_000;
const IDLE_MS = 30_000;
const MIGRATION_LOCK = 6_387_250;
/** Of a deadlock or an unserializable change (https://www.postgresql.org/docs/15/mvcc-serialization-failure-handling.html). */
const REPEATED = new Set(['40001', '40P01']);
const TRIES = 5;
const DISK_FULL = '53100';
/** The oid of bigint and of count(). */
const INT8 = 20;

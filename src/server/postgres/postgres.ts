import { hash } from 'node:crypto';
import { StorageError } from '../../base/errors.ts';
import { noRoom, Refusal } from '../refusal.ts';
import { loadPostgres, type Pool, type Statement } from './postgres-library.ts';
import { MIGRATIONS } from './schema.ts';

/**
 * The database of several servers. Each call is one statement and so one transaction, and sessions have no state but kept plans. So a
 * pooler in transaction mode may be between.
 */
export class Postgres {
  readonly #pool: Pool;
  readonly #names = new Map<string, string>();
  /** False behind a pooler that does not know the names of statements. */
  #keepsPlans = true;

  private constructor(pool: Pool) {
    this.#pool = pool;
  }

  /** @throws UsageError if the package for PostgreSQL is not installed */
  static async open(
    url: string,
    options: { connectionsMax?: number; connectMsMax?: number; answerMsMax?: number } = {},
  ): Promise<Postgres> {
    const { Pool, types } = await loadPostgres();
    const pool = new Pool({
      connectionString: url,
      max: options.connectionsMax ?? CONNECTIONS_MAX,
      connectionTimeoutMillis: options.connectMsMax ?? CONNECT_MS_MAX,
      query_timeout: options.answerMsMax ?? ANSWER_MS_MAX,
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

  /**
   * Brings the schema up to date: any number of servers may start together. Statements of later sessions have a time limit.
   * @throws StorageError for the schema of a newer program, and if the database cannot be used
   */
  async migrate(): Promise<void> {
    try {
      await this.#pool.query(`
        BEGIN;
        SET LOCAL statement_timeout = 0;
        DO $migrate$ BEGIN
          PERFORM pg_advisory_xact_lock(${MIGRATION_LOCK});
          CREATE TABLE IF NOT EXISTS schema_version (number integer NOT NULL);
          IF EXISTS (SELECT FROM schema_version WHERE number > ${MIGRATIONS.length}) THEN
            RAISE EXCEPTION USING ERRCODE = '${NEWER}', MESSAGE = 'newer';
          END IF;
          ${MIGRATIONS.map((text, at) => migration(text, at + 1)).join('\n')}
          EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I SET statement_timeout = ${STATEMENT_MS_MAX}', current_database());
        END $migrate$;
        COMMIT;`);
    } catch (error) {
      throw unusable(error as Error) ?? error;
    }
  }

  /** Whether the database answers. */
  async answers(): Promise<boolean> {
    try {
      await this.rows('SELECT 1');
      return true;
    } catch {
      return false;
    }
  }

  /**
   * The rows of one statement. Repeated if it lost against another transaction; its effect is then none.
   * @throws Refusal of the rule, 507 if the database's disk is full, or 503 if the database does not answer: then the
   *   effect is unknown
   */
  rows<T>(text: string, ...values: readonly unknown[]): Promise<T[]> {
    return this.#rows<T>({ text, values });
  }

  /** As `rows`, for the statements of most requests: each connection parses and plans them once, which takes as long as to run one. */
  async keptRows<T>(text: string, ...values: readonly unknown[]): Promise<T[]> {
    if (!this.#keepsPlans) return this.#rows<T>({ text, values });
    try {
      return await this.#rows<T>({ name: this.#nameOf(text), text, values });
    } catch (error) {
      if (!NOT_KEPT.has(String((error as { code?: unknown }).code))) throw error;
      // It was not run.
      this.#keepsPlans = false;
      return this.#rows<T>({ text, values });
    }
  }

  /** Equal for all servers, and different for other texts: behind a pooler, a connection may know the name from another server. */
  #nameOf(text: string): string {
    const name =
      this.#names.get(text) ?? `${hash('sha256', text, 'hex').slice(0, 16)} ${text}`.slice(0, NAME_BYTES_MAX);
    this.#names.set(text, name);
    return name;
  }

  async #rows<T>(statement: Statement): Promise<T[]> {
    for (let tries = 1; ; tries += 1) {
      try {
        return (await this.#pool.query(statement)).rows as T[];
      } catch (error) {
        const code = String((error as { code?: unknown }).code);
        if (REPEATED.has(code) && tries < TRIES) continue;
        if (/^CF\d{3}$/.test(code)) throw refusal(code, error as SqlError);
        if (code === DISK_FULL) throw noRoom();
        if (isPassing(code, error as Error)) throw notAnswering(error);
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

interface SqlError extends Error {
  readonly detail?: string;
}

/** `detail` of a 416: the bytes that are stored. */
function refusal(code: string, { message, detail }: SqlError): Refusal {
  const status = Number(code.slice(2));
  return new Refusal(status, message, status === 416 ? { 'Content-Range': `bytes */${detail ?? 0}` } : {});
}

/**
 * Of no connection, a lost one, a database that is stopping or starting, and of a statement or a lock that took too long or lost
 * too often.
 */
function isPassing(code: string, { message }: Error): boolean {
  return REPEATED.has(code) || /^(08\w{3}|57\w{3}|53300|55P03|25006|E[A-Z]+)$/.test(code) || LOST.test(message);
}

/** What an operator must change before a server can start. */
function unusable(error: Error): StorageError | null {
  const { code = '' } = error as { code?: string };
  if (code === NEWER)
    return new StorageError('a newer cfs serve has changed the database: install that version here too');
  // Without a message if all addresses of a name refused.
  const reason = error.message || code;
  if (REFUSED.test(code)) return new StorageError(`the database refuses this server: ${reason}`);
  if (isPassing(code, error)) return new StorageError(`the database does not answer: ${reason}`);
  return null;
}

function notAnswering(cause: unknown): Refusal {
  return new Refusal(503, 'The database does not answer', { 'Retry-After': '5' }, { cause });
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
/** The client's messages without a code (pg 8.23, `lib/client.js` and `pg-pool`). */
const LOST = /^(Connection terminated|Client has encountered a connection error|timeout exceeded|Query read timeout)/;
const NEWER = 'CFNEW';
/** Of a role or password, of a database that does not exist, and of missing privileges. */
const REFUSED = /^(28\w{3}|3D000|42501)$/;
const STATEMENT_MS_MAX = 30_000;
/** For a database that is gone without a word. */
const ANSWER_MS_MAX = 40_000;
const CONNECT_MS_MAX = 10_000;
const IDLE_MS = 30_000;
const MIGRATION_LOCK = 6_387_250;
/** Of a deadlock or an unserializable change (https://www.postgresql.org/docs/15/mvcc-serialization-failure-handling.html). */
const REPEATED = new Set(['40001', '40P01']);
const TRIES = 5;
const DISK_FULL = '53100';
/**
 * Of a statement that another connection has parsed, or already this one: behind a pooler. And of a table that has other columns since
 * the plan was made.
 */
const NOT_KEPT = new Set(['26000', '42P05', '0A000']);
/** NAMEDATALEN - 1. */
const NAME_BYTES_MAX = 63;
/** The oid of bigint and of count(). */
const INT8 = 20;

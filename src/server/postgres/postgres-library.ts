import { createRequire } from 'node:module';
import { UsageError } from '../../base/errors.ts';
import { PICTURE_DIRECTORY } from '../picture-library.ts';

/** `pg`, the client of PostgreSQL. No package of ours contains it: only `cfs serve --database` uses it. Found like `sharp`. */

export const POSTGRES_PACKAGE = 'pg@8.23.1';

/** The part of pg that is used. */
export interface PostgresLibrary {
  readonly Pool: new (options: PoolOptions) => Pool;
}

export interface PoolOptions {
  readonly connectionString: string;
  readonly max: number;
  readonly connectionTimeoutMillis: number;
  /** The client gives up after this long. */
  readonly query_timeout: number;
  readonly idleTimeoutMillis: number;
  readonly types: { getTypeParser(oid: number, format?: string): (text: string) => unknown };
}

/** One with a name is parsed and planned once in each connection. */
export interface Statement {
  readonly name?: string;
  readonly text: string;
  readonly values?: readonly unknown[];
}

export interface Pool {
  query(statement: Statement | string): Promise<{ readonly rows: unknown[] }>;
  on(event: 'error', listener: (error: Error) => void): unknown;
  end(): Promise<void>;
}

interface WholeLibrary extends PostgresLibrary {
  readonly types: PoolOptions['types'];
}

/** @throws UsageError if the package is not installed */
export async function loadPostgres(directory: string = PICTURE_DIRECTORY): Promise<WholeLibrary> {
  // A variable, so that the compiler does not resolve the optional package.
  const name: string = 'pg';
  try {
    return ((await import(name)) as { default: WholeLibrary }).default;
  } catch {
    try {
      return createRequire(`${directory}/`)('pg') as WholeLibrary;
    } catch {
      const command = `sudo npm install --prefix ${directory} ${POSTGRES_PACKAGE}`;
      throw new UsageError(`the package for PostgreSQL is not installed. Run: ${command}`);
    }
  }
}

import { StorageError } from '../../base/errors.ts';
import { type ObjectStore, StoreError } from '../object-store.ts';
import type { Postgres } from './postgres.ts';

/**
 * Checks that database and object store belong together and to this origin; the first call decides it.
 * @throws StorageError for another origin or another store, and for a store that refuses
 */
export async function claimInstallation(postgres: Postgres, store: ObjectStore, origin: string): Promise<void> {
  await postgres.rows('INSERT INTO installation (origin) VALUES ($1) ON CONFLICT DO NOTHING', origin);
  const known = await postgres.one<{ id: string; origin: string }>('SELECT id, origin FROM installation');
  if (known.origin !== origin)
    throw new StorageError(`the database belongs to ${known.origin}: give --public-origin ${known.origin}`);
  await claimStore(postgres, store, known.id);
}

/** As `claimStore` of a data directory, for all servers of an installation. */
async function claimStore(postgres: Postgres, store: ObjectStore, id: string): Promise<void> {
  try {
    const found = await store.readText(MARKER);
    if (found !== null && found !== id)
      throw new StorageError(`${store.name} belongs to another installation: give another bucket or prefix`);
    if (found === null && (await postgres.row("SELECT FROM objects WHERE state = 'live' LIMIT 1")) !== undefined)
      throw new StorageError(`${store.name} has no objects of these data: give --objects as at the last start`);
    if (found === null) await store.writeText(MARKER, id);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    throw new StorageError(`${store.name} cannot be used: ${error.message}`, { cause: error });
  }
}

/** The same object as of a server on one machine. */
const MARKER = 'cfs-serve-installation';

/** The installation from which an interrupted copy into this database came. Its table exists until the copy is complete. */
export async function unfinishedCopyOf(postgres: Postgres): Promise<string | null> {
  if (!(await hasTable(postgres, UNFINISHED_COPY))) return null;
  return (await postgres.row<{ source: string }>(`SELECT source FROM ${UNFINISHED_COPY}`))?.source ?? null;
}

export async function hasTable(postgres: Postgres, name: string): Promise<boolean> {
  return (await postgres.one<{ is: boolean }>('SELECT to_regclass($1) IS NOT NULL AS is', name)).is;
}

/** @throws StorageError */
export async function refuseUnfinishedCopy(postgres: Postgres): Promise<void> {
  if (await hasTable(postgres, UNFINISHED_COPY))
    throw new StorageError('a copy into this database was interrupted: repeat its cfs serve copy');
}

export const UNFINISHED_COPY = 'unfinished_copy';

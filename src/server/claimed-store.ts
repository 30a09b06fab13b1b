import { randomUUID } from 'node:crypto';
import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Database } from './database.ts';
import { type ObjectStore, StoreError } from './object-store.ts';

/** An object with the id of the installation, so that a wrong bucket is noticed before anything is read from it. */
const MARKER = 'cfs-serve-installation';

/**
 * Checks that the object store is the one of these data; the first start with a store claims it. A store that does not
 * answer does not prevent a later start: new data stay on the disk until it does.
 *
 * @throws StorageError for another store, for none if the data need one, and for a store that refuses
 */
export async function claimStore(database: Database, store: ObjectStore | null, log: Logger): Promise<void> {
  const known = database.storeId;
  if (store === null) {
    if (database.objects.size === 0) return;
    throw new StorageError('a part of these data is in an object store: give --objects as at the last start');
  }
  try {
    const found = await store.readText(MARKER);
    if (known !== null && found === known) return;
    if (found !== null)
      throw new StorageError(`${store.name} belongs to another installation: give another bucket or prefix`);
    if (database.objects.size > 0)
      throw new StorageError(`${store.name} has no objects of these data: give --objects as at the last start`);
    const id = known ?? randomUUID();
    database.change(() => database.keepStoreId(id));
    await store.writeText(MARKER, id);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (known === null || !error.isPassing)
      throw new StorageError(`${store.name} cannot be used: ${error.message}`, { cause: error });
    log.warn({ err: error }, 'the object store does not answer; new data stay on the disk until it does');
  }
}

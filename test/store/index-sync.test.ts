import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { RootDatabase } from 'lmdb';
import { expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { openIndex } from '../../src/store/index-file.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

/** What was done, in order: a batch, or how many bytes of LMDB's file were written beside LMDB. */
const done: (number | string)[] = [];
let isFailing = false;

/** LMDB on a disk whose fdatasync(2) fails once, and says nothing the next time (fsync(2)): the commit is there, and is said not to be. */
function openFailing(path: string): RootDatabase<Buffer, Buffer> {
  const index = openIndex(path);
  const batch = async (action: () => void): Promise<boolean> => {
    done.push('batch');
    const result = await index.batch(action);
    if (!isFailing) return result;
    isFailing = false;
    throw new Error('Input/output error');
  };
  return new Proxy(index, {
    get: (target, name) => {
      if (name === 'batch') return batch;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** As the system's, and notes what is written to LMDB's file. */
function watchedDisk(): Disk {
  let index = -1;
  return {
    ...systemDisk,
    open: (path, how) => {
      const fd = systemDisk.open(path, how);
      if (path.endsWith('data.mdb')) index = fd;
      return fd;
    },
    writeLater: async (fd, bytes, position) => {
      if (fd === index) done.push(bytes.byteLength);
      await systemDisk.writeLater(fd, bytes, position);
    },
  };
}

test('what LMDB committed and could not sync is written to the disk again before anything is committed behind it', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory, { openIndex: openFailing, disk: watchedDisk() });
  for (let n = 0; n < 200; n++) store.transact((tx) => tx.put('meta', `row ${n}`, 'x'.repeat(1500)));
  await store.drain();
  done.length = 0;

  isFailing = true;
  store.transact((tx) => tx.put('meta', 'late', 1));
  await expect(store.drain()).rejects.toThrow(StorageError);
  const sizeBytes = statSync(join(directory, 'index', 'data.mdb')).size;
  await store.drain();

  const written = done.filter((what) => typeof what === 'number').reduce((sum, bytes) => sum + bytes, 0);
  expect(written).toBe(sizeBytes);
  expect([done[0], done.at(-1)]).toEqual(['batch', 'batch']);
  expect(done.filter((what) => what === 'batch')).toHaveLength(2);
  // Once: it is not in doubt any more.
  store.transact((tx) => tx.put('meta', 'later', 2));
  await store.drain();
  expect(done.slice(-2)).toEqual(['batch', 'batch']);
  await store.close();

  const again = await stores.open(directory);
  for (let n = 0; n < 200; n++) expect(again.get('meta', `row ${n}`)).toBe('x'.repeat(1500));
  expect([again.get('meta', 'late'), again.get('meta', 'later')]).toEqual([1, 2]);
});

test('a commit that is not there needs nothing of the kind', async () => {
  const store = await stores.open(undefined, { openIndex: openRefusing, disk: watchedDisk() });
  await store.drain();
  done.length = 0;

  isFailing = true;
  store.transact((tx) => tx.put('meta', 'late', 1));
  await expect(store.drain()).rejects.toThrow(StorageError);
  await store.drain();

  expect(done).toEqual(['refused', 'batch']);
});

/** LMDB on a disk that does not take a page. */
function openRefusing(path: string): RootDatabase<Buffer, Buffer> {
  const index = openFailing(path);
  return new Proxy(index, {
    get: (target, name) => {
      if (name !== 'batch' || !isFailing) return Reflect.get(target, name, target);
      return async () => {
        done.push('refused');
        isFailing = false;
        throw new Error('Input/output error');
      };
    },
  });
}

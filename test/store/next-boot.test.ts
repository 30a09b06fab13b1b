import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
/** Half of LMDB's first page: there it says what it has flushed, behind what it has committed (`mdb_env_write_meta` in its mdb.c). */
const FLUSHED = { at: 2048, length: 2048 };

afterEach(() => {
  vi.unstubAllEnvs();
});

test('what a start after SIGKILL found committed is there on the next boot as well, also where that start changed nothing', async () => {
  const directory = stores.directory();
  const index = (store: string) => join(store, 'index', 'data.mdb');
  const store = await stores.open(directory);
  store.transact((tx) => tx.put('meta', 'early', 1));
  await store.settle();
  const before = Buffer.alloc(FLUSHED.length);
  const fd = openSync(index(directory), 'r');
  readSync(fd, before, 0, before.byteLength, FLUSHED.at);
  closeSync(fd);
  store.transact((tx) => tx.put('meta', 'late', 2));
  await store.sync();
  await store.settle();

  // SIGKILL between LMDB's commit and the end of its sync.
  const killed = stores.copyOf(directory);
  const patched = openSync(index(killed), 'r+');
  writeSync(patched, before, 0, before.byteLength, FLUSHED.at);
  closeSync(patched);
  const idle = await stores.open(killed);
  expect(idle.get('meta', 'late')).toBe(2);
  await idle.close();

  // LMDB tells by the boot id, which is the same here: as after another boot.
  vi.stubEnv('LMDB_RESTORE', 'safe');
  const later = await stores.open(killed);
  expect(later.get('meta', 'early')).toBe(1);
  expect(later.get('meta', 'late')).toBe(2);
});

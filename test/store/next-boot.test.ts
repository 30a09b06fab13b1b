import { closeSync, openSync, readSync, rmSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { openIndex } from '../../src/store/index-file.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const MIB = 1024 * 1024;
/** Half of LMDB's first page: there it says what it has flushed, behind what it has committed (`mdb_env_write_meta` in its mdb.c). */
const FLUSHED = { at: 2048, length: 2048 };

afterEach(() => {
  vi.unstubAllEnvs();
});

const index = (store: string) => join(store, 'index', 'data.mdb');

/** What LMDB says it has flushed. */
function flushedBy(store: string): Buffer {
  const bytes = Buffer.alloc(FLUSHED.length);
  const fd = openSync(index(store), 'r');
  readSync(fd, bytes, 0, bytes.byteLength, FLUSHED.at);
  closeSync(fd);
  return bytes;
}

/** The store as SIGKILL leaves it between LMDB's commit and the end of its sync. */
function killedBeforeFlush(store: string, flushed: Buffer): string {
  const killed = stores.copyOf(store);
  const fd = openSync(index(killed), 'r+');
  writeSync(fd, flushed, 0, flushed.byteLength, FLUSHED.at);
  closeSync(fd);
  return killed;
}

/** LMDB tells by the boot id, which is the same here. */
function asOnAnotherBoot(): void {
  vi.stubEnv('LMDB_RESTORE', 'safe');
}

test('what a start after SIGKILL found committed is there on the next boot as well, also where that start changed nothing', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  store.transact((tx) => tx.put('meta', 'early', 1));
  await store.drain();
  const before = flushedBy(directory);
  store.transact((tx) => tx.put('meta', 'late', 2));
  await store.sync();
  await store.drain();

  const killed = killedBeforeFlush(directory, before);
  const idle = await stores.open(killed);
  expect(idle.get('meta', 'late')).toBe(2);
  await idle.close();

  asOnAnotherBoot();
  const later = await stores.open(killed);
  expect(later.get('meta', 'early')).toBe(1);
  expect(later.get('meta', 'late')).toBe(2);
});

test('a store that was killed in the first commit of its index keeps on the disk what is put into it later', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  await store.drain();

  const killed = killedBeforeFlush(directory, Buffer.alloc(FLUSHED.length));
  asOnAnotherBoot();
  const next = await stores.open(killed);
  for (let n = 0; n < 5; n++) {
    next.transact((tx) => tx.put('meta', `${n}`, n));
    await next.drain();
  }
  expect(statSync(index(killed)).size).toBeLessThan(MIB);
  // The journal has let go of what LMDB has flushed.
  const cut = stores.copyOf(killed);
  rmSync(join(cut, 'journal'), { recursive: true });
  const later = await stores.open(cut);
  for (let n = 0; n < 5; n++) expect(later.get('meta', `${n}`)).toBe(n);
});

/** LMDB, and the number that it gives the state of an index that was killed in its first commit. */
function openNumberedBelowZero(path: string): ReturnType<typeof openIndex> {
  const index = openIndex(path);
  const { env } = index as unknown as { env: { info(): { lastPageNumber: number } } };
  const numbered = { info: () => ({ lastPageNumber: env.info().lastPageNumber, lastTxnId: 2 ** 64 - 1 }) };
  return new Proxy(index, {
    get: (target, name) => {
      if (name === 'env') return numbered;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

// LMDB itself is not brought there: what it does with a number below 0 may end the process.
test('a start keeps the rows that an earlier version of the program stored', async () => {
  const directory = stores.directory();
  const earlier = await stores.open(directory);
  earlier.transact((tx) => tx.put('meta', 'early', 1));
  await earlier.close();
  rmSync(join(directory, 'journal'), { recursive: true });

  const later = await stores.open(directory, { openIndex: openNumberedBelowZero });
  expect(later.get('meta', 'early')).toBe(1);
});

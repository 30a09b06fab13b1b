import { execFileSync } from 'node:child_process';
import { closeSync, openSync, truncateSync, unlinkSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import type { ContentId } from '../../src/base/vocabulary.ts';
import type { Store } from '../../src/store/environment.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
let mounted: string[] = [];

afterEach(() => {
  for (const directory of mounted) execFileSync('umount', ['-l', directory]);
  mounted = [];
});

function smallDisk(megabytes: number): string {
  const directory = stores.directory();
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', directory]);
  mounted.push(directory);
  return directory;
}

function fill(path: string): void {
  const fd = openSync(path, 'w');
  try {
    for (const chunk of [1024 * 1024, 4096, 512]) {
      try {
        for (;;) writeSync(fd, new Uint8Array(chunk));
      } catch {
        // as full as it gets with pieces of this length
      }
    }
  } finally {
    closeSync(fd);
  }
}

/** Emptied first: a child that another test starts may have the file until its exec(2), and as long it takes its room. */
function makeRoom(path: string): void {
  truncateSync(path);
  unlinkSync(path);
}

function put(store: Store, id: number): void {
  store.transact((tx) => tx.put('inline', id as ContentId, new Uint8Array(2000).fill(id)));
}

function isIntact(store: Store, id: number): boolean {
  const bytes = store.get('inline', id as ContentId);
  return bytes instanceof Uint8Array && bytes.byteLength === 2000 && bytes[1000] === id % 256;
}

// LMDB says EIO for a full disk and rejects promises that nobody holds: vitest fails the run for any of those.
testUnless(missingRoot())('a full disk refuses new changes as full, keeps what was accepted, and heals', async () => {
  const directory = smallDisk(12);
  const store = await stores.open(directory, { segmentBytes: 1024 * 1024 });
  let accepted = 0;
  for (; accepted < 200; accepted++) put(store, accepted + 1);
  await store.settle();

  const ballast = join(directory, 'ballast');
  fill(ballast);
  let refusal: unknown = null;
  for (let step = 0; refusal === null && step < 3000; step++) {
    try {
      put(store, accepted + 1);
      accepted++;
    } catch (error) {
      refusal = error;
    }
    if (step % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  expect(refusal).toBeInstanceOf(StorageError);
  expect((refusal as StorageError).full).toBe(true);
  for (let id = 1; id <= accepted; id++) expect(isIntact(store, id), `value ${id}, disk full`).toBe(true);

  // As SIGKILL would leave it; then there is room again.
  const copy = stores.copyOf(directory);
  makeRoom(join(copy, 'ballast'));
  makeRoom(ballast);
  const crashed = await stores.open(copy);
  for (let id = 1; id <= accepted; id++) expect(isIntact(crashed, id), `value ${id}, after a crash`).toBe(true);

  await expect.poll(() => tryPut(store, accepted + 1), { timeout: 10_000, interval: 50 }).toBe(true);
  await store.settle();
  await store.close();
  const again = await stores.open(directory);
  for (let id = 1; id <= accepted + 1; id++) expect(isIntact(again, id), `value ${id}, healed`).toBe(true);
});

testUnless(missingRoot())(
  'a store closes on a full disk, and what it accepted is there when it opens with room',
  async () => {
    const directory = smallDisk(12);
    const store = await stores.open(directory, { segmentBytes: 1024 * 1024 });
    for (let id = 1; id <= 20; id++) put(store, id);
    await store.settle();
    fill(join(directory, 'ballast'));
    for (let id = 21; id <= 200; id++) put(store, id);

    await store.close();

    makeRoom(join(directory, 'ballast'));
    const again = await stores.open(directory);
    for (let id = 1; id <= 200; id++) expect(isIntact(again, id), `value ${id}`).toBe(true);
  },
);

function tryPut(store: Store, id: number): boolean {
  try {
    put(store, id);
    return true;
  } catch (error) {
    expect(error).toBeInstanceOf(StorageError);
    return false;
  }
}

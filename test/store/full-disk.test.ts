import { execFileSync } from 'node:child_process';
import {
  closeSync,
  cpSync,
  mkdtempSync,
  openSync,
  rmdirSync,
  rmSync,
  statfsSync,
  truncateSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import type { Store } from '../../src/store/environment.ts';
import { FAST_DISK } from '../harness/fast-disk.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';
import { TemporaryStores } from './temporary-store.ts';

let mounted: string[] = [];

// Declared before `stores`, so that it runs after every store is closed: a store whose disk is gone would ask the one below it for room.
afterEach(() => {
  for (const directory of mounted) {
    execFileSync('umount', ['-l', directory]);
    rmdirSync(directory);
  }
  mounted = [];
});
const stores = new TemporaryStores();

function smallDisk(megabytes: number): string {
  const directory = mkdtempSync(join(FAST_DISK, 'cfs-small-'));
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
  await store.drain();

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
  await store.drain();
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
    await store.drain();
    fill(join(directory, 'ballast'));
    for (let id = 21; id <= 200; id++) put(store, id);

    await store.close();

    makeRoom(join(directory, 'ballast'));
    const again = await stores.open(directory);
    for (let id = 1; id <= 200; id++) expect(isIntact(again, id), `value ${id}`).toBe(true);
  },
);

/** A store of 200 values as SIGKILL leaves it, on a disk that is then filled to its last byte. */
async function killedOnFullDisk(): Promise<{ directory: string; ballast: string }> {
  const origin = stores.directory();
  const store = await stores.open(origin, { segmentBytes: 1024 * 1024 });
  for (let id = 1; id <= 100; id++) put(store, id);
  await store.drain();
  for (let id = 101; id <= 200; id++) put(store, id);
  const directory = smallDisk(12);
  cpSync(origin, directory, { recursive: true });
  // The next journal file is there where the disk has room for it: a small disk has not.
  rmSync(join(directory, 'journal', 'spare'), { force: true });
  const ballast = join(directory, 'ballast');
  fill(ballast);
  expect(statfsSync(directory).bavail).toBe(0);
  return { directory, ballast };
}

function missingOf(store: Store): number[] {
  return Array.from({ length: 200 }, (_, index) => index + 1).filter((id) => !isIntact(store, id));
}

testUnless(missingRoot())(
  'a start on a full disk has every closed file, accepts deletions and ends in order, repeatedly',
  async () => {
    const { directory, ballast } = await killedOnFullDisk();

    for (const round of [1, 2, 3]) {
      const store = await stores.open(directory, { segmentBytes: 1024 * 1024 });
      expect(missingOf(store)).toEqual(Array.from({ length: round - 1 }, (_, index) => index + 1));
      store.transact((tx) => tx.remove('inline', round as ContentId));
      expect(missingOf(store)).toContain(round);
      await store.close();
      // What the end gives back is somebody else's at once.
      fill(join(directory, `ballast-${round}`));
    }

    makeRoom(ballast);
    const store = await stores.open(directory, { segmentBytes: 1024 * 1024 });
    expect(missingOf(store)).toEqual([1, 2, 3]);
    put(store, 1);
    await store.drain();
    expect(missingOf(store)).toEqual([2, 3]);
  },
);

testUnless(missingRoot())(
  'after a start on a full disk, other changes leave the room that deletions need',
  async () => {
    const { directory, ballast } = await killedOnFullDisk();
    const store = await stores.open(directory, { segmentBytes: 1024 * 1024 });
    // What pushes record: the index takes some of it, until it finds no room either.
    let refused = 0;
    for (let id = 1000; refused < 20; id++) {
      if (!tryPut(store, id)) {
        refused++;
        await new Promise((resolve) => setImmediate(resolve));
      }
    }

    for (let id = 1; id <= 50; id++) store.transact((tx) => tx.remove('inline', id as ContentId), 'freeing');

    expect(missingOf(store)).toEqual(Array.from({ length: 50 }, (_, index) => index + 1));
    await store.close();
    makeRoom(ballast);
    const again = await stores.open(directory, { segmentBytes: 1024 * 1024 });
    expect(missingOf(again)).toEqual(Array.from({ length: 50 }, (_, index) => index + 1));
  },
);

testUnless(missingRoot())(
  'a start on a full disk without reserved space refuses changes until there is space',
  async () => {
    const { directory, ballast } = await killedOnFullDisk();
    // Room for the lock of the owner alone.
    truncateSync(join(directory, 'start-room'), 4096);
    fill(join(directory, 'ballast-2'));
    expect(statfsSync(directory).bavail).toBe(0);

    const store = await stores.open(directory, { segmentBytes: 1024 * 1024 });
    expect(missingOf(store)).toEqual([]);
    expect(tryPut(store, 201)).toBe(false);

    makeRoom(ballast);
    expect(tryPut(store, 201)).toBe(true);
  },
);

testUnless(missingRoot())('a second start on a full disk is told who has the store', async () => {
  const directory = smallDisk(12);
  await stores.open(directory, { segmentBytes: 1024 * 1024 });
  rmSync(join(directory, 'start-room'));
  fill(join(directory, 'ballast'));

  await expect(stores.open(directory)).rejects.toMatchObject({
    exitCode: 5,
    message: expect.stringContaining('in use'),
  });
});

test('what was learnt while no record could be written is seen, and is recorded with the next change', async () => {
  const directory = stores.directory();
  let isRefusing = false;
  const write: Disk['write'] = (...args) => {
    if (isRefusing) throw new StorageError('write failed: EROFS');
    systemDisk.write(...args);
  };
  const store = await stores.open(directory, { disk: { ...systemDisk, write } });
  put(store, 1);
  isRefusing = true;
  store.transact((tx) => tx.put('inline', 2 as ContentId, new Uint8Array(2000).fill(2)), 'learnt');
  store.transact((tx) => tx.remove('inline', 1 as ContentId), 'learnt');

  expect(() => put(store, 3)).toThrow(StorageError);
  expect([1, 2, 3].filter((id) => isIntact(store, id))).toEqual([2]);

  isRefusing = false;
  put(store, 4);
  const killed = await stores.open(stores.copyOf(directory));
  expect([1, 2, 3, 4].filter((id) => isIntact(killed, id))).toEqual([2, 4]);
  await store.drain();
  expect([1, 2, 3, 4].filter((id) => isIntact(store, id))).toEqual([2, 4]);
});

function tryPut(store: Store, id: number): boolean {
  try {
    put(store, id);
    return true;
  } catch (error) {
    expect(error).toBeInstanceOf(StorageError);
    return false;
  }
}

import { renameSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { FsError, StorageError } from '../../src/base/errors.ts';
import { createLogger } from '../../src/base/log.ts';
import { NativeFiles } from '../../src/base/native.ts';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import type { Store } from '../../src/store/environment.ts';
import type { ChangeKind } from '../../src/store/tables.ts';
import { missingAddon, testUnless } from '../harness/requirement.ts';
import { watchUnhandled } from '../harness/unhandled.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { RefusingIndex } from './refusing-index.ts';
import { TemporaryStores } from './temporary-store.ts';

const missing = missingAddon();

/** What happens while LMDB cannot take over what the journal accepted. */

const SEGMENT_BYTES = 256 * 1024;
const LONG_BYTES = 20_000;
/** LMDB's map before it has grown. */
const FIRST_MAP_BYTES = 128 * 1024;

const stores = new TemporaryStores();
const systemFiles = missing === null ? new NativeFiles() : (null as unknown as NativeFiles);

function put(store: Store, id: number, length: number, kind?: ChangeKind): void {
  store.transact((tx) => tx.put('inline', id as ContentId, new Uint8Array(length).fill(id)), kind);
}

function refusalOf(store: Store, id: number, length: number): unknown {
  try {
    put(store, id, length);
    return null;
  } catch (error) {
    return error;
  }
}

/** Ids up to `last` whose bytes are not those that were put. */
function lost(store: Store, last: number): number[] {
  return Array.from({ length: last }, (_, index) => index + 1).filter((id) => {
    const bytes = store.get('inline', id as ContentId);
    return !(bytes instanceof Uint8Array) || bytes.at(0) !== id % 256 || bytes.at(-1) !== id % 256;
  });
}

async function until(clock: ManualClock, condition: () => boolean): Promise<void> {
  const passing = (): boolean => {
    clock.advance(1_000);
    return condition();
  };
  await expect.poll(passing, { interval: 5 }).toBe(true);
}

/** As LMDB says it: of its map; by strerror(3), of a file system's quota. */
test.skipIf(missing !== null).each(['MDB_MAP_FULL: Environment mapsize limit reached', 'Disk quota exceeded'])(
  '%s: the journal takes changes for as long as it has room, those that free space to the end, and nothing is lost',
  async (message) => {
    const index = new RefusingIndex();
    index.message = message;
    const clock = new ManualClock();
    const directory = stores.directory();
    let isFull = false;
    const noRoom = (): never => {
      throw new StorageError('no room', { full: true });
    };
    const disk: Disk = {
      ...systemDisk,
      allocate: async (path, sizeBytes) => (isFull ? noRoom() : systemDisk.allocate(path, sizeBytes)),
      reserve: (fd, sizeBytes) => (isFull ? noRoom() : systemDisk.reserve(fd, sizeBytes)),
    };
    const store = await stores.open(directory, { clock, disk, segmentBytes: SEGMENT_BYTES, openIndex: index.open });
    await store.drain();
    index.rowsMax = 0;
    isFull = true;
    let last = 0;
    put(store, ++last, LONG_BYTES);
    await until(clock, () => index.refused > 0);

    let refusal: unknown = null;
    for (; refusal === null; last += refusal === null ? 1 : 0) refusal = refusalOf(store, last + 1, LONG_BYTES);
    expect(refusal).toBeInstanceOf(StorageError);
    expect(refusal).toMatchObject({ full: true });
    expect(last * LONG_BYTES).toBeGreaterThan(SEGMENT_BYTES / 2);
    // More of them than a long one would have taken.
    for (let more = 0; more < (1.1 * LONG_BYTES) / 200; more++) put(store, ++last, 200, 'freeing');
    expect(lost(store, last)).toEqual([]);
    // As SIGKILL would leave it.
    expect(lost(await stores.open(stores.copyOf(directory)), last)).toEqual([]);

    index.rowsMax = Number.POSITIVE_INFINITY;
    isFull = false;
    await until(clock, () => refusalOf(store, last + 1, LONG_BYTES) === null);
    await until(clock, () => store.pressure() === 0);
    await store.close();
    expect(lost(await stores.open(directory), last + 1)).toEqual([]);
  },
);

testUnless(missing)(
  'a start transfers no record to LMDB before the journal has its file, whose space LMDB would take',
  async () => {
    const refusing = new RefusingIndex();
    const directory = stores.directory();
    const before = await stores.open(directory, { clock: new ManualClock(), openIndex: refusing.open });
    refusing.rowsMax = 0;
    for (let id = 1; id <= 600; id++) put(before, id, 100);
    const left = stores.copyOf(directory);
    const index = new RefusingIndex();
    const clock = new ManualClock();
    let asked = -1;
    const disk: Disk = {
      ...systemDisk,
      allocate: async (path, sizeBytes) => {
        clock.advance(1_000);
        await new Promise((resolve) => setImmediate(resolve));
        if (asked < 0) asked = index.asked;
        await systemDisk.allocate(path, sizeBytes);
      },
    };

    const store = await stores.open(left, { clock, disk, openIndex: index.open });

    expect(asked).toBe(0);
    await until(clock, () => store.pressure() === 0);
    expect(lost(store, 600)).toEqual([]);
    refusing.rowsMax = Number.POSITIVE_INFINITY;
  },
);

testUnless(missing)(
  'what little room there is takes a part of what waits: a batch that is refused is tried in smaller ones',
  async () => {
    const index = new RefusingIndex();
    const clock = new ManualClock();
    const store = await stores.open(stores.directory(), { clock, openIndex: index.open });
    await store.drain();
    index.rowsMax = 4;
    for (let id = 1; id <= 40; id++) put(store, id, 100);

    await until(clock, () => store.pressure() === 0);

    expect(index.refused).toBeGreaterThan(0);
    expect(lost(store, 40)).toEqual([]);
  },
);

testUnless(missing)('where LMDB fails for another reason nothing is taken, and reading goes on', async () => {
  const index = new RefusingIndex();
  index.message = 'MDB_CORRUPTED: Located page was wrong type';
  const clock = new ManualClock();
  const store = await stores.open(stores.directory(), { clock, openIndex: index.open });
  await store.drain();
  index.rowsMax = 0;
  put(store, 1, 100);
  await until(clock, () => index.refused > 0);

  expect(refusalOf(store, 2, 100)).toMatchObject({ full: false });
  expect(lost(store, 1)).toEqual([]);

  index.rowsMax = Number.POSITIVE_INFINITY;
  await until(clock, () => refusalOf(store, 2, 100) === null);
  expect(lost(store, 2)).toEqual([]);
});

testUnless(missing)(
  'where the disk is gone, LMDB fails as for another reason: nothing is taken, and it heals with the disk',
  async () => {
    const unhandled = watchUnhandled();
    const index = new RefusingIndex();
    index.message = 'Input/output error';
    const clock = new ManualClock();
    const directory = stores.directory();
    const away = `${directory}.away`;
    const lines: string[] = [];
    const log = createLogger({ level: 'error', destination: { write: (line) => void lines.push(line) } });
    const store = await stores.open(directory, { clock, openIndex: index.open, log });
    await store.drain();
    index.rowsMax = 0;
    put(store, 1, 100);
    renameSync(directory, away);
    try {
      await until(clock, () => index.refused > 1);
      await nextTurn();

      expect(unhandled).toEqual([]);
      expect(refusalOf(store, 2, 100)).toMatchObject({ full: false, cause: { message: index.message } });
      expect(lines.filter((line) => line.includes('index not written'))).toHaveLength(1);
      expect(lost(store, 1)).toEqual([]);
    } finally {
      renameSync(away, directory);
      index.rowsMax = Number.POSITIVE_INFINITY;
    }
    await until(clock, () => refusalOf(store, 2, 100) === null);
    expect(lost(store, 2)).toEqual([]);
  },
);

testUnless(missing)('the map of the index grows with it: what it held, and what is read meanwhile, stays', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory, { segmentBytes: 8 * 1024 * 1024 });
  let last = 0;
  for (let round = 0; round < 8; round++) {
    for (let more = 0; more < 100; more++) put(store, ++last, LONG_BYTES);
    await store.drain();
    expect(lost(store, last)).toEqual([]);
  }
  expect(statSync(join(directory, 'index', 'data.mdb')).size).toBeGreaterThan(100 * FIRST_MAP_BYTES);
  await store.close();
  expect(lost(await stores.open(directory), last)).toEqual([]);
});

/** As many seconds, in each of which LMDB would be asked again. */
async function manyRetries(clock: ManualClock): Promise<void> {
  for (let second = 0; second < 20; second++) {
    clock.advance(1_000);
    await nextTurn();
  }
}

describe('a disk with little room', () => {
  const LITTLE_BYTES = 8 * 1024 * 1024;

  testUnless(missing)('LMDB takes few rows at a time, of which each finds its block there', async () => {
    const index = new RefusingIndex();
    const clock = new ManualClock();
    const directory = stores.directory();
    const reserved: number[] = [];
    const room = {
      freeBytes: () => LITTLE_BYTES,
      reserve: (fd: number, offset: number, length: number) => {
        systemFiles.allocate(fd, offset, length, 'keep-size');
        reserved.push(offset + length);
      },
    };
    const store = await stores.open(directory, { clock, openIndex: index.open, indexRoom: room });
    await store.drain();
    const before = index.asked;
    for (let id = 1; id <= 1_000; id++) put(store, id, id % 7 === 0 ? 3_000 : 100);

    await until(clock, () => store.pressure() === 0);

    expect(index.asked - before).toBeGreaterThanOrEqual(1_000 / 64);
    expect(reserved.length).toBeGreaterThan(1);
    const { size, blocks } = statSync(join(directory, 'index/data.mdb'));
    expect(Math.max(...reserved), 'no page lies behind what was reserved').toBeGreaterThanOrEqual(size);
    expect(blocks * 512, 'and none is a hole').toBeGreaterThanOrEqual(size);
    expect(lost(store, 1_000)).toEqual([]);
  });

  test.skipIf(missing !== null).each([
    ['the disk says so, which is not asked to reserve a part', 4096],
    ['it says so when it is asked: somebody else took it', LITTLE_BYTES],
  ])(
    'where not even those can be had LMDB is not asked, and has all when there is room again: %s',
    async (_, whenFull) => {
      const index = new RefusingIndex();
      const clock = new ManualClock();
      let isFull = false;
      let refused = 0;
      const room = {
        freeBytes: () => (isFull ? whenFull : LITTLE_BYTES),
        reserve: () => {
          if (!isFull) return;
          refused++;
          throw new FsError('ENOSPC');
        },
      };
      const store = await stores.open(stores.directory(), { clock, openIndex: index.open, indexRoom: room });
      await store.drain();
      isFull = true;
      const before = index.asked;
      // More than was reserved for the few rows of a new store.
      put(store, 1, 500_000);
      await manyRetries(clock);
      expect(index.asked).toBe(before);
      expect(refused > 0).toBe(whenFull === LITTLE_BYTES);
      expect(lost(store, 1)).toEqual([]);

      isFull = false;
      await until(clock, () => store.pressure() === 0);
      expect(index.asked).toBeGreaterThan(before);
      expect(lost(store, 1)).toEqual([]);
    },
  );

  testUnless(missing)('where a file system cannot reserve, what it says of its room has to do', async () => {
    const index = new RefusingIndex();
    const clock = new ManualClock();
    let freeBytes = LITTLE_BYTES;
    const room = {
      freeBytes: () => freeBytes,
      reserve: () => {
        throw new FsError('EOPNOTSUPP');
      },
    };
    const store = await stores.open(stores.directory(), { clock, openIndex: index.open, indexRoom: room });
    await store.drain();
    put(store, 1, 100);
    await until(clock, () => store.pressure() === 0);

    freeBytes = 4096;
    const before = index.asked;
    put(store, 2, 100);
    await manyRetries(clock);
    expect(index.asked).toBe(before);

    freeBytes = LITTLE_BYTES;
    await until(clock, () => store.pressure() === 0);
    expect(lost(store, 2)).toEqual([]);
  });
});

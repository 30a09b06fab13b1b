import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { BLOCK_BYTES, type ContentId, type ResourceUrl, type VersionUrl } from '../../src/base/vocabulary.ts';
import { checkBytes } from '../../src/bytes/consistency-check.ts';
import type { ContentStoreDeps, ContentStoreOptions } from '../../src/bytes/content-store.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { countReference } from '../../src/store/node-table.ts';
import { type ContentPlace, openPlace, referredVersion } from './content-place.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const MIB = 1024 * 1024;
/** Room for LMDB's file of a small store, which the budget counts as well. */
const INDEX_BYTES = MIB / 2;
const ALL = { start: 0, end: Number.MAX_SAFE_INTEGER };

/** vitest compares element by element, which takes seconds for a megabyte. */
function expectBytes(found: Uint8Array | null, wanted: Uint8Array, what = 'bytes'): void {
  expect(found?.byteLength, `length of ${what}`).toBe(wanted.byteLength);
  expect(Buffer.compare(found as Uint8Array, wanted), what).toBe(0);
}

const open = (options?: Partial<ContentStoreOptions>, directory?: string, deps?: Partial<ContentStoreDeps>) =>
  openPlace(stores, options, directory, deps);

const version = (place: ContentPlace, sizeBytes: number, name = '1'): ContentId =>
  referredVersion(place, FILE, sizeBytes, name);

/** What a fetch does: writes into the file, then says so. */
function fetch(
  { contents }: ContentPlace,
  id: ContentId,
  bytes: Uint8Array,
  start = 0,
  checksums?: ReadonlyMap<number, number>,
): string {
  const path = contents.fetchPath(id) as string;
  const fd = openSync(path, 'r+');
  writeSync(fd, bytes, 0, bytes.byteLength, start);
  closeSync(fd);
  contents.landed(id, { start, end: start + bytes.byteLength }, null, checksums);
  return path;
}

async function stop({ store, contents }: ContentPlace): Promise<void> {
  contents.close();
  await store.close();
}

test('a cached block is here after a restart, a partial one is not', async () => {
  const first = await open();
  const bytes = new SeededRandom(1).bytes(3 * BLOCK_BYTES);
  const id = version(first, 3 * BLOCK_BYTES);
  fetch(first, id, bytes.subarray(0, BLOCK_BYTES + 500));
  await stop(first);

  const second = await open({}, first.directory);
  expectBytes(second.contents.readAll(id, { start: 0, end: BLOCK_BYTES }), bytes.slice(0, BLOCK_BYTES));
  expect(second.contents.pieces(id, ALL).map(({ kind, length }) => [kind, length])).toEqual([
    ['slice', BLOCK_BYTES],
    ['missing', 2 * BLOCK_BYTES],
  ]);
  await stop(second);
});

test.each([1, 2, 3, 4])('wherever a cached file is damaged, wrong bytes are never returned (SEED=%i)', async (seed) => {
  const random = new SeededRandom(seed);
  const first = await open();
  const size = 5 * BLOCK_BYTES + 777;
  const bytes = random.bytes(size);
  const id = version(first, size);
  const path = fetch(first, id, bytes);
  await stop(first);
  const damaged = readFileSync(path);
  const at = random.below(size);
  damaged[at] = (damaged[at] as number) ^ (1 << random.below(8));
  writeFileSync(path, damaged);

  const second = await open({}, first.directory);
  for (let block = 0; block < 6; block++) {
    const extent = { start: block * BLOCK_BYTES, end: Math.min((block + 1) * BLOCK_BYTES, size) };
    const read = second.contents.readAll(id, extent);
    if (block === Math.floor(at / BLOCK_BYTES)) expect(read, `block ${block}`).toBeNull();
    else expectBytes(read, bytes.subarray(extent.start, extent.end), `block ${block}`);
  }
  fetch(second, id, bytes);
  expectBytes(second.contents.readAll(id, ALL), bytes);
  await stop(second);
});

test('the check of all bytes finds the damaged block and no other', async () => {
  const first = await open();
  const id = version(first, 4 * BLOCK_BYTES);
  const path = fetch(first, id, new SeededRandom(6).bytes(4 * BLOCK_BYTES));
  await stop(first);
  const bytes = readFileSync(path);
  bytes[2 * BLOCK_BYTES + 5] = (bytes[2 * BLOCK_BYTES + 5] as number) ^ 1;
  writeFileSync(path, bytes);

  const second = await open({}, first.directory);
  expect([...checkBytes(second.store, second.contents)]).toEqual([`block 2 of content ${id} is damaged`]);
  await stop(second);
});

test('a file that is gone or cut short is fetched again', async () => {
  const first = await open();
  const id = version(first, 2 * BLOCK_BYTES);
  const path = fetch(first, id, new Uint8Array(2 * BLOCK_BYTES).fill(5));
  await stop(first);
  writeFileSync(path, new Uint8Array(BLOCK_BYTES).fill(5));

  const second = await open({}, first.directory);
  expect(second.contents.readAll(id, { start: 0, end: BLOCK_BYTES })).not.toBeNull();
  expect(second.contents.readAll(id, ALL)).toBeNull();
  await stop(second);
});

describe('a cache that somebody empties beside the mount', () => {
  test('does not hide what is fetched then: a file that is open and has no name any more is not the one that would be written', async () => {
    const place = await open();
    const bytes = new SeededRandom(3).bytes(2 * BLOCK_BYTES);
    const id = version(place, bytes.byteLength);
    const [first, second] = [bytes.slice(0, BLOCK_BYTES), bytes.slice(BLOCK_BYTES)];
    rmSync(fetch(place, id, first));

    const path = place.contents.fetchPath(id);
    // As transfer/landing does it.
    if (path !== null) writeFileSync(path, bytes);
    const checksums = new Map([[1, crc32(second)]]);
    const rest = { start: BLOCK_BYTES, end: 2 * BLOCK_BYTES };
    place.contents.landed(id, rest, path === null ? second : null, checksums);

    expectBytes(place.contents.readAll(id, rest), second);
    expectBytes(place.contents.readAll(id, { start: 0, end: BLOCK_BYTES }), first);
    await stop(place);
  });

  /** As many that the first is not open any more. */
  function filledMany(place: ContentPlace, sizeBytes = BLOCK_BYTES): readonly ContentId[] {
    const ids = Array.from({ length: 300 }, (_, n) => version(place, sizeBytes, `${n}`));
    for (const id of ids) fetch(place, id, new Uint8Array(BLOCK_BYTES).fill(id));
    return ids;
  }

  test('shows no hole where something was before', async () => {
    const place = await open();
    const [id] = filledMany(place, 2 * BLOCK_BYTES) as [ContentId];
    rmSync(place.contents.fetchPath(id) as string);

    writeFileSync(place.contents.fetchPath(id) as string, '');
    fetch(place, id, new Uint8Array(BLOCK_BYTES).fill(7), BLOCK_BYTES);
    expect(place.contents.readAll(id, { start: 0, end: BLOCK_BYTES })).toBeNull();
    fetch(place, id, new Uint8Array(BLOCK_BYTES).fill(7));
    expectBytes(place.contents.readAll(id, ALL), new Uint8Array(2 * BLOCK_BYTES).fill(7));
    await stop(place);
  });

  /** Pushed a moment ago: its first block is its own, of the second only the beginning, and the rest is its base's. */
  async function unsettled(): Promise<{ readonly place: ContentPlace; readonly id: ContentId; readonly path: string }> {
    const first = await open();
    const base = version(first, 3 * BLOCK_BYTES, 'base');
    fetch(first, base, new Uint8Array(3 * BLOCK_BYTES).fill(1));
    const id = first.store.transact((tx) => {
      const draft = first.contents.createDraft(tx, { content: base, sizeBytes: 3 * BLOCK_BYTES });
      countReference(tx, draft, 1);
      return draft;
    });
    first.contents.write(id, 0, new Uint8Array(BLOCK_BYTES + 1000).fill(7));
    first.store.transact((tx) => first.contents.seal(tx, id));
    first.store.transact((tx) => first.contents.adopt(tx, id, `${FILE}/version/2` as VersionUrl, FILE));
    await stop(first);
    const path = join(first.directory, 'cache', (id % 256).toString(16).padStart(2, '0'), String(id));
    expect(existsSync(path)).toBe(true);
    return { place: await open({}, first.directory), id, path };
  }

  test('a cache that was emptied from outside is filled again with pushed bytes', async () => {
    const { place, id, path } = await unsettled();
    rmSync(path);

    expect(place.contents.pieces(id, ALL).map(({ kind }) => kind)).toEqual(['missing']);
    const bytes = new Uint8Array(3 * BLOCK_BYTES).fill(1).fill(7, 0, BLOCK_BYTES + 1000);
    writeFileSync(place.contents.fetchPath(id) as string, '');
    fetch(place, id, bytes.slice(2 * BLOCK_BYTES), 2 * BLOCK_BYTES);
    expect(place.contents.readAll(id, { start: 0, end: BLOCK_BYTES + 1000 })).toBeNull();
    fetch(place, id, bytes);
    expectBytes(place.contents.readAll(id, ALL), bytes);
    await stop(place);
  });

  test('shows no zeros of what was just pushed, once another block of it was fetched', async () => {
    const { place, id, path } = await unsettled();
    rmSync(path);

    writeFileSync(place.contents.fetchPath(id) as string, '');
    fetch(place, id, new Uint8Array(BLOCK_BYTES).fill(1), 2 * BLOCK_BYTES);
    expect(place.contents.readAll(id, { start: BLOCK_BYTES, end: BLOCK_BYTES + 1000 })).toBeNull();
    await stop(place);
  });

  test('a cache file that is removed from outside during a fetch causes no wrong bytes', async () => {
    const before = await open();
    const first = new SeededRandom(4).bytes(BLOCK_BYTES);
    const id = version(before, 3 * BLOCK_BYTES);
    fetch(before, id, first, 2 * BLOCK_BYTES);
    await stop(before);
    const place = await open({}, before.directory);
    const { contents } = place;
    const path = contents.fetchPath(id) as string;
    const underWay = contents.watchGivenUp(id);
    const fd = openSync(path, 'r+');
    writeSync(fd, first);
    rmSync(path);

    const next = contents.fetchPath(id) as string;
    // Nor are two of the new one in each other's way.
    const beside = contents.watchGivenUp(id);
    expect(contents.fetchPath(id)).toBe(next);
    closeSync(openSync(next, 'a'));
    const [start, end] = [0, BLOCK_BYTES];
    for (const extent of underWay.without({ start, end }))
      contents.landed(id, extent, null, new Map([[0, crc32(first)]]));
    closeSync(fd);

    expect(contents.readAll(id, { start, end })).toBeNull();
    expect([...beside.without({ start, end })]).toEqual([{ start, end }]);
    await stop(place);
  });

  test('a cache that was emptied from outside is filled again', async () => {
    const place = await open();
    const [id] = filledMany(place) as [ContentId];
    rmSync(dirname(place.contents.fetchPath(id) as string), { recursive: true });

    expect(place.contents.readAll(id, ALL)).toBeNull();
    writeFileSync(place.contents.fetchPath(id) as string, '');
    fetch(place, id, new Uint8Array(BLOCK_BYTES).fill(7));
    expectBytes(place.contents.readAll(id, ALL), new Uint8Array(BLOCK_BYTES).fill(7));
    await stop(place);
  });
});

test('clean blocks stay within their budget, least recently used first, and their room is given back', async () => {
  const place = await open({ cacheBytes: 4 * MIB + INDEX_BYTES });
  const files = Array.from({ length: 8 }, (_, i) => {
    const id = version(place, MIB, String(i));
    const path = fetch(place, id, new Uint8Array(MIB).fill(i + 1));
    return { id, path };
  });
  place.contents.collect();

  expect(place.contents.usage().cacheBytes).toBeLessThanOrEqual(4 * MIB);
  const here = files.map(({ id }) => place.contents.readAll(id, ALL) !== null);
  expect(here).toEqual([false, false, false, false, true, true, true, true]);
  const blocks = files.reduce((sum, { path }) => sum + (existsSync(path) ? statSync(path).blocks * 512 : 0), 0);
  expect(blocks).toBeLessThanOrEqual(4.1 * MIB);
  await stop(place);

  // Nothing is counted twice or forgotten by a restart.
  const again = await open({ cacheBytes: 4 * MIB + INDEX_BYTES }, place.directory);
  await again.contents.takeStock(new AbortController().signal);
  expect(again.contents.usage().cacheBytes).toBe(4 * MIB);
  await stop(again);
});

test('what is leased and what lies under a draft is not evicted', async () => {
  const place = await open({ cacheBytes: MIB + INDEX_BYTES });
  const leased = version(place, MIB, 'leased');
  fetch(place, leased, new Uint8Array(MIB).fill(1));
  const lease = place.contents.lease(leased);
  const base = version(place, MIB, 'base');
  const fetching = place.contents.lease(base);
  fetch(place, base, new Uint8Array(MIB).fill(2));
  const draft = place.store.transact((tx) => {
    const id = place.contents.createDraft(tx, { content: base, sizeBytes: MIB });
    countReference(tx, id, 1);
    return id;
  });
  fetching.release();
  for (let i = 0; i < 4; i++) fetch(place, version(place, MIB, String(i)), new Uint8Array(MIB).fill(3));
  place.contents.collect();

  expect(place.contents.readAll(leased, ALL)).not.toBeNull();
  expect(place.contents.readAll(draft, ALL)).not.toBeNull();
  lease.release();
  await stop(place);

  // Also after a restart, when the draft is not open.
  const again = await open({ cacheBytes: MIB + INDEX_BYTES }, place.directory);
  await again.contents.takeStock(new AbortController().signal);
  for (let i = 0; i < 4; i++) fetch(again, version(again, MIB, `more ${i}`), new Uint8Array(MIB).fill(4));
  expect(again.contents.readAll(draft, ALL)).not.toBeNull();
  expect(again.contents.readAll(leased, ALL)).toBeNull();
  await stop(again);
});

test('without hole punching whole contents are evicted', async () => {
  const place = await open({ cacheBytes: 3 * MIB + INDEX_BYTES }, stores.directory(), { holes: null });
  const first = version(place, 3 * MIB, 'first');
  const path = fetch(place, first, new Uint8Array(3 * MIB).fill(1));
  const second = version(place, MIB, 'second');
  fetch(place, second, new Uint8Array(MIB).fill(2));
  place.contents.collect();

  expect(place.contents.usage().cacheBytes).toBe(MIB);
  expect(existsSync(path)).toBe(false);
  expect(place.contents.readAll(first, ALL)).toBeNull();
  fetch(place, first, new Uint8Array(3 * MIB).fill(1));
  expectBytes(place.contents.readAll(first, ALL), new Uint8Array(3 * MIB).fill(1));
  await stop(place);
});

test('on a disk below its reserve nothing is cached, and reads work from memory', async () => {
  const place = await open({ reserveBytes: Number.MAX_SAFE_INTEGER });
  const bytes = new SeededRandom(3).bytes(2 * BLOCK_BYTES);
  const id = version(place, bytes.byteLength);

  expect(place.contents.fetchPath(id)).toBeNull();
  place.contents.landed(id, { start: 0, end: bytes.byteLength }, bytes);

  expectBytes(place.contents.readAll(id, ALL), bytes);
  expect(place.contents.usage().cacheBytes).toBe(0);
  await stop(place);
});

test('cached blocks are evicted when the disk is below its reserve', async () => {
  const before = await open();
  const bytes = new SeededRandom(4).bytes(32 * BLOCK_BYTES);
  fetch(before, version(before, bytes.byteLength), bytes);
  expect(before.contents.usage().cacheBytes).toBeGreaterThanOrEqual(bytes.byteLength);
  await stop(before);

  const place = await open({ reserveBytes: Number.MAX_SAFE_INTEGER }, before.directory);
  await place.contents.takeStock(new AbortController().signal);
  place.contents.collect();

  expect(place.contents.usage().cacheBytes).toBe(0);
  await stop(place);
});

test('files that belong to nothing are removed, those of this run and of records are not', async () => {
  const first = await open();
  const id = version(first, 2 * BLOCK_BYTES);
  const path = fetch(first, id, new Uint8Array(2 * BLOCK_BYTES));
  await stop(first);
  const below = join(first.directory, 'cache', '08', '8'); // below the counter: ids are reserved in blocks
  mkdirSync(dirname(below), { recursive: true });
  writeFileSync(below, 'orphan');

  const second = await open({}, first.directory);
  const draft = second.store.transact((tx) => {
    const made = second.contents.createDraft(tx, null);
    second.contents.write(made, 0, new Uint8Array(10_000));
    return made;
  });
  await second.contents.takeStock(new AbortController().signal);

  expect(existsSync(below)).toBe(false);
  expect(existsSync(path)).toBe(true);
  expect(second.contents.readAll(draft, ALL)).toHaveLength(10_000);
  await stop(second);
});

test('a crash between the record of an adoption and the move of the file costs nothing', async () => {
  const first = await open();
  const bytes = new SeededRandom(4).bytes(10_000);
  const id = first.store.transact((tx) => {
    const draft = first.contents.createDraft(tx, null);
    first.contents.write(draft, 0, bytes);
    first.contents.seal(tx, draft);
    countReference(tx, draft, 1);
    return draft;
  });
  first.store.transact((tx) => first.contents.adopt(tx, id, `${FILE}/version/9` as VersionUrl, FILE));
  await stop(first);
  const name = `0${id}`.slice(-2);
  renameSync(join(first.directory, 'cache', name, String(id)), join(first.directory, 'drafts', name, String(id)));

  const second = await open({}, first.directory);
  expectBytes(second.contents.readAll(id, ALL), bytes);
  await second.contents.takeStock(new AbortController().signal);
  await second.contents.mergeLayers(new AbortController().signal);
  expectBytes(second.contents.readAll(id, ALL), bytes);
  await stop(second);
});

test('after another start of the machine, bytes that were never synced and have no checksum are fetched again', async () => {
  const first = await open({}, stores.directory(), { bootId: 'first' });
  await first.contents.takeStock(new AbortController().signal);
  const bytes = new SeededRandom(4).bytes(2 * BLOCK_BYTES);
  const id = first.store.transact((tx) => {
    const draft = first.contents.createDraft(tx, null);
    first.contents.write(draft, 0, bytes);
    first.contents.seal(tx, draft);
    countReference(tx, draft, 1);
    return draft;
  });
  first.store.transact((tx) => first.contents.adopt(tx, id, `${FILE}/version/9` as VersionUrl, FILE));
  expectBytes(first.contents.readAll(id, ALL), bytes);
  await stop(first);

  const killed = await open({}, first.directory, { bootId: 'first' });
  expectBytes(killed.contents.readAll(id, ALL), bytes);
  await stop(killed);

  writeFileSync(join(first.directory, 'cache', `0${id}`.slice(-2), String(id)), new Uint8Array(bytes.byteLength));
  for (const bootId of ['second', 'second']) {
    const cut = await open({}, first.directory, { bootId });
    expect(cut.contents.readAll(id, ALL)).toBeNull();
    await cut.contents.takeStock(new AbortController().signal);
    expect(cut.contents.readAll(id, ALL)).toBeNull();
    expect(cut.contents.record(id)?.extents).toEqual([]);
    await stop(cut);
  }
});

test('a content that was handed out is collected after its last lease, its file with it', async () => {
  const place = await open();
  const id = version(place, 2 * BLOCK_BYTES);
  const path = fetch(place, id, new Uint8Array(2 * BLOCK_BYTES).fill(9));
  const lease = place.contents.lease(id);
  place.store.transact((tx) => countReference(tx, id, -1));
  place.contents.collect();
  expectBytes(place.contents.readAll(id, ALL), new Uint8Array(2 * BLOCK_BYTES).fill(9));

  lease.release();
  place.contents.collect();
  expect(place.contents.record(id)).toBeUndefined();
  expect([...place.store.scan('blocks', id)]).toEqual([]);
  await expect.poll(() => existsSync(path), { timeout: 30_000 }).toBe(false);
  await stop(place);
});

test('asking where data lies looks at no byte of it, and at a part of a large file at once', async () => {
  const first = await open();
  const id = version(first, 130 * MIB);
  const bytes = new Uint8Array(2 * MIB).fill(7);
  fetch(first, id, bytes, 64 * MIB);
  await stop(first);
  let reads = 0;
  const disk: Disk = Object.create(systemDisk, {
    read: {
      value: (...args: Parameters<Disk['read']>) => {
        reads++;
        return systemDisk.read(...args);
      },
    },
  });
  const place = await open({}, first.directory, { disk });

  expect(place.contents.nextData(id, 0)).toEqual({ start: 0, end: 64 * MIB });
  expect(place.contents.nextData(id, 64 * MIB)).toEqual({ start: 64 * MIB, end: 128 * MIB });
  expect(place.contents.nextData(id, 128 * MIB)).toEqual({ start: 128 * MIB, end: 130 * MIB });
  expect(reads).toBe(0);
  expect(place.contents.pieces(id, { start: 64 * MIB, end: 65 * MIB })).toMatchObject([{ kind: 'slice' }]);
  expect(reads).toBe(8); // what is read is compared, once
  await stop(place);
});

test('the data ranges are right for holes, own ranges and missing blocks', async () => {
  const place = await open();
  const id = place.store.transact((tx) => place.contents.createDraft(tx, null));
  place.contents.truncate(id, 10 * MIB);
  place.contents.write(id, 3 * MIB, new Uint8Array(100));
  place.contents.write(id, 5 * MIB, new Uint8Array(200));

  expect(place.contents.nextData(id, 0)).toEqual({ start: 3 * MIB, end: 3 * MIB + 100 });
  expect(place.contents.nextData(id, 3 * MIB + 50)).toEqual({ start: 3 * MIB + 50, end: 3 * MIB + 100 });
  expect(place.contents.nextData(id, 3 * MIB + 100)).toEqual({ start: 5 * MIB, end: 5 * MIB + 200 });
  expect(place.contents.nextData(id, 6 * MIB)).toBeNull();
  expect(place.contents.nextData(version(place, MIB), 5)).toEqual({ start: 5, end: MIB });
  await stop(place);
});

test.each(['frozen', 'open, over a frozen one'])(
  'holes of any length in a draft are skipped in one step (%s)',
  async (how) => {
    const place = await open();
    const { store, contents } = place;
    const [start, sizeBytes] = [2 ** 51, Number.MAX_SAFE_INTEGER];
    const frozen = store.transact((tx) => contents.createDraft(tx, null));
    contents.write(frozen, start, new Uint8Array(100));
    contents.truncate(frozen, sizeBytes - 1);
    store.transact((tx) => contents.seal(tx, frozen));
    const base = { content: frozen, sizeBytes: sizeBytes - 1 };
    const id = how === 'frozen' ? frozen : store.transact((tx) => contents.createDraft(tx, base));
    if (id !== frozen) contents.truncate(id, sizeBytes);
    // Each step asks for the record of the frozen one: of 64 MiB each it would be millions of steps.
    const record = store.get.bind(store);
    let asked = 0;
    store.get = (...args: Parameters<typeof record>) => {
      if (++asked > 100) throw new Error('the holes are walked through');
      return record(...args);
    };

    expect(contents.nextData(id, 0)).toEqual({ start, end: start + 100 });
    expect(contents.nextData(id, start + 99)).toEqual({ start: start + 99, end: start + 100 });
    expect(contents.nextData(id, start + 100)).toBeNull();
    await stop(place);
  },
);

test('fetched bytes with checksums are not read again, and the checksums are kept', async () => {
  const blocks = 96;
  let looked = 0;
  const disk: Disk = {
    ...systemDisk,
    read(fd, target, position) {
      looked++;
      return systemDisk.read(fd, target, position);
    },
  };
  const first = await open({}, stores.directory(), { disk });
  const bytes = new SeededRandom(23).bytes(blocks * BLOCK_BYTES - 1000);
  const id = version(first, bytes.byteLength);
  const blockOf = (block: number) => bytes.subarray(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
  const checksums = new Map(Array.from({ length: blocks }, (_, block) => [block, crc32(blockOf(block))]));
  checksums.set(7, 7);
  for (let block = 0; block < blocks; block += 4) {
    const start = block * BLOCK_BYTES;
    fetch(first, id, bytes.subarray(start, start + 4 * BLOCK_BYTES), start, checksums);
  }
  expect(looked).toBe(0);
  await stop(first);

  const second = await open({}, first.directory);
  const damaged = { start: 7 * BLOCK_BYTES, end: 8 * BLOCK_BYTES };
  expectBytes(second.contents.readAll(id, { start: 0, end: damaged.start }), bytes.subarray(0, damaged.start));
  expectBytes(second.contents.readAll(id, { start: damaged.end, end: bytes.byteLength }), bytes.subarray(damaged.end));
  expect(second.contents.readAll(id, damaged), 'a block that does not fit its checksum').toBeNull();
  await stop(second);
});

test('taking stock looks into folders that exist only', async () => {
  const place = await open();
  fetch(place, version(place, MIB), new Uint8Array(MIB));
  await stop(place);
  const listed: string[] = [];
  const noting: Disk = Object.create(systemDisk, {
    list: {
      value: (path: string) => {
        listed.push(path);
        return systemDisk.list(path);
      },
    },
  });
  const again = await open({}, place.directory, { disk: noting });

  expect(await again.contents.takeStock(new AbortController().signal)).toBe(true);

  expect(listed.every((path) => existsSync(path))).toBe(true);
  expect(again.contents.usage().cacheBytes).toBe(MIB);
  await stop(again);
});

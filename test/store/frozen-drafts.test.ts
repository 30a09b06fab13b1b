import { closeSync, openSync, readdirSync, readFileSync, readSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { FsError } from '../../src/base/errors.ts';
import { type Logger, silentLogger } from '../../src/base/log.ts';
import { BLOCK_BYTES, type ContentId, type ResourceUrl, type VersionUrl } from '../../src/base/vocabulary.ts';
import { checkBytes, checkStore } from '../../src/bytes/consistency-check.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { type Disk, storageErrorOf, systemDisk } from '../../src/store/disk.ts';
import type { Store } from '../../src/store/environment.ts';
import { countReference } from '../../src/store/node-table.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

/** Bytes that only this machine has, in a content file, after they were frozen to be sent: damage is never passed on. */

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const ALL = { start: 0, end: Number.MAX_SAFE_INTEGER };

interface Place {
  readonly directory: string;
  readonly store: Store;
  readonly contents: ContentStore;
  /** What was logged as an error. */
  readonly errors: string[];
}

async function open(directory: string = stores.directory(), cacheBytes = 1e12, disk = systemDisk): Promise<Place> {
  const store = await stores.open(directory);
  const errors: string[] = [];
  const log: Logger = { ...silentLogger, error: (_fields: unknown, message?: string) => errors.push(String(message)) };
  const contents = new ContentStore({
    store,
    directory,
    clock: systemClock,
    log,
    options: { inlineMaxBytes: 4096, cacheBytes },
    disk,
  });
  return { directory, store, contents, errors };
}

async function stop({ store, contents }: Place): Promise<void> {
  contents.close();
  await store.close();
}

function draftOver({ store, contents }: Place, base: ContentId | null, sizeBytes = 0): ContentId {
  return store.transact((tx) => {
    const id = contents.createDraft(tx, base === null ? null : { content: base, sizeBytes });
    countReference(tx, id, 1);
    return id;
  });
}

function version({ store, contents }: Place, bytes: Uint8Array): ContentId {
  const id = store.transact((tx) => {
    const content = contents.versionContent(tx, `${FILE}/version/1` as VersionUrl, FILE, bytes.byteLength);
    countReference(tx, content, 1);
    return content;
  });
  const fd = openSync(contents.fetchPath(id) as string, 'r+');
  writeSync(fd, bytes);
  closeSync(fd);
  contents.landed(id, { start: 0, end: bytes.byteLength }, null);
  return id;
}

/** Freezes a draft; resolves when all of its checksums are stored. */
async function freeze({ store, contents }: Place, id: ContentId, blocks: number): Promise<void> {
  store.transact((tx) => contents.seal(tx, id));
  await expect.poll(() => [...checkedBlocks(store, id)].length, { interval: 5, timeout: 5000 }).toBe(blocks);
}

function* checkedBlocks(store: Store, id: ContentId): Generator<number> {
  for (const [, row] of store.scan('blocks', id)) for (let at = 0; at < row.byteLength; at += 5) if (row[at]) yield at;
}

function fileOf(directory: string, id: ContentId, place: 'drafts' | 'cache' = 'drafts'): string {
  const shard = (id % 256).toString(16).padStart(2, '0');
  expect(readdirSync(join(directory, place, shard))).toContain(String(id));
  return join(directory, place, shard, String(id));
}

function flipBit(path: string, at: number, bit: number): void {
  const bytes = readFileSync(path);
  bytes[at] = (bytes[at] as number) ^ (1 << bit);
  writeFileSync(path, bytes);
}

/** What an upload would send: files are read by their paths. */
function sent(contents: ContentStore, id: ContentId): Buffer {
  const parts = contents.pieces(id, ALL).map((piece) => {
    if (piece.kind === 'bytes') return Buffer.from(piece.bytes);
    const bytes = Buffer.alloc(piece.length);
    if (piece.kind === 'slice') {
      const fd = openSync(piece.path, 'r');
      expect(readSync(fd, bytes, 0, bytes.byteLength, piece.position), 'bytes that the file has').toBe(piece.length);
      closeSync(fd);
    }
    return bytes;
  });
  return Buffer.concat(parts);
}

test.each(['a frozen draft', 'a cached version'])(
  '%s for which no descriptor is left is not damaged: it is read when there is one',
  async (what) => {
    const bytes = new SeededRandom(7).bytes(2 * BLOCK_BYTES);
    const first = await open();
    const id = what === 'a cached version' ? version(first, bytes) : draftOver(first, null);
    if (what === 'a frozen draft') {
      first.contents.write(id, 0, bytes);
      await freeze(first, id, 2);
    }
    await stop(first);

    let isOut = true;
    const openIfAny: Disk['open'] = (path, how) => {
      if (isOut) throw storageErrorOf(Object.assign(new Error('out'), { code: 'EMFILE' }), `cannot open ${path}`);
      return systemDisk.open(path, how);
    };
    const second = await open(first.directory, 1e12, { ...systemDisk, open: openIfAny });
    expect(() => second.contents.readAll(id, ALL)).toThrow('EMFILE');

    isOut = false;
    expect(Buffer.compare(second.contents.readAll(id, ALL) ?? Buffer.alloc(0), bytes)).toBe(0);
    expect(second.errors).toEqual([]);
    await stop(second);
  },
);

test.each([1, 2, 3, 4, 5, 6])('a flipped bit of a frozen draft is EIO, and never sent (SEED=%i)', async (seed) => {
  const random = new SeededRandom(seed);
  const first = await open();
  const size = 5 * BLOCK_BYTES + 777;
  const bytes = random.bytes(size);
  const draft = draftOver(first, null);
  first.contents.write(draft, 0, bytes);
  await freeze(first, draft, 6);
  await stop(first);
  const at = random.below(size);
  flipBit(fileOf(first.directory, draft), at, random.below(8));

  const second = await open(first.directory);
  const bad = Math.floor(at / BLOCK_BYTES);
  for (let round = 0; round < 2; round++) {
    for (let block = 0; block < 6; block++) {
      const extent = { start: block * BLOCK_BYTES, end: Math.min((block + 1) * BLOCK_BYTES, size) };
      const read = () => second.contents.readAll(draft, extent);
      if (block === bad) expect(read, `block ${block}`).toThrow(FsError);
      else expect(Buffer.compare(read() as Uint8Array, bytes.subarray(extent.start, extent.end))).toBe(0);
    }
    expect(() => second.contents.pieces(draft, ALL)).toThrow(expect.objectContaining({ errno: 'EIO' }));
  }
  expect(second.errors).toEqual(['bytes that were written here are damaged']);
  expect([...checkBytes(second.store, second.contents)]).toEqual([
    `block ${bad} of content ${draft} is damaged, and in no version`,
  ]);
  expect([...checkStore(second.store)].filter((finding) => finding.includes('block'))).toEqual([]);
  // What is written over it later does not hide it.
  const over = draftOver(second, draft, size);
  second.contents.write(over, bad === 0 ? 2 * BLOCK_BYTES : 0, Buffer.from('x'));
  expect(() => second.contents.readAll(over, ALL)).toThrow(FsError);
  await stop(second);
});

test('a file that lost its end is EIO where the end was', async () => {
  const first = await open();
  const draft = draftOver(first, null);
  first.contents.write(draft, 0, new Uint8Array(3 * BLOCK_BYTES));
  await freeze(first, draft, 3);
  await stop(first);
  writeFileSync(fileOf(first.directory, draft), new Uint8Array(BLOCK_BYTES));

  const second = await open(first.directory);
  expect(second.contents.readAll(draft, { start: 0, end: BLOCK_BYTES })).not.toBeNull();
  expect(() => second.contents.readAll(draft, ALL)).toThrow(FsError);
  await stop(second);
});

test('what a frozen file holds between its own ranges means nothing', async () => {
  const random = new SeededRandom(9);
  const first = await open();
  const old = random.bytes(3 * BLOCK_BYTES);
  const base = version(first, old);
  const draft = draftOver(first, base, old.byteLength);
  first.contents.write(draft, BLOCK_BYTES + 100, random.bytes(50_000));
  const wanted = sent(first.contents, draft);
  await freeze(first, draft, 1);
  await stop(first);
  flipBit(fileOf(first.directory, draft), BLOCK_BYTES + 50, 3);

  const second = await open(first.directory);
  expect(Buffer.compare(second.contents.readAll(draft, ALL) as Uint8Array, wanted)).toBe(0);
  expect(second.errors).toEqual([]);
  await stop(second);
});

test('a version that was a draft keeps the checksums of its own blocks: damage before it is settled is fetched again', async () => {
  const random = new SeededRandom(10);
  const first = await open();
  const old = random.bytes(4 * BLOCK_BYTES);
  const base = version(first, old);
  const draft = draftOver(first, base, old.byteLength);
  // Block 1 is all its own, of block 2 only a part.
  first.contents.write(draft, BLOCK_BYTES, random.bytes(BLOCK_BYTES + 1000));
  const wanted = sent(first.contents, draft);
  await freeze(first, draft, 2);
  first.store.transact((tx) => first.contents.adopt(tx, draft, `${FILE}/version/2` as VersionUrl, FILE));
  expect([...checkedBlocks(first.store, draft)]).toEqual([5]);
  expect(first.contents.usage()).toMatchObject({ draftBytes: 0, cacheBytes: 5 * BLOCK_BYTES });
  await stop(first);
  flipBit(fileOf(first.directory, draft, 'cache'), BLOCK_BYTES + 5, 1);

  const second = await open(first.directory);
  expect([...checkStore(second.store)].filter((finding) => finding.includes('block'))).toEqual([]);
  const kinds = second.contents.pieces(draft, ALL).map(({ kind, length }) => [kind, length / BLOCK_BYTES]);
  expect(kinds[1]).toEqual(['missing', 1]);
  await second.contents.takeStock(new AbortController().signal);
  await second.contents.mergeLayers(new AbortController().signal);
  expect(second.contents.readAll(draft, { start: BLOCK_BYTES, end: 2 * BLOCK_BYTES })).toBeNull();
  expect(
    Buffer.compare(
      second.contents.readAll(draft, { start: 2 * BLOCK_BYTES, end: wanted.byteLength }) as Buffer,
      wanted.subarray(2 * BLOCK_BYTES),
    ),
  ).toBe(0);

  const fd = openSync(second.contents.fetchPath(draft) as string, 'r+');
  writeSync(fd, wanted, BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES);
  closeSync(fd);
  second.contents.landed(draft, { start: BLOCK_BYTES, end: 2 * BLOCK_BYTES }, null);
  expect(Buffer.compare(second.contents.readAll(draft, ALL) as Uint8Array, wanted)).toBe(0);
  await stop(second);
  const third = await open(first.directory);
  expect([...checkBytes(third.store, third.contents)]).toEqual([]);
  expect(Buffer.compare(third.contents.readAll(draft, ALL) as Uint8Array, wanted)).toBe(0);
  await stop(third);
});

test('an unsettled version is not evicted: below its block lies the hole', async () => {
  const first = await open(stores.directory(), 1);
  const bytes = new SeededRandom(11).bytes(4 * BLOCK_BYTES);
  const draft = draftOver(first, null);
  first.contents.write(draft, 0, bytes);
  await freeze(first, draft, 4);
  first.store.transact((tx) => first.contents.adopt(tx, draft, `${FILE}/version/2` as VersionUrl, FILE));
  first.contents.collect();
  expect(Buffer.compare(first.contents.readAll(draft, ALL) as Uint8Array, bytes)).toBe(0);

  await first.contents.mergeLayers(new AbortController().signal);
  first.contents.collect();
  expect(first.contents.readAll(draft, ALL)).toBeNull();
  await stop(first);
});

test('zeros behind the end of the own file can be read by its path', async () => {
  const place = await open();
  const base = version(place, new Uint8Array(4 * BLOCK_BYTES).fill(7));
  const draft = draftOver(place, base, 4 * BLOCK_BYTES);
  place.contents.zero(draft, { start: BLOCK_BYTES, end: 2 * BLOCK_BYTES });
  await freeze(place, draft, 1);

  const bytes = sent(place.contents, draft);
  expect(bytes.subarray(BLOCK_BYTES, 2 * BLOCK_BYTES).every((byte) => byte === 0)).toBe(true);
  expect(bytes[0]).toBe(7);
  expect(bytes[3 * BLOCK_BYTES]).toBe(7);
  await stop(place);
});

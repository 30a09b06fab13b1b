import { closeSync, mkdirSync, openSync, readdirSync, renameSync, statSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BLOCK_BYTES, type ContentId, type ResourceUrl, type VersionUrl } from '../../src/base/vocabulary.ts';
import { sharesOf } from '../../src/bytes/cache-eviction.ts';
import type { ContentStoreDeps, ContentStoreOptions } from '../../src/bytes/content-store.ts';
import { countReference } from '../../src/store/node-table.ts';
import { type ContentPlace, openPlace, referredVersion } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

/** `--cache-size` counts what the disk says, of content files and of LMDB's file. */

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const MIB = 1024 * 1024;
const ALL = { start: 0, end: Number.MAX_SAFE_INTEGER };

async function stop({ store, contents }: ContentPlace): Promise<void> {
  contents.close();
  await store.close();
}

const open = (options: Partial<ContentStoreOptions>, directory?: string, deps?: Partial<ContentStoreDeps>) =>
  openPlace(stores, options, directory, deps);

const version = (place: ContentPlace, sizeBytes: number, name: string): ContentId =>
  referredVersion(place, FILE, sizeBytes, name);

/** What a fetch does: writes into the file, then says so. */
function fetch({ contents }: ContentPlace, id: ContentId, start: number, end: number): void {
  const fd = openSync(contents.fetchPath(id) as string, 'r+');
  writeSync(fd, new Uint8Array(end - start).fill(id), 0, end - start, start);
  closeSync(fd);
  contents.landed(id, { start, end }, null);
}

function isHere({ contents }: ContentPlace, id: ContentId): boolean {
  return contents.readAll(id, ALL) !== null;
}

/** What the disk says of everything below `cache/`, and of LMDB's file. */
function onDisk(directory: string): { readonly files: number; readonly index: number } {
  return {
    files: bytesBelow(join(directory, 'cache')),
    index: statSync(join(directory, 'index', 'data.mdb')).blocks * 512,
  };
}

function bytesBelow(directory: string): number {
  let blocks = 0;
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    if (entry.isFile() && entry.name !== 'CACHEDIR.TAG') blocks += statSync(join(entry.parentPath, entry.name)).blocks;
  }
  return blocks * 512;
}

test('content files and index stay within the budget, and half of it is always there for files', () => {
  const bytes = fc.integer({ min: 0, max: 2 ** 45 });
  fc.assert(
    fc.property(bytes, bytes, (limit, index) => {
      const { files, small } = sharesOf(limit, index);
      expect(files).toBeGreaterThanOrEqual(Math.floor(limit / 2));
      expect(files).toBeLessThanOrEqual(limit);
      expect(small).toBeLessThanOrEqual(limit / 2);
      if (index <= limit / 2) expect(files + index).toBeLessThanOrEqual(limit);
    }),
  );
});

test('the reported cache usage is the disk usage, including partial blocks, also after a restart', async () => {
  const place = await open({});
  const ids = Array.from({ length: 10 }, (_, n) => version(place, 3 * BLOCK_BYTES + 5000, `${n}`));
  // Whole blocks and their ends; a range that was cut in a block; nothing but a part of a block.
  for (const [n, id] of ids.entries()) {
    if (n % 3 === 0) fetch(place, id, 0, 3 * BLOCK_BYTES + 5000);
    else if (n % 3 === 1) fetch(place, id, BLOCK_BYTES, 2 * BLOCK_BYTES + 50_000);
    else fetch(place, id, 0, 70_000);
  }
  place.contents.collect();

  const first = onDisk(place.directory);
  expect(place.contents.usage()).toMatchObject({ cacheBytes: first.files });
  // What holds no whole block is of no use to anybody.
  expect(first.files).toBeLessThan(4 * (3 * BLOCK_BYTES + 8192) + 3 * (BLOCK_BYTES + 53_248) + 1);
  await stop(place);

  const again = await open({}, place.directory);
  await again.contents.takeStock(new AbortController().signal);
  const { files, index } = onDisk(place.directory);
  expect(files).toBe(first.files);
  expect(again.contents.usage()).toMatchObject({ cacheBytes: files, diskBytes: files + index });
  await stop(again);
});

test('a part of a block that somebody is still fetching stays', async () => {
  const place = await open({});
  const id = version(place, 2 * BLOCK_BYTES, 'f');
  const lease = place.contents.lease(id);
  fetch(place, id, 0, 1000);
  place.contents.collect();
  expect(onDisk(place.directory).files).toBeGreaterThan(0);

  lease.release();
  place.contents.collect();
  expect(onDisk(place.directory).files).toBe(0);
  await stop(place);
});

test('blocks that the disk does not take back are still counted, and their files go whole', async () => {
  const cannot = {
    punchHole: () => {
      throw new Error('EOPNOTSUPP');
    },
  };
  const place = await open({ cacheBytes: 4 * MIB }, undefined, { holes: cannot });
  for (let n = 0; n < 8; n++) fetch(place, version(place, MIB + 4096, `${n}`), 0, MIB + 4096);
  for (let round = 0; round < 4; round++) place.contents.collect();

  const { files, index } = onDisk(place.directory);
  expect(place.contents.usage().diskBytes).toBeGreaterThanOrEqual(files);
  expect(files + index).toBeLessThanOrEqual(4 * MIB);
  expect(files).toBeGreaterThan(MIB);
  await stop(place);
});

test('a long list of names does not evict everything in vain', async () => {
  const place = await open({ cacheBytes: 2 * MIB });
  place.store.transact((tx) => {
    for (let n = 0; n < 2000; n++) tx.put('meta', `row ${n}`, 'x'.repeat(1500));
  });
  await place.store.drain();
  await stop(place);
  const again = await open({ cacheBytes: 2 * MIB }, place.directory);
  expect(onDisk(again.directory).index).toBeGreaterThan(2 * MIB);

  const ids = Array.from({ length: 6 }, (_, n) => version(again, MIB / 4, `${n}`));
  for (const id of ids) fetch(again, id, 0, MIB / 4);
  again.contents.collect();

  expect(ids.map((id) => isHere(again, id))).toEqual([false, false, true, true, true, true]);
  await stop(again);
});

test('small contents have half of the budget, least recently used first, and do not push out files', async () => {
  const place = await open({ cacheBytes: 4 * MIB });
  const large = version(place, MIB, 'large');
  fetch(place, large, 0, MIB);
  // A page of LMDB each.
  const small = Array.from({ length: 1000 }, (_, n) => version(place, 3000, `small ${n}`));
  for (const id of small) place.contents.landed(id, { start: 0, end: 3000 }, new Uint8Array(3000).fill(7));
  for (let round = 0; round < 10; round++) place.contents.collect();

  const here = small.map((id) => isHere(place, id));
  expect(here.filter(Boolean)).toHaveLength((2 * MIB) / 4096);
  expect(here.lastIndexOf(false)).toBeLessThan(here.indexOf(true));
  expect(isHere(place, large)).toBe(true);
  await stop(place);
});

test('a disk that is short of room takes files, not small contents, which would give none', async () => {
  const place = await open({ reserveBytes: Number.MAX_SAFE_INTEGER });
  const id = version(place, 3000, 'small');
  place.contents.landed(id, { start: 0, end: 3000 }, new Uint8Array(3000).fill(7));
  place.contents.collect();

  expect(isHere(place, id)).toBe(true);
  expect(place.contents.fetchPath(version(place, MIB, 'large'))).toBeNull();
  await stop(place);
});

test.each([
  ['all of it is here', null],
  ['what it lay over is not here', 3 * BLOCK_BYTES],
])('a long change that was cut short again is counted as what it is when it is pushed: %s', async (_, baseBytes) => {
  const place = await open({});
  const { store, contents } = place;
  const base = baseBytes === null ? null : version(place, baseBytes, 'base');
  const id = store.transact((tx) => {
    const draft = contents.createDraft(tx, base === null ? null : { content: base, sizeBytes: baseBytes as number });
    countReference(tx, draft, 1);
    return draft;
  });
  contents.write(id, 1000, new Uint8Array(MIB).fill(7));
  if (base === null) contents.write(id, 0, new Uint8Array(1000).fill(7));
  contents.truncate(id, 2000);
  store.transact((tx) => contents.seal(tx, id));
  store.transact((tx) => contents.adopt(tx, id, `${FILE}/version/2` as VersionUrl, FILE));
  // As housekeeping does it.
  for (let round = 0; round < 2; round++) {
    contents.collect();
    await contents.mergeLayers(new AbortController().signal);
  }

  expect(onDisk(place.directory).files).toBe(0);
  expect(contents.usage().cacheBytes).toBe(base === null ? 2000 : 0);
  await stop(place);
});

test('before stock-taking no cache file is removed for lack of complete blocks', async () => {
  const first = await open({});
  const id = version(first, 3 * BLOCK_BYTES, 'f');
  fetch(first, id, 0, BLOCK_BYTES);
  await stop(first);

  const again = await open({}, first.directory);
  // A mount that ends right after it began.
  await again.contents.takeStock(AbortSignal.abort());
  // A range that was cut in a block.
  fetch(again, id, BLOCK_BYTES, BLOCK_BYTES + 1000);
  again.contents.collect();
  expect(again.contents.readAll(id, { start: 0, end: BLOCK_BYTES })).not.toBeNull();

  await again.contents.takeStock(new AbortController().signal);
  again.contents.collect();
  expect(again.contents.readAll(id, { start: 0, end: BLOCK_BYTES })).not.toBeNull();
  expect(again.contents.usage()).toMatchObject({ cacheBytes: onDisk(again.directory).files });
  await stop(again);
});

/** A draft of a megabyte in its file, that somebody refers to. */
function written({ store, contents }: ContentPlace): ContentId {
  const id = store.transact((tx) => {
    const draft = contents.createDraft(tx, null);
    countReference(tx, draft, 1);
    return draft;
  });
  contents.write(id, 0, new Uint8Array(MIB).fill(7));
  return id;
}

/** What SIGKILL leaves of a place, in the next run. */
async function killed(place: ContentPlace, deps: Partial<ContentStoreDeps> = {}): Promise<ContentPlace> {
  const copy = stores.copyOf(place.directory);
  await stop(place);
  return await open({}, copy, deps);
}

async function tidied({ contents }: ContentPlace): Promise<void> {
  expect(await contents.takeStock(new AbortController().signal)).toBe(true);
  contents.collect();
}

test('a fetch that was killed before its block map was stored leaves no permanent disk usage', async () => {
  const first = await open({});
  const id = version(first, 3 * BLOCK_BYTES, 'f');
  const other = version(first, 3 * BLOCK_BYTES, 'g');
  for (const each of [id, other]) {
    const fd = openSync(first.contents.fetchPath(each) as string, 'r+');
    writeSync(fd, new Uint8Array(2 * BLOCK_BYTES).fill(7));
    closeSync(fd);
  }
  const again = await killed(first);
  expect(onDisk(again.directory).files).toBeGreaterThan(0);
  // Somebody is faster than the stock-taking.
  fetch(again, other, 0, 3 * BLOCK_BYTES);

  await tidied(again);

  const { files } = onDisk(again.directory);
  expect(files).toBe(3 * BLOCK_BYTES);
  expect(again.contents.usage().cacheBytes).toBe(files);
  expect(isHere(again, other)).toBe(true);
  fetch(again, id, 0, 3 * BLOCK_BYTES);
  expect(isHere(again, id)).toBe(true);
  await stop(again);
});

test('what was written by somebody who was killed before his first close leaves nothing on the disk for good', async () => {
  const first = await open({});
  const id = written(first);
  const again = await killed(first);
  expect(bytesBelow(join(again.directory, 'drafts'))).toBe(MIB);

  await tidied(again);

  expect(bytesBelow(join(again.directory, 'drafts'))).toBe(0);
  expect(again.contents.sizeOf(id)).toBe(0);
  again.contents.write(id, 0, new Uint8Array(MIB).fill(8));
  await tidied(again);
  expect(Buffer.compare(again.contents.readAll(id, ALL) as Uint8Array, new Uint8Array(MIB).fill(8))).toBe(0);
  await stop(again);
});

test('a cache file without a valid block after a reboot is removed', async () => {
  const first = await open({}, undefined, { bootId: 'first' });
  await tidied(first);
  const id = written(first);
  first.store.transact((tx) => {
    first.contents.seal(tx, id);
    first.contents.adopt(tx, id, `${FILE}/version/2` as VersionUrl, FILE);
  });
  const again = await killed(first, { bootId: 'second' });

  await tidied(again);

  expect(isHere(again, id)).toBe(false);
  expect(onDisk(again.directory).files).toBe(0);
  expect(again.contents.usage().cacheBytes).toBe(0);
  await stop(again);
});

test('a file that was not moved before its run was killed is counted where it lies', async () => {
  const first = await open({});
  const id = written(first);
  first.store.transact((tx) => {
    first.contents.seal(tx, id);
    first.contents.adopt(tx, id, `${FILE}/version/2` as VersionUrl, FILE);
  });
  const again = await killed(first);
  const name = join((id % 256).toString(16).padStart(2, '0'), String(id));
  mkdirSync(dirname(join(again.directory, 'drafts', name)), { recursive: true });
  renameSync(join(again.directory, 'cache', name), join(again.directory, 'drafts', name));

  await tidied(again);

  expect(again.contents.usage().cacheBytes).toBe(MIB);
  expect(onDisk(again.directory).files).toBe(MIB);
  expect(isHere(again, id)).toBe(true);
  await stop(again);
});

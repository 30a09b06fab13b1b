import { closeSync, constants, existsSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { crc32 } from 'node:zlib';
import { expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import { BLOCK_BYTES, type ContentId, type ResourceUrl, type VersionUrl } from '../../src/base/vocabulary.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { countReference } from '../../src/store/node-table.ts';
import { type ContentPlace, openPlace, referredVersion } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const BLOCKS = 32;
const SIZE_BYTES = BLOCKS * BLOCK_BYTES;

/** As `transfer/landing` does it, with checksums of what came. */
function land({ contents }: ContentPlace, id: ContentId, block: number, bytes: Uint8Array): void {
  const path = contents.fetchPath(id) as string;
  mkdirSync(dirname(path), { recursive: true });
  const fd = openSync(path, constants.O_WRONLY | constants.O_CREAT, 0o600);
  writeSync(fd, bytes, 0, bytes.byteLength, block * BLOCK_BYTES);
  closeSync(fd);
  const checksums = new Map([[block, crc32(bytes)]]);
  contents.landed(id, { start: block * BLOCK_BYTES, end: (block + 1) * BLOCK_BYTES }, null, checksums);
}

test('what is fetched of a version whose draft once found no room for its file is what was fetched', async () => {
  let isFull = false;
  const disk: Disk = Object.create(systemDisk, {
    write: {
      value: (fd: number, bytes: Uint8Array, position: number) => {
        if (isFull) throw new StorageError('no room', { full: true });
        systemDisk.write(fd, bytes, position);
      },
    },
  });
  const place = await openPlace(stores, { cacheBytes: 7 * 1024 * 1024 }, stores.directory(), { disk });
  const { contents, store } = place;
  await contents.takeStock(new AbortController().signal);
  const base = referredVersion(place, FILE, SIZE_BYTES, '1');
  for (let block = 0; block < BLOCKS; block++) land(place, base, block, new Uint8Array(BLOCK_BYTES).fill(9));
  // A few bytes are changed at its beginning, then some further on, for which the disk has no room; close(2).
  const id = store.transact((tx) => {
    const draft = contents.createDraft(tx, { content: base, sizeBytes: SIZE_BYTES });
    countReference(tx, draft, 1);
    countReference(tx, base, -1);
    return draft;
  });
  contents.write(id, 0, new Uint8Array(1000).fill(7));
  isFull = true;
  expect(() => contents.write(id, 20 * BLOCK_BYTES, new Uint8Array(100).fill(8))).toThrow(StorageError);
  isFull = false;
  store.transact((tx) => contents.seal(tx, id));
  // It is pushed.
  store.transact((tx) => contents.adopt(tx, id, `${FILE}/version/2` as VersionUrl, FILE));
  await contents.mergeLayers(new AbortController().signal);
  contents.collect();
  expect(contents.readAll(id, { start: 0, end: 1001 })?.at(-1)).toBe(9);

  // Another file is read: part of this one goes, and is fetched again.
  const other = referredVersion(place, FILE, SIZE_BYTES, 'other');
  const isHere = (block: number) =>
    contents.pieces(id, { start: block * BLOCK_BYTES, end: block * BLOCK_BYTES + 1 })[0]?.kind === 'slice';
  for (let block = 0; block < BLOCKS; block++) land(place, other, block, new Uint8Array(BLOCK_BYTES).fill(5));
  const more = referredVersion(place, FILE, SIZE_BYTES, 'more');
  for (let block = 0; block < 24; block++) land(place, more, block, new Uint8Array(BLOCK_BYTES).fill(5));
  const gone = Array.from({ length: BLOCKS }, (_, block) => block).filter((block) => !isHere(block));
  expect(gone.length).toBeGreaterThan(0);
  const block = gone[0] as number;
  land(place, id, block, new Uint8Array(BLOCK_BYTES).fill(9));
  expect(contents.readAll(id, { start: block * BLOCK_BYTES + 2000, end: block * BLOCK_BYTES + 2001 })).toEqual(
    new Uint8Array([9]),
  );
  expect(store.get('inline', id)).toBeUndefined();
});

test('a write for which the new file of a draft has no room leaves the draft as it was, in memory', async () => {
  let roomBytes = Number.POSITIVE_INFINITY;
  const disk: Disk = {
    ...systemDisk,
    write(fd, bytes, position) {
      if (bytes.byteLength > roomBytes) {
        systemDisk.write(fd, bytes.subarray(0, roomBytes), position);
        throw new StorageError('no room', { full: true });
      }
      systemDisk.write(fd, bytes, position);
    },
  };
  const place = await openPlace(stores, {}, stores.directory(), { disk });
  const { contents, store } = place;
  const base = referredVersion(place, FILE, SIZE_BYTES, '1');
  for (let block = 0; block < BLOCKS; block++) land(place, base, block, new Uint8Array(BLOCK_BYTES).fill(9));
  const id = store.transact((tx) => {
    const draft = contents.createDraft(tx, { content: base, sizeBytes: SIZE_BYTES });
    countReference(tx, draft, 1);
    return draft;
  });
  contents.write(id, 0, new Uint8Array(1000).fill(7));
  store.transact((tx) => contents.flush(tx, id));
  roomBytes = 2000;
  expect(() => contents.write(id, 500, new Uint8Array(100_000).fill(8))).toThrow(StorageError);
  expect(() => contents.writeAtPace(id, 500, new Uint8Array(100_000).fill(8))).toThrow(StorageError);
  roomBytes = Number.POSITIVE_INFINITY;

  const bytes = new Uint8Array(1100).fill(9).fill(7, 0, 1000);
  expect(contents.readAll(id, { start: 0, end: 1100 })).toEqual(bytes);
  store.transact((tx) => contents.seal(tx, id));
  expect(contents.readAll(id, { start: 0, end: 1100 })).toEqual(bytes);
  // It is pushed, and its file lies where it is looked for and counted.
  store.transact((tx) => contents.adopt(tx, id, `${FILE}/version/2` as VersionUrl, FILE));
  await contents.mergeLayers(new AbortController().signal);
  contents.collect();
  expect(contents.usage().cacheBytes).toBe(2 * SIZE_BYTES);
  expect(contents.fetchPath(id)).toContain('/cache/');
});

test('what a close could not keep does not stay on the disk, whoever else reads the file', async () => {
  const place = await openPlace(stores);
  const { contents, store, directory } = place;
  const id = store.transact((tx) => {
    const draft = contents.createDraft(tx, null);
    countReference(tx, draft, 1);
    return draft;
  });
  const path = join(directory, 'drafts', id.toString(16).padStart(2, '0'), String(id));
  const reader = contents.lease(id);
  contents.write(id, 0, new Uint8Array(100_000).fill(7));
  expect(existsSync(path)).toBe(true);

  // Its record found no room: the writer was told so.
  expect(contents.putDown(id)).toBe(true);

  expect(existsSync(path)).toBe(false);
  expect(contents.sizeOf(id)).toBe(0);
  contents.write(id, 0, new Uint8Array(200_000).fill(8));
  store.transact((tx) => contents.flush(tx, id));
  reader.release();
  expect(contents.putDown(id)).toBe(false);
  expect(contents.readAll(id, { start: 0, end: 1e6 })).toHaveLength(200_000);
});

import { closeSync, openSync, writeSync } from 'node:fs';
import { expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import { BLOCK_BYTES, type ContentId, type ResourceUrl, type VersionUrl } from '../../src/base/vocabulary.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { countReference } from '../../src/store/node-table.ts';
import { type ContentPlace, openPlace, referredVersion } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

/** Rows of a content that has no use for them any more: `cfs doctor` takes them for damage of the store. */

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const never = new AbortController().signal;

function fetched(place: ContentPlace, sizeBytes: number, name: string): ContentId {
  const id = referredVersion(place, FILE, sizeBytes, name);
  const fd = openSync(place.contents.fetchPath(id) as string, 'r+');
  writeSync(fd, new Uint8Array(sizeBytes).fill(9));
  closeSync(fd);
  place.contents.landed(id, { start: 0, end: sizeBytes }, null);
  return id;
}

function written({ store, contents }: ContentPlace, base: ContentId | null, bytes: Uint8Array): ContentId {
  const id = store.transact((tx) => {
    const under = base === null ? null : { content: base, sizeBytes: contents.sizeOf(base) };
    const draft = contents.createDraft(tx, under);
    countReference(tx, draft, 1);
    return draft;
  });
  contents.write(id, 0, bytes);
  store.transact((tx) => contents.seal(tx, id));
  return id;
}

function pushed({ store, contents }: ContentPlace, id: ContentId): void {
  store.transact((tx) => contents.adopt(tx, id, `${FILE}/version/pushed` as VersionUrl, FILE));
}

async function stop({ store, contents }: ContentPlace): Promise<void> {
  contents.close();
  await store.close();
}

test('a small change that once found no space in its file leaves no small bytes after its merge', async () => {
  let isFull = false;
  const disk: Disk = {
    ...systemDisk,
    write(fd, bytes, position) {
      if (isFull) throw new StorageError('no room', { full: true });
      systemDisk.write(fd, bytes, position);
    },
  };
  const place = await openPlace(stores, {}, stores.directory(), { disk });
  const base = fetched(place, 2 * BLOCK_BYTES, 'base');
  const id = written(place, base, new Uint8Array(1000).fill(7));
  pushed(place, id);
  isFull = true;
  await place.contents.mergeLayers(never);
  isFull = false;
  await place.contents.mergeLayers(never);

  expect(place.contents.record(id)).toMatchObject({ where: 'file', extents: [], base: null });
  expect(place.contents.readAll(id, { start: 999, end: 1001 })).toEqual(new Uint8Array([7, 9]));
  expect(place.store.get('inline', id)).toBeUndefined();
  await stop(place);
});

test('a removed file leaves no row of its block map although the map could not be stored before', async () => {
  const place = await openPlace(stores, { cacheBytes: 1 });
  const { store, contents } = place;
  const lease = contents.lease(1 as ContentId);
  const id = fetched(place, 2 * BLOCK_BYTES, 'f');
  contents.collect(); // its map is stored
  expect([...store.scan('blocks', id)]).toHaveLength(1);
  lease.release();
  const transact = store.transact.bind(store);
  let refused = 0;
  store.transact = (change) => {
    if (refused++ === 0) throw new StorageError('no room', { full: true });
    return transact(change);
  };
  contents.collect();

  expect(refused).toBe(2);
  expect(contents.record(id)?.where).toBe('none');
  expect([...store.scan('blocks', id)]).toEqual([]);
  await stop(place);
});

test('a file that becomes small by --inline-max leaves no row of its block map', async () => {
  const first = await openPlace(stores, { inlineMaxBytes: 4096 });
  const id = written(first, null, new Uint8Array(50_000).fill(7));
  await expect.poll(() => [...first.store.scan('blocks', id)].length, { timeout: 20_000 }).toBe(1); // it has a checksum
  pushed(first, id);
  await stop(first);

  const again = await openPlace(stores, { inlineMaxBytes: 128 * 1024 }, first.directory);
  expect(await again.contents.takeStock(never)).toBe(true);
  await again.contents.mergeLayers(never);

  expect(again.contents.record(id)?.where).toBe('inline');
  expect([...again.store.scan('blocks', id)]).toEqual([]);
  await stop(again);
});

import { closeSync, openSync, writeSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { isWhole } from '../../src/bytes/whole-content.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { openPlace, referredVersion } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

const MIB = 1024 * 1024;
const FILE = 'https://service.example/file/1' as ResourceUrl;
const stores = new TemporaryStores();

/** [S-xattr-6] */
test('the question how much of a large file is here reads none of its bytes, also after a restart', async () => {
  const sizeBytes = 70 * MIB;
  const before = await openPlace(stores);
  const id = referredVersion(before, FILE, sizeBytes, 'large');
  expect(before.contents.presence(id, sizeBytes)).toBe('none');
  const fetch = (start: number): void => {
    const fd = openSync(before.contents.fetchPath(id) as string, 'r+');
    writeSync(fd, new Uint8Array(MIB).fill(7), 0, MIB, start);
    closeSync(fd);
    before.contents.landed(id, { start, end: start + MIB }, null);
  };
  for (let start = MIB; start < sizeBytes; start += MIB) fetch(start);
  expect(before.contents.presence(id, sizeBytes)).toBe('part');
  fetch(0);
  before.contents.close();
  await before.store.close();

  let readBytes = 0;
  const disk: Disk = Object.create(systemDisk, {
    read: {
      value: (...args: Parameters<Disk['read']>) => {
        const bytes = systemDisk.read(...args);
        readBytes += bytes;
        return bytes;
      },
    },
  });
  const after = await openPlace(stores, {}, before.directory, { disk });
  expect(after.contents.presence(id, sizeBytes)).toBe('all');
  expect(readBytes).toBe(0);
  after.contents.pieces(id, { start: 0, end: sizeBytes });
  expect(readBytes).toBe(sizeBytes);
  after.contents.close();
  await after.store.close();
});

/** [S-hostile-1] A walk over all blocks of such a length would not end, and would fill the memory. */
test('the length that a service claims costs neither time nor memory when nothing, or little, of it is here', async () => {
  const sizeBytes = Number.MAX_SAFE_INTEGER;
  const place = await openPlace(stores);
  const { contents, store } = place;
  const id = referredVersion(place, FILE, sizeBytes, 'claimed');
  const before = process.memoryUsage().heapUsed;
  expect(contents.presence(id, sizeBytes)).toBe('none');
  expect(isWhole(contents, id)).toBe(false);

  const start = 1024 * 1024 * MIB;
  const fd = openSync(contents.fetchPath(id) as string, 'r+');
  writeSync(fd, new Uint8Array(MIB).fill(7), 0, MIB, start);
  closeSync(fd);
  contents.landed(id, { start, end: start + MIB }, null);
  expect(contents.presence(id, sizeBytes)).toBe('part');
  expect(contents.presence(id, start)).toBe('none');
  expect(isWhole(contents, id)).toBe(false);

  const draft = store.transact((tx) => contents.createDraft(tx, { content: id, sizeBytes }));
  expect(contents.presence(draft, sizeBytes)).toBe('part');
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * MIB);
  contents.close();
  await store.close();
});

import { closeSync, constants, mkdirSync, openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import { BLOCK_BYTES, type ContentId, type ResourceUrl, type VersionUrl } from '../../src/base/vocabulary.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { countReference } from '../../src/store/node-table.ts';
import { type ContentPlace, openPlace, referredVersion } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const SIZE_BYTES = 16 * BLOCK_BYTES;

/** As a fetch does it: the file is opened by its path, and made where there is none. */
function land({ contents }: ContentPlace, id: ContentId, block: number): void {
  const path = contents.fetchPath(id) as string;
  mkdirSync(dirname(path), { recursive: true });
  const fd = openSync(path, constants.O_WRONLY | constants.O_CREAT, 0o600);
  writeSync(fd, new Uint8Array(BLOCK_BYTES).fill(1), 0, BLOCK_BYTES, block * BLOCK_BYTES);
  closeSync(fd);
  contents.landed(id, { start: block * BLOCK_BYTES, end: (block + 1) * BLOCK_BYTES }, null);
}

async function stop({ store, contents }: ContentPlace): Promise<void> {
  contents.close();
  await store.close();
}

test.each([
  ['had room again', false],
  ['was still full', true],
])(
  'the file of a version that a full disk kept from being moved is found by a fetch that comes first, where the disk %s',
  async (_, isFull) => {
    const full: Disk = Object.create(systemDisk, {
      rename: {
        value: () => {
          throw new StorageError('no room', { full: true });
        },
      },
    });
    const first = await openPlace(stores, {}, stores.directory(), { disk: full, bootId: 'one' });
    await first.contents.takeStock(new AbortController().signal);
    const base = referredVersion(first, FILE, SIZE_BYTES, '1');
    land(first, base, 0);
    const id = first.store.transact((tx) => {
      const draft = first.contents.createDraft(tx, { content: base, sizeBytes: SIZE_BYTES });
      first.contents.write(draft, 100, new Uint8Array(9000).fill(7));
      first.contents.seal(tx, draft);
      countReference(tx, draft, 1);
      return draft;
    });
    first.store.transact((tx) => first.contents.adopt(tx, id, `${FILE}/version/2` as VersionUrl, FILE));
    expect(first.contents.readAll(id, { start: 100, end: 101 })).toEqual(new Uint8Array([7]));
    await stop(first);

    const second = await openPlace(stores, {}, first.directory, { bootId: 'one', ...(isFull && { disk: full }) });
    await second.contents.takeStock(new AbortController().signal);
    expect(second.contents.pieces(id, { start: 8 * BLOCK_BYTES, end: 9 * BLOCK_BYTES })[0]?.kind).toBe('missing');
    land(second, id, 8);
    expect(second.contents.readAll(id, { start: 100, end: 101 })).toEqual(new Uint8Array([7]));
    expect(second.contents.readAll(id, { start: 8 * BLOCK_BYTES, end: 8 * BLOCK_BYTES + 1 })).toEqual(
      new Uint8Array([1]),
    );
    await second.contents.mergeLayers(new AbortController().signal);
    await stop(second);

    const third = await openPlace(stores, {}, first.directory, { bootId: 'two' });
    expect(third.contents.readAll(id, { start: 100, end: 101 })?.[0] ?? 7).toBe(7);
    await stop(third);
  },
);

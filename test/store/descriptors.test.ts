import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { toFsError } from '../../src/base/errors.ts';
import { BLOCK_BYTES, type ContentId, type ResourceUrl } from '../../src/base/vocabulary.ts';
import { ContentFiles } from '../../src/bytes/content-files.ts';
import { type Disk, storageErrorOf, systemDisk } from '../../src/store/disk.ts';
import { countReference } from '../../src/store/node-table.ts';
import { FAST_DISK } from '../harness/fast-disk.ts';
import { openPlace, referredVersion } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

/** What files of contents take of the descriptors that a process may have, and what becomes of them when there are no more. */

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const BYTES = new Uint8Array(10).fill(1);

let descriptorsMax: number;
let open: Set<number>;
let directory: string;
let files: ContentFiles;

const disk: Disk = {
  ...systemDisk,
  open: (path, how) => {
    if (open.size >= descriptorsMax)
      throw storageErrorOf(Object.assign(new Error(), { code: 'EMFILE' }), 'cannot open');
    const fd = systemDisk.open(path, how);
    open.add(fd);
    return fd;
  },
  close: (fd) => {
    systemDisk.close(fd);
    open.delete(fd);
  },
};

beforeEach(() => {
  descriptorsMax = Number.POSITIVE_INFINITY;
  open = new Set();
  directory = mkdtempSync(join(FAST_DISK, 'cfs-descriptors-'));
  files = new ContentFiles({ directory, disk, holes: null, pace: null });
});
afterEach(() => {
  files.closeAll();
  rmSync(directory, { recursive: true, force: true });
});

function ids(count: number): ContentId[] {
  return Array.from({ length: count }, (_, index) => (index + 1) as ContentId);
}

function make(id: ContentId): void {
  files.create(id, 'drafts');
  files.write(id, 'drafts', BYTES, 0);
}

// A process may have 1,024 of them where nobody says otherwise, and this one runs other tests beside.
test('all open files of programs have descriptors, and only a few idle files keep one', () => {
  for (const id of ids(300)) {
    files.hold(id);
    make(id);
  }
  expect(open.size).toBe(300);

  for (const id of ids(300)) files.release(id);

  expect(open.size).toBe(256);
});

test('a low descriptor limit reserves half for everything else, and a quarter for files without a holder', () => {
  files = new ContentFiles({ directory, disk, holes: null, pace: null, descriptorLimit: 100 });
  const held = ids(50);
  for (const id of held) {
    files.hold(id);
    make(id);
  }
  let refusal: unknown = null;
  try {
    make(51 as ContentId);
  } catch (error) {
    refusal = error;
  }
  expect(toFsError(refusal).errno).toBe('ENFILE');

  for (const id of held) files.release(id);

  expect(open.size).toBe(25);
  make(51 as ContentId);
});

test('what nobody holds is closed where no descriptor is left, and what is held stays', () => {
  descriptorsMax = 20;
  const [held = 0 as ContentId, ...others] = ids(50);
  files.hold(held);
  make(held);
  const fd = files.descriptor(held, 'drafts');

  for (const id of others) make(id);
  for (const id of others) expect(files.read(id, 'drafts', new Uint8Array(10), 0)).toBe(10);

  expect(files.descriptor(held, 'drafts')).toBe(fd);
  expect(open.size).toBeLessThanOrEqual(20);
});

test('a file that lies elsewhere is found again once there is a descriptor for it', () => {
  const [held = 0 as ContentId, stray = 0 as ContentId] = ids(2);
  make(stray);
  files.close(stray);
  descriptorsMax = 1;
  files.hold(held);
  make(held);
  expect(() => files.descriptor(stray, 'cache')).toThrow('EMFILE');

  files.release(held);

  expect(files.read(stray, 'cache', new Uint8Array(10), 0)).toBe(10);
});

test('the layers of a file are told apart where there is one descriptor for both, and nobody holds them', async () => {
  const sizeBytes = 2 * BLOCK_BYTES;
  const all = { start: 0, end: sizeBytes };
  const place = await openPlace(stores);
  const version = referredVersion(place, FILE, sizeBytes, '1');
  const fd = openSync(place.contents.fetchPath(version) as string, 'r+');
  writeSync(fd, new Uint8Array(sizeBytes).fill(1));
  closeSync(fd);
  place.contents.landed(version, all, null);
  const draft = place.store.transact((tx) => {
    const id = place.contents.createDraft(tx, { content: version, sizeBytes });
    countReference(tx, id, 1);
    return id;
  });
  place.contents.write(draft, 0, new Uint8Array(BLOCK_BYTES).fill(2));
  place.store.transact((tx) => place.contents.flush(tx, draft));
  place.contents.close();
  await place.store.close();

  const { contents } = await openPlace(stores, {}, place.directory, { disk });
  descriptorsMax = open.size + 1;
  expect(() => contents.readAll(draft, all)).toThrow('EMFILE');
  descriptorsMax++;
  const bytes = contents.readAll(draft, all);
  expect([bytes?.at(0), bytes?.at(-1)]).toEqual([2, 1]);
  contents.close();
});

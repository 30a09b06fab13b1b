import { constants } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { storageErrorOf } from '../../src/store/disk.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { isDraftFile, WatchedSyncs } from '../store/watched-syncs.ts';
import { MODEL_ROOT } from './model-service.ts';

/**
 * What the service has makes a file clean, and a clean file is believed after a power cut: not a byte of a draft is sent before its file
 * is on the disk.
 */

const SETTLE_MS = 2_000;
const SMALL = Buffer.alloc(100_000, 's');
const LARGE = Buffer.alloc(1_500_000, 'l');

let watched: WatchedSyncs;
let world: SyncedSide;
beforeEach(async () => {
  watched = new WatchedSyncs();
  world = await SyncedSide.build({ disk: watched.disk, heldSyncs: () => watched.held });
});
afterEach(async () => {
  watched.letThrough();
  await world.close();
});

const puts = (): string[] => world.service.requests.filter((name) => name.startsWith('put'));
const syncsOfDrafts = (): string[] => watched.begun.filter(isDraftFile);
const bytesOf = (name: string): Buffer | undefined =>
  world.service.childrenOf(MODEL_ROOT).find((file) => file.name === name)?.versions[0]?.bytes;

/** Whatever needs no sync that is held happens. */
async function calm(): Promise<void> {
  for (let round = 0; round < 5; round++) await world.pass(SETTLE_MS);
}

/** Changes some bytes in the middle of a file. */
async function patch(name: string, text: string): Promise<void> {
  const fd = await world.mount.open(name, constants.O_RDWR);
  await world.mount.write(fd, 40_000, Buffer.alloc(20_000, text));
  await world.mount.close(fd);
}

describe('no byte is uploaded before the file is on the disk', () => {
  test.each([
    ['in one request', SMALL],
    ['as a version', LARGE],
  ])('%s', async (_, bytes) => {
    watched.isHeld = isDraftFile;
    await world.mount.writeFile('file', bytes);
    await calm();
    expect(syncsOfDrafts()).not.toEqual([]);
    expect(puts()).toEqual([]);

    watched.letThrough();
    await world.converge();
    expect(bytesOf('file')?.equals(bytes)).toBe(true);
  });

  test('no byte is uploaded before the name of the file is on the disk', async () => {
    watched.isHeld = (path) => /\/drafts\/..$/.test(path);
    await world.mount.writeFile('file', SMALL);
    await calm();
    expect(puts()).toEqual([]);

    watched.letThrough();
    await world.converge();
    expect(bytesOf('file')?.equals(SMALL)).toBe(true);
  });

  test('a change over a pushed version is synced before it is sent', async () => {
    await world.mount.writeFile('file', SMALL);
    await world.converge();
    const before = puts().length;
    watched.isHeld = isDraftFile;
    await patch('file', 'p');
    await calm();
    expect(puts()).toHaveLength(before);

    watched.letThrough();
    await world.converge();
    expect(bytesOf('file')?.subarray(40_000, 60_000).equals(Buffer.alloc(20_000, 'p'))).toBe(true);
  });
});

test('a small file is sent while a large one that was closed earlier is still being synced', async () => {
  await world.mount.writeFile('large', LARGE);
  let first: string | null = null;
  watched.isHeld = (path) => {
    if (!isDraftFile(path)) return false;
    first ??= path;
    return path === first;
  };
  await calm();
  await world.mount.writeFile('small', SMALL);
  for (let round = 0; round < 200 && puts().length === 0; round++) await world.pass(SETTLE_MS);

  expect(bytesOf('small')?.equals(SMALL)).toBe(true);
  expect(bytesOf('large')?.byteLength ?? 0).toBe(0);
});

test('bytes that were synced during the settle delay are not synced again for the push', async () => {
  for (let n = 0; n < 12; n++) await world.mount.writeFile(`file${n}`, SMALL);
  await world.mount.writeFile('large', LARGE);
  await world.converge();
  await calm();

  expect(syncsOfDrafts().toSorted()).toEqual([...new Set(syncsOfDrafts())].toSorted());
  expect(syncsOfDrafts()).toHaveLength(13);
});

test('bytes inside the database wait for no sync of a file', async () => {
  watched.isHeld = isDraftFile;
  await world.mount.writeFile('short', Buffer.from('short'));
  await world.converge();

  expect(bytesOf('short')?.toString()).toBe('short');
});

test('an unmount does not wait for a long sync', async () => {
  watched.isHeld = isDraftFile;
  await world.mount.writeFile('file', LARGE);
  await calm();
  expect(world.sync.status().pushing).toBe(1);

  await world.sync.stop();
  expect(puts()).toEqual([]);
});

test('bytes that the disk lost are never sent, and a caller that waits for them gets an error', async () => {
  const failed = new Set<string>();
  watched.isFailing = (path) => isDraftFile(path) && !failed.has(path) && failed.add(path).size > 0;
  await world.mount.writeFile('file', SMALL);
  for (let round = 0; round < 200 && world.sync.status().parked.length === 0; round++) await world.pass(SETTLE_MS);

  expect(world.sync.status().parked).toMatchObject([{ reason: 'local-damage' }]);
  expect(puts()).toEqual([]);
  const fd = await world.mount.open('file', constants.O_RDWR);
  await world.mount.read(fd, 0, 1);
  await expect(world.mount.fsync(fd)).rejects.toMatchObject({ errno: 'EIO' });
  await world.mount.close(fd);

  await world.mount.writeFile('file', LARGE);
  watched.isFailing = () => false;
  await world.converge();
  expect(bytesOf('file')?.equals(LARGE)).toBe(true);
});

test('a file that finds no free descriptor is sent once there is one, and blocks no other file', async () => {
  let isOut = true;
  const { disk } = watched;
  const { syncDirectory } = disk;
  disk.syncDirectory = async (path) => {
    if (isOut) throw storageErrorOf(Object.assign(new Error('out'), { code: 'EMFILE' }), `cannot open ${path}`);
    await syncDirectory(path);
  };
  await world.mount.writeFile('file', SMALL);
  await calm();
  expect(puts()).toEqual([]);
  expect(world.sync.status().parked).toEqual([]);

  isOut = false;
  await world.converge();
  expect(bytesOf('file')?.equals(SMALL)).toBe(true);
});

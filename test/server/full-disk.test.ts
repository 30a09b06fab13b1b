import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { DiskReserve, type DiskSpace } from '../../src/server/disk-reserve.ts';
import { truncatePartialUploads } from '../../src/server/housekeeping.ts';
import { openParts } from '../../src/server/local-back-end.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { accessToken, signUp, type TestUser, texts } from './raw-client.ts';

/** A server whose disk fills: it takes no more bytes while there is still room for what makes some (docs/service.md 2.4). */

const MIB = 1024 * 1024;
const DISK_BYTES = 32 * MIB;
/** Of such a disk. */
const RESERVE_BYTES = 8 * MIB;

let directory: string;
/** What other programs have on the disk. */
let othersBytes: number;
let server: ReferenceServer;
let user: TestUser;

const blobBytes = () =>
  readdirSync(join(directory, 'blobs'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);

const disk: DiskSpace = {
  totalBytes: DISK_BYTES,
  freeBytes: () => DISK_BYTES - othersBytes - blobBytes(),
};

async function restartMachine(): Promise<void> {
  await server.close();
  const parts = openParts({ dataDirectory: directory, disk });
  await truncatePartialUploads(parts, 'another start of the machine');
  await parts.database.close();
  server = await openServer();
}

const openServer = () => ReferenceServer.open({ dataDirectory: directory, disk });

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-full-disk-'));
  othersBytes = 0;
  // The first start makes the data: a disk like any.
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'a@example.com');
  await user.client.createFilled(user.folder('2'), 'makes the folder of the blobs', Buffer.alloc(20_000));
  await server.close();
  server = await openServer();
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const CHUNKED = { 'Transfer-Encoding': 'chunked' };
const newFile = () => user.client.createFile(user.folder('2'), 'file');
const newVersion = async (file: string) =>
  (await user.client.send('POST', `${file}/version`)).headers.location as string;

test('an upload that leaves too little is 507, announced before it is read; signing in, deleting and a restart go on', async () => {
  const body = Buffer.alloc(40 * MIB);
  const file = await newFile();
  const version = await newVersion(file);
  const before = server.requests.bytesIn;

  const announced = await user.client.send('PUT', `${version}/data`, { body });
  const taken = server.requests.bytesIn - before;
  const chunked = await user.client.send('PUT', `${version}/data`, { body, headers: CHUNKED });
  const plain = await user.client.send('PUT', `${await newFile()}/data`, { body, headers: CHUNKED });

  expect([announced.status, taken, chunked.status, plain.status]).toEqual([507, 0, 507, 507]);
  expect(disk.freeBytes()).toBeGreaterThanOrEqual(RESERVE_BYTES);
  expect(disk.freeBytes()).toBeLessThan(RESERVE_BYTES + 2 * MIB);
  await restartMachine();
  user.client.token = await accessToken(server.origin, user, user.refreshToken);
  expect(Number(texts((await user.client.get(version)).text, 'storedSize')[0])).toBeGreaterThan(DISK_BYTES / 2);
  expect((await user.client.send('DELETE', file)).status).toBe(204);
  expect((await user.client.send('PUT', `${await newFile()}/data`, { body: body.subarray(0, 8 * MIB) })).status).toBe(
    204,
  );
});

test('uploads that come together leave the reserve alone, too', async () => {
  const versions = await Promise.all(Array.from({ length: 6 }, async () => newVersion(await newFile())));

  const answers = await Promise.all(
    versions.map((version) =>
      user.client.send('PUT', `${version}/data`, { body: Buffer.alloc(7 * MIB), headers: CHUNKED }),
    ),
  );

  expect(new Set(answers.map(({ status }) => status))).toContain(507);
  expect(disk.freeBytes()).toBeGreaterThanOrEqual(RESERVE_BYTES);
});

test('an upload that has all its bytes is completed in the reserve', async () => {
  const file = await newFile();
  const version = await newVersion(file);
  server.faults = [{ on: 'PUT', then: { acceptBytes: 20_000 } }];
  await user.client.send('PUT', `${version}/data`, { body: Buffer.alloc(30_000) });
  server.faults = [];
  othersBytes = DISK_BYTES - 6 * MIB;

  const more = await user.client.send('PUT', `${version}/data`, { body: 'x', headers: { Range: 'bytes=20000-' } });
  const end = await user.client.send('PUT', `${version}/data`, { body: '', headers: { Range: 'bytes=20000-' } });

  expect([more.status, end.status]).toEqual([507, 200]);
});

test('a disk that others have filled refuses changes with 507, is read from and started on, and serves again with room', async () => {
  const file = await user.client.createFilled(user.folder('2'), 'kept', 'data');
  othersBytes = DISK_BYTES;

  const refused = await user.client.send('DELETE', file);
  await restartMachine();
  const read = await user.client.get(`${file}/data`);
  othersBytes = 0;
  const removed = await user.client.send('DELETE', file);

  expect([refused.status, read.text, removed.status]).toEqual([507, 'data', 204]);
});

test('a start that fails listens no longer', async () => {
  await server.close();
  othersBytes = DISK_BYTES;

  // Another address has to be kept, and cannot be.
  const elsewhere = ReferenceServer.open({ dataDirectory: directory, disk, publicOrigin: 'https://cloud.example.com' });

  await expect(elsewhere).rejects.toThrow('no room');
  server = await openServer();
});

test('what is on its way to the disk has taken its room already', async () => {
  const reserve = new DiskReserve({ totalBytes: DISK_BYTES, freeBytes: () => RESERVE_BYTES + 100 });
  let written = (): void => {};
  const writing = new Promise<void>((resolve) => {
    written = resolve;
  });
  const first = reserve.spend(60, () => writing);

  await expect(reserve.spend(60, async () => {})).rejects.toThrow('No room');
  written();
  await first;

  await reserve.spend(60, async () => {});
});

test.each([
  [1024 * 1024 * MIB, 64],
  [256 * MIB, 64],
  [100 * MIB, 25],
  [16 * MIB, 8],
])('of a disk of %i bytes uploads leave %i MiB', (totalBytes, reserveMib) => {
  let freeBytes: number | null = reserveMib * MIB;
  const reserve = new DiskReserve({ totalBytes, freeBytes: () => freeBytes });

  expect(() => reserve.check(1)).toThrow('No room');
  expect(() => reserve.check(0)).not.toThrow();
  freeBytes += 1;
  expect(() => reserve.check(1)).not.toThrow();
  freeBytes = null;
  expect(() => reserve.check(Number.MAX_SAFE_INTEGER)).not.toThrow();
});

import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../../src/base/log.ts';
import { claimStore } from '../../../src/server/claimed-store.ts';
import { checkBlobs } from '../../../src/server/housekeeping.ts';
import { openParts } from '../../../src/server/local-back-end.ts';
import { ObjectTable } from '../../../src/server/object-table.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import type { ReferenceServerOptions } from '../../../src/server/server-options.ts';
import { signUp, type TestUser, texts } from '../raw-client.ts';
import { until } from '../until.ts';
import { StandInS3 } from './stand-in-s3.ts';
import { bytesOf } from './store-contract.ts';

/** `cfs serve --objects`: complete versions move to the object store, and nothing that was acknowledged depends on it. */

const MIB = 1024 * 1024;
let directory: string;
let standIn: StandInS3;
let server: ReferenceServer;
let user: TestUser;
let files = 0;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-objects-'));
  standIn = await StandInS3.start();
  await start();
  user = await signUp(server, 'a@example.com');
});

afterEach(async () => {
  await server.close();
  await standIn.close();
  rmSync(directory, { recursive: true });
});

async function start(options: Partial<ReferenceServerOptions> = {}): Promise<void> {
  server = await ReferenceServer.open({ dataDirectory: directory, objects: standIn.open(), ...options });
}

/** Names of the blobs that are files. */
function onDisk(): readonly string[] {
  const blobs = join(directory, 'blobs');
  return existsSync(blobs) ? readdirSync(blobs).flatMap((folder) => readdirSync(join(blobs, folder))) : [];
}

const upload = async (bytes: Buffer): Promise<string> => {
  const file = await user.client.createFile(user.folder('2'), `file ${++files}`);
  expect((await user.client.send('PUT', `${file}/data`, { body: bytes })).status).toBe(204);
  return file;
};
const moved = () => until(() => onDisk().length === 0 && server.versionsToMove === 0);
const copy = async (file: string, name: string): Promise<string> =>
  user.client.create(user.folder('2'), `<fileCopy source="${file}"><displayName>${name}</displayName></fileCopy>`);

/** Two rounds: an object outlives its last reference by one. */
async function collected(): Promise<void> {
  await server.collectObjects();
  await server.collectObjects();
}

/** Every object of the store is in the table, and the reverse. Opens the data of a closed server. */
async function expectNoUnknownObject(): Promise<void> {
  const parts = openParts({ dataDirectory: directory });
  const known = [...parts.database.objects.keys()].sort();
  await parts.database.close();
  expect(standIn.keys).toEqual(known);
}

test('a version moves to the store, and is read from there as a whole and in ranges', async () => {
  const bytes = bytesOf(9 * MIB);
  const file = await upload(bytes);
  await moved();

  const whole = await user.client.get(`${file}/data`);
  const range = await user.client.get(`${file}/data`, { Range: 'bytes=8388600-8388620' });
  const head = await user.client.send('HEAD', `${file}/data`);

  expect(standIn.keys).toHaveLength(1);
  expect(whole.bytes.equals(bytes)).toBe(true);
  expect(range.status).toBe(206);
  expect(range.headers['content-range']).toBe(`bytes 8388600-8388620/${9 * MIB}`);
  expect(range.bytes.equals(bytes.subarray(8_388_600, 8_388_621))).toBe(true);
  expect(head.headers['content-length']).toBe(`${9 * MIB}`);
});

test('a small version stays in the database', async () => {
  const file = await upload(bytesOf(16 * 1024));

  expect((await user.client.get(`${file}/data`)).bytes.byteLength).toBe(16 * 1024);
  expect(server.versionsToMove).toBe(0);
  expect(standIn.keys).toEqual([]);
});

test('an upload in several requests moves when it is complete', async () => {
  const file = await user.client.createFile(user.folder('2'), 'in pieces');
  const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
  const bytes = bytesOf(300_000);
  await user.client.send('PUT', `${version}/data`, { body: bytes, cutAfter: 100_000 }).catch(() => {});
  const stored = async () => Number(texts((await user.client.get(version)).text, 'storedSize')[0]);
  await until(async () => (await stored()) === 100_000);
  expect(standIn.keys).toEqual([]);

  const rest = { body: bytes.subarray(100_000), headers: { Range: 'bytes=100000-' } };
  await until(async () => (await user.client.send('PUT', `${version}/data`, rest)).status === 200);
  await moved();

  expect((await user.client.get(`${file}/data`)).bytes.equals(bytes)).toBe(true);
});

test('copies share an object, which is deleted after the last of them', async () => {
  const bytes = bytesOf(100_000);
  const file = await upload(bytes);
  await moved();
  const twin = await copy(file, 'twin');
  const third = await copy(twin, 'third');
  expect(standIn.keys).toHaveLength(1);

  await user.client.send('DELETE', file);
  await user.client.send('DELETE', twin);
  await collected();
  expect((await user.client.get(`${third}/data`)).bytes.equals(bytes)).toBe(true);
  await user.client.send('DELETE', third);
  await collected();

  expect(standIn.keys).toEqual([]);
});

test('a copy whose object is deleted at that moment is made of what the file has then', async () => {
  const bytes = bytesOf(100_000);
  const file = await upload(bytes);
  await moved();
  const { share } = ObjectTable.prototype;
  ObjectTable.prototype.share = () => {
    ObjectTable.prototype.share = share;
    return false;
  };

  const twin = await copy(file, 'twin');

  expect((await user.client.get(`${twin}/data`)).bytes.equals(bytes)).toBe(true);
  expect(standIn.keys).toHaveLength(1);
});

test('an object that a download has just found is not deleted at once', async () => {
  const file = await upload(bytesOf(100_000));
  await moved();
  await user.client.send('DELETE', file);

  expect(await server.collectObjects()).toBe(0);
  expect(standIn.keys).toHaveLength(1);
  expect(await server.collectObjects()).toBe(1);
  expect(standIn.keys).toEqual([]);
});

test('the removal of an account deletes its objects', async () => {
  await upload(bytesOf(100_000));
  await moved();

  await server.administration.removeUser('a@example.com');
  await collected();

  expect(standIn.keys).toEqual([]);
});

test('while the store fails, uploads are accepted and read from the disk; later they move', async () => {
  const earlier = await upload(bytesOf(200_000, 2));
  await moved();
  standIn.faults = ['PUT key', 'GET key'].map((on) => ({ on, times: 1000, then: 'slowDown' as const }));

  const bytes = bytesOf(100_000);
  const file = await upload(bytes);
  expect((await user.client.get(`${file}/data`)).bytes.equals(bytes)).toBe(true);
  const refused = await user.client.get(`${earlier}/data`);
  expect(refused.status).toBe(503);
  expect(refused.headers['retry-after']).toBe('5');

  standIn.faults = [];
  await moved();
  expect((await user.client.get(`${file}/data`)).bytes.equals(bytes)).toBe(true);
});

test('a missing object and a replaced one are errors, never other data', async () => {
  const file = await upload(bytesOf(100_000));
  await moved();
  const [key = ''] = standIn.keys;
  const right = standIn.objects.get(key);

  standIn.objects.set(key, { bytes: bytesOf(100_000, 2), etag: '"another"' });
  expect((await user.client.get(`${file}/data`)).status).toBe(500);
  standIn.objects.delete(key);
  expect((await user.client.get(`${file}/data`)).status).toBe(500);
  if (right !== undefined) standIn.objects.set(key, right);

  expect((await user.client.get(`${file}/data`)).status).toBe(200);
});

test('a stop in the middle of a move loses nothing, and leaves no unknown object', async () => {
  const bytes = bytesOf(9 * MIB);
  standIn.faults = [
    { on: 'POST complete', times: 1000, then: 'doneAndErrorInBody' },
    { on: 'HEAD key', times: 1000, then: 'reset' },
  ];
  const file = await upload(bytes);
  await until(() => standIn.keys.length === 1);
  await server.close();
  standIn.faults = [];
  await expectNoUnknownObject();

  await start();
  await moved();
  await collected();

  expect(standIn.keys).toHaveLength(1);
  expect((await user.client.get(`${file}/data`)).bytes.equals(bytes)).toBe(true);
  await server.close();
  await expectNoUnknownObject();
  await start();
});

test('a file that was moved but not removed is removed by the next start', async () => {
  await upload(bytesOf(100_000));
  await moved();
  await server.close();
  const parts = openParts({ dataDirectory: directory });
  const [row] = [...parts.histories.all()];
  const writer = parts.blobs.write(row?.blob ?? '', 0);
  await writer.write([bytesOf(100_000)]);
  await writer.finish();
  await parts.database.close();
  expect(onDisk()).toHaveLength(1);

  await start();

  expect(onDisk()).toEqual([]);
});

test('the check reads every object, and names a damaged version', async () => {
  await upload(bytesOf(100_000));
  await upload(bytesOf(200_000));
  await moved();
  await server.close();
  const check = async () => {
    const objects = standIn.open();
    const parts = openParts({ dataDirectory: directory, objects });
    await claimStore(parts.database, objects, silentLogger);
    const { damage, versions } = await checkBlobs(parts);
    await parts.database.close();
    await objects.close();
    return { damage: damage.map(({ what }) => what), versions };
  };
  expect(await check()).toEqual({ damage: [], versions: 2 });
  for (const key of standIn.keys) {
    const object = standIn.objects.get(key);
    if (object?.bytes.byteLength === 100_000) standIn.objects.set(key, { ...object, bytes: bytesOf(100_000, 3) });
    else standIn.objects.delete(key);
  }

  const { damage } = await check();

  expect(damage.sort()).toEqual(['its data are not those that were sent', expect.stringContaining('NoSuchKey')]);
  await start();
});

test('data in a store are not served without it, nor with that of another installation', async () => {
  await upload(bytesOf(100_000));
  await moved();
  await server.close();
  const other = await StandInS3.start();

  await expect(ReferenceServer.open({ dataDirectory: directory })).rejects.toThrow('give --objects');
  await expect(ReferenceServer.open({ dataDirectory: directory, objects: other.open() })).rejects.toThrow(
    'has no objects of these data',
  );
  await expect(
    ReferenceServer.open({ dataDirectory: join(directory, 'other'), objects: standIn.open() }),
  ).rejects.toThrow('belongs to another installation');

  await other.close();
  await start();
});

test('a store that does not answer prevents the first start with it, and no later one', async () => {
  await server.close();
  standIn.faults = [{ on: 'GET key', times: 1000, then: 'reset' }];

  await start();
  await server.close();
  await expect(
    ReferenceServer.open({ dataDirectory: join(directory, 'other'), objects: standIn.open() }),
  ).rejects.toThrow('cannot be used');

  standIn.faults = [];
  await start();
});

test('versions from before the first start with a store move to it', async () => {
  await server.close();
  const other = join(directory, 'other');
  server = await ReferenceServer.open({ dataDirectory: other });
  user = await signUp(server, 'a@example.com');
  const bytes = bytesOf(17 * MIB);
  const file = await upload(bytes);
  const port = server.port;
  await server.close();
  const empty = await StandInS3.start();

  server = await ReferenceServer.open({ dataDirectory: other, listen: { port }, objects: empty.open() });
  await until(() => empty.keys.length === 1 && server.versionsToMove === 0);

  expect((await user.client.get(`${file}/data`)).bytes.equals(bytes)).toBe(true);
  await server.close();
  await empty.close();
  await start();
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Database } from '../../src/server/database.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import type { ReferenceServerOptions } from '../../src/server/server-options.ts';
import { HeldRequest } from './held-request.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** The order of a history is that in which its uploads were begun, in one step or in several (docs/service.md 7.1). */

let directory: string;
let server: ReferenceServer;
let user: TestUser;
let file: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-order-'));
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

async function open(options: Partial<ReferenceServerOptions> = {}): Promise<void> {
  server = await ReferenceServer.open({ dataDirectory: directory, ...options });
  user = await signUp(server, 'a@example.com');
  file = await user.client.createFile(user.folder('2'), 'f');
}

const put = async (data: string) => (await user.client.send('PUT', `${file}/data`, { body: data })).status;
const data = async () => (await user.client.get(`${file}/data`)).text;
const sizes = async () => texts((await user.client.get(`${file}/version`)).text, 'size').map(Number);
const OLD = Buffer.alloc(60_000, 'old ');
const beginOld = () =>
  HeldRequest.begin(server, user.client, `${file}/data`, { bodyBytes: OLD.byteLength, front: OLD.subarray(0, 40_000) });

const throughVersion = async () => {
  const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
  return (await user.client.send('PUT', `${version}/data`, { body: 'new' })).status;
};

test.each<readonly [how: string, save: () => Promise<number>, status: number]>([
  ['in one step', () => put('new'), 204],
  ['as a version of its own', throughVersion, 200],
])('data that were begun earlier and end later do not bury what was saved meanwhile %s', async (_how, save, status) => {
  await open();
  const early = await beginOld();

  expect(await save()).toBe(status);
  await early.send(OLD.subarray(40_000));

  expect(await early.status()).toBe(204);
  expect(await data()).toBe('new');
  expect(await sizes()).toEqual([3, OLD.byteLength]);
  expect(texts((await user.client.get('/user')).text, 'usage')).toEqual(['3']);
  early.cut();
});

test('few bytes that were begun earlier and end later do not bury what was saved meanwhile', async () => {
  await open();
  const early = await HeldRequest.begin(server, user.client, `${file}/data`, {
    bodyBytes: 600,
    front: 'x'.repeat(400),
  });
  // The server has begun the first save before it answers a request that comes later.
  await user.client.get('/user');

  expect(await put('new')).toBe(204);
  await early.send('x'.repeat(200));

  expect(await early.status()).toBe(204);
  expect(await data()).toBe('new');
  expect(await sizes()).toEqual([3, 600]);
  early.cut();
});

test('the second of two saves on one connection is the file', async () => {
  await open();
  const first = await beginOld();
  const head = `PUT ${new URL(file).pathname}/data HTTP/1.1\r\nHost: x\r\nAuthorization: ${user.client.token}\r\n`;

  await first.send(Buffer.concat([OLD.subarray(40_000), Buffer.from(`${head}Content-Length: 3\r\n\r\nnew`)]));

  expect([await first.status(1), await first.status(2)]).toEqual([204, 204]);
  expect(await data()).toBe('new');
  first.cut();
});

test('data that end behind as many later versions as are kept are history that is kept no longer', async () => {
  await open({ versionsKept: 1 });
  const early = await beginOld();

  await put('new');
  await early.send(OLD.subarray(40_000));

  expect(await early.status()).toBe(204);
  expect(await data()).toBe('new');
  expect(await sizes()).toEqual([3]);
  early.cut();
});

test('data that never end leave their place empty, and later ones find theirs, also after a restart', async () => {
  await open();
  const broken = await beginOld();
  const cutShort = await beginOld();
  await put('one');
  broken.cut();
  cutShort.cut();
  await until(() => server.connections === 0);
  await server.close();

  server = await ReferenceServer.open({ dataDirectory: directory });
  await put('three');
  await put('seven..');

  expect(await data()).toBe('seven..');
  expect(await sizes()).toEqual([7, 5, 3]);
});

test('a place in the order costs no commit, and is nobody else’s once its row is there', async () => {
  await open();
  await server.close();
  const database = Database.open(directory);
  const commits = (): number => (database.meta.getStats() as { lastTxnId: number }).lastTxnId;
  const before = commits();

  const [first, second] = [database.reserveNumber(), database.reserveNumber()];
  const meanwhile = database.change(() => database.nextNumber());

  expect([first < second, second < meanwhile, commits() - before]).toEqual([true, true, 1]);
  const last = database.reserveNumber();
  database.change(() => database.keepNumber(last));
  await database.close();
  const again = Database.open(directory);
  expect(again.reserveNumber()).toBeGreaterThan(last);
  await again.close();
  server = await ReferenceServer.open({ dataDirectory: directory });
});

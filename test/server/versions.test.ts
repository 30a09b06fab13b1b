import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Administration } from '../../src/server/administration.ts';
import { Blobs } from '../../src/server/blobs.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { HeldRequest } from './held-request.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** Versions and their resumable uploads (docs/service.md 7). */

/** In `postgres/suite.test.ts`: no tables and no blobs in the data directory. */
const isElsewhere = () => !(server.administration instanceof Administration);
const directory = mkdtempSync(join(tmpdir(), 'cfs-versions-'));
let server: ReferenceServer;
let user: TestUser;
let files = 0;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'a@example.com', 1_000_000);
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const newFile = () => user.client.createFile(user.folder('2'), `file ${++files}`);
const newVersion = async (file: string) =>
  (await user.client.send('POST', `${file}/version`)).headers.location as string;
const putVersion = (version: string, data: string | Uint8Array, range?: string) =>
  user.client.send('PUT', `${version}/data`, { body: data, headers: range === undefined ? {} : { Range: range } });
const storedSize = async (version: string) => Number(texts((await user.client.get(version)).text, 'storedSize')[0]);

test('every upload makes a version, newest first, and old ones keep their bytes', async () => {
  const file = await newFile();
  await user.client.send('PUT', `${file}/data`, { body: 'one' });
  const second = await newVersion(file);
  const answer = await putVersion(second, 'two!', 'bytes=0-');
  await user.client.send('PUT', `${file}/data`, { body: 'three' });

  const { text } = await user.client.get(`${file}/version`);
  const refs = texts(text, 'ref');
  const data = await Promise.all(refs.map(async (ref) => (await user.client.get(`${ref}/data`)).text));

  expect(answer.status).toBe(200);
  expect(texts(answer.text, 'size')).toEqual(['4']);
  expect(texts(answer.text, 'presentOnServer')).toEqual(['true']);
  expect(texts(answer.text, 'ref')).toEqual([]);
  expect(data).toEqual(['three', 'two!', 'one']);
  expect(refs[1]).toBe(second);
  expect((await user.client.get(`${file}/data`)).text).toBe('three');
});

test('the data of a file name the version that they are of', async () => {
  const file = await newFile();
  await user.client.send('PUT', `${file}/data`, { body: 'one' });
  await user.client.send('PUT', `${file}/data`, { body: 'two' });
  await newVersion(file); // under way: not the newest complete one
  const [, newest = '', older = ''] = texts((await user.client.get(`${file}/version`)).text, 'ref');

  const whole = await user.client.get(`${file}/data`);
  const part = await user.client.get(`${file}/data`, { Range: 'bytes=1-2' });
  const asked = await user.client.get(`${older}/data`);

  expect([whole.text, whole.headers['content-location']]).toEqual(['two', `${newest}/data`]);
  expect([part.text, part.headers['content-location']]).toEqual(['wo', `${newest}/data`]);
  expect([asked.text, asked.headers['content-location']]).toEqual(['one', undefined]);
});

test('an upload that was cut goes on where it stopped, byte for byte', async () => {
  const file = await newFile();
  const version = await newVersion(file);
  const data = Buffer.from(Array.from({ length: 300_000 }, (_, index) => index * 7));

  await expect(user.client.send('PUT', `${version}/data`, { body: data, cutAfter: 100_000 })).rejects.toThrow();
  await until(async () => (await storedSize(version)) === 100_000 && server.uploadsUnderWay === 0);
  const wrong = await putVersion(version, data.subarray(5), 'bytes=5-');
  const without = await putVersion(version, data);
  const rest = await putVersion(version, data.subarray(100_000), 'bytes=100000-');

  expect([wrong.status, without.status]).toEqual([416, 416]);
  expect(texts(rest.text, 'size')).toEqual(['300000']);
  expect((await user.client.get(`${file}/data`)).bytes.equals(data)).toBe(true);
});

test('an incomplete version is listed with what is stored, and does not change the file', async () => {
  const file = await newFile();
  await user.client.send('PUT', `${file}/data`, { body: 'whole' });
  const version = await newVersion(file);
  await expect(user.client.send('PUT', `${version}/data`, { body: 'begun', cutAfter: 2 })).rejects.toThrow();
  await until(async () => (await storedSize(version)) === 2);

  const { text } = await user.client.get(`${file}/version`);

  expect(texts(text, 'presentOnServer')).toEqual(['false', 'true']);
  expect(texts(text, 'storedSize')).toEqual(['2']);
  expect(texts(text, 'size')).toEqual(['5']);
  expect((await user.client.get(`${version}/data`)).status).toBe(404);
  expect((await user.client.get(`${file}/data`)).text).toBe('whole');
});

test('an empty body at the right place completes a version', async () => {
  const file = await newFile();
  const version = await newVersion(file);
  server.faults = [{ on: 'PUT', path: 'fileVersionData', then: { acceptBytes: 3 } }];
  const begun = await putVersion(version, 'abcdef', 'bytes=0-');
  server.faults = [];

  const ended = await putVersion(version, '', 'bytes=3-');

  expect([begun.status, ended.status]).toEqual([200, 200]);
  expect(texts(begun.text, 'storedSize')).toEqual(['3']);
  expect(texts(begun.text, 'presentOnServer')).toEqual(['false']);
  expect((await user.client.get(`${file}/data`)).text).toBe('abc');
});

test.each([
  ['a part of a file', '/data', { 'Content-Range': 'bytes 5-9/10' }],
  ['the rest of a file', '/data', { Range: 'bytes=5-' }],
  ['a part of a version', '/version', { 'Content-Range': 'bytes 5-9/10' }],
])('%s is not taken for the whole', async (_, to, headers: Record<string, string>) => {
  const file = await newFile();
  await user.client.send('PUT', `${file}/data`, { body: 'all of it!' });
  const target = to === '/data' ? `${file}/data` : `${await newVersion(file)}/data`;

  const { status } = await user.client.send('PUT', target, { body: 'of it', headers });

  expect(status).toBe(400);
  expect((await user.client.get(`${file}/data`)).text).toBe('all of it!');
});

test('a file in one step may say that it begins at its beginning', async () => {
  const file = await newFile();

  const { status } = await user.client.send('PUT', `${file}/data`, { body: 'all', headers: { Range: 'bytes=0-' } });

  expect(status).toBe(204);
  expect((await user.client.get(`${file}/data`)).text).toBe('all');
});

test.each<[string, number, Record<string, string>]>([
  ['in a coding of the content', 415, { 'Content-Encoding': 'gzip' }],
  ['in a coding of the transfer', 501, { 'Transfer-Encoding': 'gzip, chunked' }],
])('bytes %s are not taken for those of the file', async (_, refusal, headers) => {
  const file = await newFile();
  await user.client.send('PUT', `${file}/data`, { body: 'plain' });

  const { status } = await user.client.send('PUT', `${file}/data`, { body: gzipSync('coded'), headers });

  expect(status).toBe(refusal);
  expect((await user.client.get(`${file}/data`)).text).toBe('plain');
});

test('no coding may be named', async () => {
  const file = await newFile();
  const headers = { 'Content-Encoding': 'identity', 'Transfer-Encoding': 'Chunked' };

  const { status } = await user.client.send('PUT', `${file}/data`, { body: 'plain', headers });

  expect(status).toBe(204);
  expect((await user.client.get(`${file}/data`)).text).toBe('plain');
});

test('a complete version takes no more data, and an unknown one is 404', async () => {
  const file = await newFile();
  const version = await newVersion(file);
  await putVersion(version, 'done');

  expect((await putVersion(version, 'more', 'bytes=4-')).status).toBe(403);
  expect((await putVersion(version, 'anew')).status).toBe(403);
  expect((await putVersion(`${file}/version/77_78`, 'x')).status).toBe(404);
  expect((await user.client.get(`${file}/version/77_78`)).status).toBe(404);
  expect((await putVersion(await newVersion(file), 'x', 'bytes=0-0')).status).toBe(400);
});

test('an upload that was begun earlier and ends later does not take the file back', async () => {
  const file = await newFile();
  const early = await newVersion(file);
  const late = await newVersion(file);
  await putVersion(late, 'late');
  await putVersion(early, 'early');

  expect((await user.client.get(`${file}/data`)).text).toBe('late');
  expect(texts((await user.client.get(`${file}/version`)).text, 'ref')).toEqual([late, early]);
});

test('a second sender to the same version is refused while the first one sends', async () => {
  const version = await newVersion(await newFile());
  server.faults = [{ on: 'PUT', path: 'fileVersionData', then: { bandwidthBytesPerSecond: 200_000 } }];
  const first = putVersion(version, Buffer.alloc(100_000));
  await until(() => server.uploadsUnderWay === 1);

  const second = await putVersion(version, Buffer.alloc(100_000));
  server.faults = [];

  expect(second.status).toBe(416);
  expect((await first).status).toBe(200);
});

test('an upload beyond the quota is 413 before its body is read, and leaves nothing', async () => {
  const file = await newFile();
  const before = server.requests.bytesIn;

  const announced = await user.client.send('PUT', `${file}/data`, { body: Buffer.alloc(2_000_000) });
  const taken = server.requests.bytesIn - before;
  const chunked = await user.client.send('PUT', `${file}/data`, {
    body: Buffer.alloc(2_000_000),
    headers: { 'Transfer-Encoding': 'chunked' },
  });
  const asVersion = await putVersion(await newVersion(file), Buffer.alloc(2_000_000));

  expect([announced.status, chunked.status, asVersion.status]).toEqual([413, 413, 413]);
  expect(taken).toBe(0);
  expect(texts((await user.client.get(file)).text, 'size')).toEqual(['-1']);
});

test('a user over quota can make files shorter, but not longer', async () => {
  const { client, folder, email } = await signUp(server, 'over@example.com', 1_000);
  const [file = ''] = await Promise.all(
    ['a', 'b', 'c'].map((name) => client.createFilled(folder('2'), name, Buffer.alloc(300))),
  );
  await server.administration.setQuota(email, 100);
  const save = async (bytes: number) =>
    (await client.send('PUT', `${file}/data`, { body: Buffer.alloc(bytes) })).status;
  const resave = async (bytes: number) => {
    const version = (await client.send('POST', `${file}/version`)).headers.location as string;
    return (await client.send('PUT', `${version}/data`, { body: Buffer.alloc(bytes) })).status;
  };

  expect([
    await save(301),
    await save(300),
    await save(200),
    await resave(201),
    await resave(150),
    await save(0),
  ]).toEqual([413, 204, 204, 413, 200, 204]);
  expect(await save(1)).toBe(413);
});

test('usage counts what files are now, and only the newest versions are kept if told so', async () => {
  const own = mkdtempSync(join(tmpdir(), 'cfs-kept-'));
  const keeping = await ReferenceServer.open({ dataDirectory: own, versionsKept: 5 }); // as many as the real service (docs/service.md 13.7)
  const other = await signUp(keeping, 'b@example.com');
  const file = await other.client.createFile(other.folder('2'), 'x');
  for (const data of ['1', '22', '333', '4444', '55555', '666666', '7777777'])
    await other.client.send('PUT', `${file}/data`, { body: data });

  const versions = await other.client.get(`${file}/version`);
  const usage = texts((await other.client.get('/user')).text, 'usage');
  await keeping.close();
  rmSync(own, { recursive: true });

  expect(texts(versions.text, 'size')).toEqual(['7', '6', '5', '4', '3']);
  expect(usage).toEqual(['7']);
});

test('a file that is deleted during an upload leaves nothing, however the upload ends', async ({ skip }) => {
  skip(isElsewhere());
  const file = await newFile();
  const [cut, stopped] = [await newVersion(file), await newVersion(file)];
  const blobs = () => readdirSync(join(directory, 'blobs'), { recursive: true, withFileTypes: true });
  const before = blobs().filter((entry) => entry.isFile()).length;
  const front = { bodyBytes: 100_000, front: 'begun' };
  const first = await HeldRequest.begin(server, user.client, `${cut}/data`, front);
  server.faults = [{ on: 'PUT', path: 'fileVersionData', then: { acceptBytes: 50_000 } }];
  const second = await HeldRequest.begin(server, user.client, `${stopped}/data`, front);
  server.faults = [];

  expect((await user.client.send('DELETE', file)).status).toBe(204);
  await first.send(Buffer.alloc(50_000));
  first.cut();
  await second.send(Buffer.alloc(99_995));

  expect(await second.status()).toBe(404);
  second.cut();
  await until(() => server.uploadsUnderWay === 0 && blobs().filter((entry) => entry.isFile()).length === before);
});

test('a read of a version that is being replaced returns the next one', async ({ skip }) => {
  skip(isElsewhere());
  const own = mkdtempSync(join(tmpdir(), 'cfs-kept-'));
  const keeping = await ReferenceServer.open({ dataDirectory: own, versionsKept: 1 });
  const { client, folder } = await signUp(keeping, 'b@example.com');
  const file = await client.createFilled(folder('2'), 'x', Buffer.alloc(20_000, 'old '));
  const [version] = texts((await client.get(`${file}/version`)).text, 'ref');
  const { sizeBytes } = Blobs.prototype;
  const save = (data: string) => client.send('PUT', `${file}/data`, { body: Buffer.alloc(20_000, data) });
  /** Between the look at the row and that at its bytes. */
  const reading = async (url: string, meanwhile: () => Promise<unknown>) => {
    Blobs.prototype.sizeBytes = async function (name) {
      Blobs.prototype.sizeBytes = sizeBytes;
      await meanwhile();
      return sizeBytes.call(this, name);
    };
    try {
      return await client.get(url);
    } finally {
      Blobs.prototype.sizeBytes = sizeBytes;
    }
  };

  const ofFile = await reading(`${file}/data`, () => save('new '));
  const [newer] = texts((await client.get(`${file}/version`)).text, 'ref');
  const ofVersion = await reading(`${newer}/data`, () => save('newer '));

  expect([ofFile.status, ofFile.text.slice(0, 4)]).toEqual([200, 'new ']);
  expect([ofVersion.status, (await client.get(`${version}/data`)).status]).toEqual([404, 404]);
  await keeping.close();
  rmSync(own, { recursive: true });
});

test('a file that is too long for the database is copied where the disk has no hard links', async () => {
  const data = Buffer.alloc(1_400_000, 'long ');
  const { client, folder } = await signUp(server, 'copies@example.com');
  const file = await client.createFilled(folder('2'), 'long', data);
  const version = (await client.send('POST', `${file}/version`)).headers.location as string;
  const { link } = Blobs.prototype;
  const refused = () =>
    Promise.reject(Object.assign(new Error('EPERM: operation not permitted, link'), { code: 'EPERM' }));
  const copy = async (name: string) => {
    Blobs.prototype.link = refused;
    try {
      const body = `<fileCopy source="${file}"><displayName>${name}</displayName></fileCopy>`;
      const { status, headers } = await client.send('POST', folder('2'), { body });
      return status === 201 ? (await client.get(`${headers.location}/data`)).bytes : status;
    } finally {
      Blobs.prototype.link = link;
    }
  };

  // vitest compares buffers byte by byte, in JavaScript: half a minute for this one.
  expect(data.equals((await copy('long')) as Buffer)).toBe(true);

  // In two pieces, so it is a file; but one that is short enough for the database.
  await expect(
    client.send('PUT', `${version}/data`, { body: Buffer.alloc(9, 'short '), cutAfter: 5 }),
  ).rejects.toThrow();
  const rest = { body: 'est', headers: { Range: 'bytes=5-' } };
  await until(async () => (await client.send('PUT', `${version}/data`, rest)).status === 200);
  expect(String(await copy('short'))).toBe('shortest');
});

test('a copy of a file whose version is being replaced copies the next one', async ({ skip }) => {
  skip(isElsewhere());
  const own = mkdtempSync(join(tmpdir(), 'cfs-copied-'));
  // Also where the suite runs over an object store: the copy of an object makes no link.
  const keeping = await ReferenceServer.open({ dataDirectory: own, versionsKept: 1, objects: null });
  const { client, folder } = await signUp(keeping, 'b@example.com');
  const file = await client.createFilled(folder('2'), 'x', Buffer.alloc(20_000, 'old '));
  const { link } = Blobs.prototype;
  /** Between the look at the row and the link to its bytes. */
  const copying = (meanwhile: () => Promise<unknown>) => {
    Blobs.prototype.link = async function (from, to) {
      Blobs.prototype.link = link;
      await meanwhile();
      return link.call(this, from, to);
    };
    return client.send('POST', folder('2'), {
      body: `<fileCopy source="${file}"><displayName>y</displayName></fileCopy>`,
    });
  };

  const copied = await copying(() => client.send('PUT', `${file}/data`, { body: Buffer.alloc(20_000, 'new ') }));
  const ofNone = await copying(() => client.send('DELETE', file));

  expect([copied.status, ofNone.status]).toEqual([201, 404]);
  expect((await client.get(`${copied.headers.location}/data`)).text.slice(0, 4)).toBe('new ');
  await keeping.close();
  rmSync(own, { recursive: true });
});

test('the history is paged like any listing', async () => {
  const file = await newFile();
  for (const data of ['a', 'b', 'c']) await user.client.send('PUT', `${file}/data`, { body: data });

  const { text } = await user.client.get(`${file}/version?start=1&max=1`);

  expect(text).toContain('start="1" hasMore="true" end="1"');
  expect(texts(text, 'ref')).toHaveLength(1);
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';

/** Folders, files and data, as raw requests: what a client that nobody here wrote would see. */

const directory = mkdtempSync(join(tmpdir(), 'cfs-server-'));
let server: ReferenceServer;
let user: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'a@example.com');
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** A folder of its own for each test. */
let folders = 0;
const newFolder = () => user.client.createFolder(user.folder('2'), `folder ${++folders}`);

test('a user document links everything an account has', async () => {
  const { status, text, headers } = await user.client.get(`/user/${user.uid}`);

  expect(status).toBe(200);
  expect(headers['content-type']).toBe('application/xml; charset=UTF-8');
  expect(headers['access-control-allow-origin']).toBe('*');
  expect(texts(text, 'username')).toEqual(['a@example.com']);
  expect(texts(text, 'syncfolders')).toEqual([`${server.origin}/user/${user.uid}/folders/contents`]);
  expect(texts(text, 'magicBriefcase')).toEqual([user.folder('2')]);
  expect(texts(text, 'deleted')).toEqual([user.folder('9')]);
  expect((await user.client.get('/user')).text).toBe(text);
});

test('a new account has its four system folders and lists sync folders that it made behind them', async () => {
  const created = await user.client.send('POST', `/user/${user.uid}/folders`, {
    body: '<syncFolder><displayName>Work</displayName></syncFolder>',
    headers: { 'X-SugarSync-API-Version': '1.5' },
  });
  const { text } = await user.client.get(`/user/${user.uid}/folders/contents`);

  expect(created.status).toBe(201);
  expect(created.headers.location).toBeUndefined();
  expect(texts(text, 'displayName')).toEqual([
    'Web Archive',
    'Magic Briefcase',
    'Mobile Photos',
    'Deleted Files',
    'Work',
  ]);
  expect(text).toContain('<collection type="syncFolder">');
});

test('a long listing is compressed to less than a sixth for a client that asks for gzip, and for no other', async () => {
  const folder = await newFolder();
  for (let n = 0; n < 60; n++) await user.client.createFile(folder, `IMG_2026_${n}.jpg`, 'image/jpeg');
  const whole = await user.client.get(`${folder}/contents`);
  expect(whole.headers['content-encoding']).toBeUndefined();
  expect(whole.headers.vary).toBe('Accept-Encoding');

  for (const accepted of ['gzip', 'deflate, GZIP;q=0.5', 'br , gzip ; q=1']) {
    const { headers, bytes } = await user.client.get(`${folder}/contents`, { 'Accept-Encoding': accepted });
    expect(headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(bytes).toString()).toBe(whole.text);
    expect(bytes.length / whole.bytes.length).toBeLessThan(1 / 6);
  }
  for (const accepted of ['identity', 'gzip;q=0', 'gzip; q=0.0, br', 'xgzip', '']) {
    const { headers, text } = await user.client.get(`${folder}/contents`, { 'Accept-Encoding': accepted });
    expect(headers['content-encoding']).toBeUndefined();
    expect(text).toBe(whole.text);
  }
  expect((await user.client.get('/user', { 'Accept-Encoding': 'gzip' })).headers['content-encoding']).toBeUndefined();
});

test('a file that was never filled has size -1, no data link and no data', async () => {
  const folder = await newFolder();
  const file = await user.client.createFile(folder, 'stub.txt');

  const info = await user.client.get(file);
  const listing = await user.client.get(`${folder}/contents`);

  for (const { text } of [info, listing]) {
    expect(texts(text, 'size')).toEqual(['-1']);
    expect(texts(text, 'presentOnServer')).toEqual(['false']);
    expect(texts(text, 'fileData')).toEqual([]);
  }
  expect(texts(info.text, 'mediaType')).toEqual(['text/plain']);
  expect((await user.client.get(`${file}/data`)).status).toBe(404);
});

test('data comes back as it was sent, whole and in ranges', async () => {
  const file = await user.client.createFilled(await newFolder(), 'näme (1).bin', '0123456789');

  const whole = await user.client.get(`${file}/data`, { 'If-Modified-Since': new Date().toUTCString() });
  const middle = await user.client.get(`${file}/data`, { Range: 'bytes=2-4' });
  const rest = await user.client.get(`${file}/data`, { Range: 'bytes=8-' });
  const tail = await user.client.get(`${file}/data`, { Range: 'bytes=-3' });
  const behind = await user.client.get(`${file}/data`, { Range: 'bytes=10-' });

  expect([whole.status, whole.text]).toEqual([200, '0123456789']);
  expect(whole.headers['accept-ranges']).toBe('bytes');
  expect(whole.headers['content-disposition']).toBe("attachment; filename*=UTF-8''n%C3%A4me%20%281%29.bin");
  expect([middle.status, middle.text, middle.headers['content-range']]).toEqual([206, '234', 'bytes 2-4/10']);
  expect([rest.text, tail.text]).toEqual(['89', '789']);
  expect([behind.status, behind.headers['content-range']]).toEqual([416, 'bytes */10']);
});

test.each([
  ['bytes=2-9223372036854775807', 206, '234'],
  ['bytes=2-18446744073709551615', 206, '234'],
  ['bytes=-18446744073709551615', 206, '01234'],
  ['bytes=18446744073709551615-', 416, null],
])('a range may say "to the end" by the greatest number there is: %s', async (range, status, text) => {
  const file = await user.client.createFilled(user.folder('2'), 'digits', '01234');

  const answer = await user.client.get(`${file}/data`, { Range: range });

  expect(answer.status).toBe(status);
  if (text !== null) expect(answer.text).toBe(text);
});

test('an empty file is a file with data', async () => {
  const file = await user.client.createFilled(await newFolder(), 'empty', '');

  const info = await user.client.get(file);
  const data = await user.client.get(`${file}/data`);

  expect(texts(info.text, 'size')).toEqual(['0']);
  expect(texts(info.text, 'presentOnServer')).toEqual(['true']);
  expect([data.status, data.bytes.byteLength]).toEqual([200, 0]);
});

test('pages cover a listing exactly once, folders first, with an inclusive end', async () => {
  const folder = await newFolder();
  for (const name of ['f1', 'f2', 'f3', 'f4']) await user.client.createFile(folder, name);
  for (const name of ['d1', 'd2', 'd3']) await user.client.createFolder(folder, name);
  const all = ['d1', 'd2', 'd3', 'f1', 'f2', 'f3', 'f4'];

  for (const max of [1, 2, 3, 7, 8]) {
    const seen: string[] = [];
    for (let hasMore = true; hasMore; ) {
      const { text } = await user.client.get(`${folder}/contents?start=${seen.length}&max=${max}`);
      const start = seen.length;
      seen.push(...texts(text, 'displayName'));
      hasMore = text.includes('hasMore="true"');
      expect(text).toContain(`start="${start}"`);
      expect(text).toContain(`end="${seen.length - 1}"`);
    }
    expect(seen).toEqual(all);
  }
  const files = await user.client.get(`${folder}/contents?type=file&start=1&max=2`);
  expect(texts(files.text, 'displayName')).toEqual(['f2', 'f3']);
  const empty = await user.client.get(`${folder}/contents?start=7`);
  expect(empty.text).toContain('<collectionContents start="7" hasMore="false" end="7">');
  for (const start of [2 ** 31, 2 ** 32, 2 ** 32 + 1, 999_999_999_999_999]) {
    const { text } = await user.client.get(`${folder}/contents?start=${start}`);
    expect(texts(text, 'displayName'), `from ${start} on`).toEqual([]);
    expect(text).toContain(`start="${start}" hasMore="false"`);
  }
});

test('listings can be sorted by name, size, date and extension', async () => {
  const folder = await newFolder();
  await user.client.createFilled(folder, 'b.txt', '22');
  await user.client.createFilled(folder, 'a.zip', '333');
  await user.client.createFilled(folder, 'c.avi', '1');
  const order = async (by: string) =>
    texts((await user.client.get(`${folder}/contents?order=${by}`)).text, 'displayName');

  expect(await order('name')).toEqual(['a.zip', 'b.txt', 'c.avi']);
  expect(await order('size')).toEqual(['c.avi', 'b.txt', 'a.zip']);
  expect(await order('extension')).toEqual(['c.avi', 'b.txt', 'a.zip']);
  expect(await order('last_modified')).toEqual(['b.txt', 'a.zip', 'c.avi']);
});

test('a query that makes no sense is 400', async () => {
  for (const query of ['type=both', 'order=colour', 'start=-1', 'start=x', 'max=0', 'max=1.5']) {
    expect((await user.client.get(`${user.folder('2')}/contents?${query}`)).status, query).toBe(400);
  }
});

test('the wrong kind is 400, an unknown id 404, an unknown method 405', async () => {
  const folder = await newFolder();
  const file = await user.client.createFile(folder, 'x');
  const swap = (url: string, from: string, to: string) => url.replace(`/${from}/`, `/${to}/`);

  expect((await user.client.get(swap(folder, 'folder', 'file'))).status).toBe(400);
  expect((await user.client.get(swap(file, 'file', 'folder'))).status).toBe(400);
  expect((await user.client.get(`${folder}77`)).status).toBe(404);
  expect((await user.client.send('DELETE', `${folder}/contents`)).status).toBe(405);
  expect((await user.client.send('PATCH', folder)).status).toBe(405);
  expect((await user.client.get('/elsewhere')).status).toBe(404);
});

test('a refusal is an HTML page with its message in h3', async () => {
  const { status, headers, text } = await user.client.send('PUT', user.folder('2'), {
    body: '<folder><displayName>Mine</displayName></folder>',
  });

  expect(status).toBe(403);
  expect(headers['content-type']).toBe('text/html; charset=UTF-8');
  expect(headers['access-control-allow-origin']).toBe('*');
  expect(text).toContain('<h3>Can not move sync folder.</h3>');
});

test('files and folders are renamed and moved; a file answers with its document, a folder with nothing', async () => {
  const from = await newFolder();
  const to = await newFolder();
  const file = await user.client.createFilled(from, 'old', 'x');
  const sub = await user.client.createFolder(from, 'sub');

  const moved = await user.client.send('PUT', file, {
    body: `<file><displayName>new &amp; &lt;shiny&gt;</displayName><parent>${to}</parent></file>`,
  });
  const movedFolder = await user.client.send('PUT', sub, { body: `<folder><parent>${to}</parent></folder>` });

  expect([moved.status, movedFolder.status, movedFolder.bytes.byteLength]).toEqual([200, 204, 0]);
  expect(texts(moved.text, 'parent')).toEqual([to]);
  expect(texts((await user.client.get(`${to}/contents`)).text, 'displayName')).toEqual([
    'sub',
    'new &amp; &lt;shiny&gt;',
  ]);
  expect(texts((await user.client.get(`${from}/contents`)).text, 'displayName')).toEqual([]);
});

test('a folder cannot be moved into itself or below itself', async () => {
  const outer = await newFolder();
  const inner = await user.client.createFolder(outer, 'inner');

  for (const parent of [outer, inner]) {
    const { status } = await user.client.send('PUT', outer, { body: `<folder><parent>${parent}</parent></folder>` });
    expect(status).toBe(403);
  }
});

test('the trash takes equal names', async () => {
  const folder = await newFolder();
  for (let round = 0; round < 3; round++) {
    const file = await user.client.createFile(folder, 'same');
    const body = `<file><displayName>same</displayName><parent>${user.folder('9')}</parent></file>`;
    expect((await user.client.send('PUT', file, { body })).status).toBe(200);
  }

  const { text } = await user.client.get(`${user.folder('9')}/contents`);
  expect(texts(text, 'displayName').filter((name) => name === 'same')).toHaveLength(3);
});

test('deleting a folder is for ever and leaves its contents unreachable but alive', async () => {
  const folder = await newFolder();
  const file = await user.client.createFilled(folder, 'orphan', 'still here');

  expect((await user.client.send('DELETE', folder)).status).toBe(204);

  expect((await user.client.get(folder)).status).toBe(404);
  expect((await user.client.send('DELETE', folder)).status).toBe(404);
  expect((await user.client.get(`${file}/data`)).text).toBe('still here');
  const rescue = await newFolder();
  expect((await user.client.send('PUT', file, { body: `<file><parent>${rescue}</parent></file>` })).status).toBe(200);
  expect(texts((await user.client.get(`${rescue}/contents`)).text, 'displayName')).toEqual(['orphan']);
});

test('system folders stay', async () => {
  for (const local of ['1', '2', '3', '9']) {
    expect((await user.client.send('DELETE', user.folder(local))).status).toBe(403);
  }
});

test('a copy has the bytes and a life of its own', async () => {
  const folder = await newFolder();
  const file = await user.client.createFilled(folder, 'one', 'first');
  const copy = await user.client.create(folder, `<fileCopy source="${file}"><displayName>two</displayName></fileCopy>`);

  await user.client.send('PUT', `${file}/data`, { body: 'changed' });
  await user.client.send('DELETE', file);

  expect((await user.client.get(`${copy}/data`)).text).toBe('first');
});

test('a public link is read by anyone until it is taken back', async () => {
  const file = await user.client.createFilled(await newFolder(), 'shown', 'to all');
  const enable = (enabled: boolean) =>
    user.client.send('PUT', file, { body: `<file><publicLink enabled="${enabled}"></publicLink></file>` });
  const link = /<publicLink enabled="true">([^<]*)</.exec((await enable(true)).text)?.[1] as string;
  const anonymous = new (user.client.constructor as new (origin: string) => TestUser['client'])(server.origin);

  const page = await anonymous.get(link);
  const data = await anonymous.get(`${link}?directDownload=true`);
  await enable(false);

  expect([page.status, page.headers['content-type']]).toEqual([200, 'text/html; charset=UTF-8']);
  expect(data.text).toBe('to all');
  expect((await anonymous.get(link)).status).toBe(404);
});

test('equal names lie side by side', async () => {
  const folder = await newFolder();
  for (let round = 0; round < 2; round++) await user.client.createFile(folder, 'twin');

  expect(texts((await user.client.get(`${folder}/contents`)).text, 'displayName')).toEqual(['twin', 'twin']);
});

test('XML that is none, or lacks what it needs, is 400', async () => {
  const folder = await newFolder();
  for (const body of [
    '',
    'x',
    '<folder>',
    '<folder></folder>',
    '<stranger/>',
    '<fileCopy><displayName>x</displayName></fileCopy>',
  ]) {
    expect((await user.client.send('POST', folder, { body })).status, body).toBe(400);
  }
});

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { HeldRequest } from './held-request.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** What a receiver can do with a share, and what a withdrawal ends (docs/service.md 9.2). */

const directory = mkdtempSync(join(tmpdir(), 'cfs-shares-'));
let server: ReferenceServer;
let ann: TestUser;
let bob: TestUser;
let eve: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  [ann, bob, eve] = [
    await signUp(server, 'ann@example.com'),
    await signUp(server, 'bob@example.com'),
    await signUp(server, 'eve@example.com'),
  ];
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const localOf = (url: string) => url.split(':').pop() as string;
async function shared(name: string, ...receivers: { email: string; write: boolean }[]): Promise<string> {
  const url = await ann.client.createFolder(ann.folder('2'), name);
  for (const { email, write } of receivers)
    await server.administration.share(ann.email, localOf(url), email, { writeAllowed: write });
  return url;
}
const parent = (url: string, root = 'folder') => ({ body: `<${root}><parent>${url}</parent></${root}>` });

test('a receiver can neither move, rename nor delete the shared folder, also not into another share', async () => {
  const first = await shared('first', { email: bob.email, write: true });
  const second = await shared('second', { email: bob.email, write: true }, { email: eve.email, write: false });
  const file = await ann.client.createFilled(first, 'file', 'private of ann and bob');
  const folder = await ann.client.createFolder(first, 'folder');

  const refused = [
    await bob.client.send('PUT', first, parent(second)),
    await bob.client.send('PUT', first, parent(bob.folder('9'))),
    await bob.client.send('PUT', first, { body: '<folder><displayName>mine</displayName></folder>' }),
    await bob.client.send('DELETE', first),
    await bob.client.send('PUT', file, parent(second, 'file')),
    await bob.client.send('PUT', folder, parent(second)),
  ];

  expect(refused.map(({ status }) => status)).toEqual([403, 403, 403, 403, 403, 403]);
  expect((await eve.client.get(file)).status).toBe(404);
  expect((await bob.client.send('PUT', file, parent(folder, 'file'))).status).toBe(200);
});

test('only the owner links a file; a receiver sees that there is a link, not which', async () => {
  const folder = await shared('linked', { email: bob.email, write: true });
  const file = await ann.client.createFilled(folder, 'file', 'data');
  const link = { body: '<file><publicLink enabled="true"/></file>' };

  const byBob = await bob.client.send('PUT', file, link);
  const byAnn = await ann.client.send('PUT', file, link);
  const seen = await bob.client.get(file);
  const ended = await bob.client.send('PUT', file, { body: '<file><publicLink enabled="false"/></file>' });

  expect([byBob.status, byAnn.status, ended.status]).toEqual([403, 200, 403]);
  expect(byAnn.text).toMatch(/\/pf\/D/);
  expect(seen.text).toContain('publicLink');
  expect(seen.text).not.toMatch(/\/pf\/D/);
});

test('a withdrawn share ends uploads under way: nothing of them becomes the content', async () => {
  const folder = await shared('withdrawn', { email: bob.email, write: true });
  const file = await ann.client.createFilled(folder, 'file', 'of ann');
  const version = (await bob.client.send('POST', `${file}/version`)).headers.location as string;
  const options = { bodyBytes: 10, front: 'of bob' };
  const [whole, part] = [
    await HeldRequest.begin(server, bob.client, `${file}/data`, options),
    await HeldRequest.begin(server, bob.client, `${version}/data`, options),
  ];

  await server.administration.unshare(ann.email, localOf(folder), bob.email);
  await whole.send('more');
  await part.send('more');

  expect([await whole.status(), await part.status()]).toEqual([404, 404]);
  expect((await ann.client.get(`${file}/data`)).text).toBe('of ann');
  for (const held of [whole, part]) held.cut();
});

test('revoked tokens end uploads under way; a token that only expires does not', async () => {
  const carl = await signUp(server, 'carl@example.com');
  const file = await carl.client.createFilled(carl.folder('2'), 'file', 'old');
  const held = await HeldRequest.begin(server, carl.client, `${file}/data`, { bodyBytes: 10, front: 'begin' });

  await server.administration.revokeTokens(carl.email);
  await held.send('nings');

  expect(await held.status()).toBe(401);
  held.cut();
});

test('a withdrawn share ends a download under way', async () => {
  const folder = await shared('downloaded', { email: bob.email, write: false });
  const bytes = 32 * 1024 * 1024;
  const file = await ann.client.createFilled(folder, 'file', Buffer.alloc(bytes));
  const socket = connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  const path = new URL(file).pathname;
  socket.write(`GET ${path}/data HTTP/1.1\r\nHost: x\r\nAuthorization: ${bob.client.token}\r\n\r\n`);
  let received = ((await once(socket, 'data')) as [Buffer])[0].byteLength;
  socket.pause();

  await server.administration.unshare(ann.email, localOf(folder), bob.email);
  const closed = once(socket, 'close');
  socket.on('data', (data) => {
    received += data.byteLength;
  });
  socket.resume();
  await closed;

  expect(received).toBeLessThan(bytes);
  expect((await ann.client.get(`${file}/data`)).bytes.byteLength).toBe(bytes);
});

test('a receiver with write permission changes and deletes everything inside the shared folder', async () => {
  const folder = await shared('open', { email: bob.email, write: true });
  const inner = await ann.client.createFolder(folder, 'inner');
  const file = await ann.client.createFilled(inner, 'file', 'of ann');

  const allowed = [
    await bob.client.send('PUT', `${file}/data`, { body: 'of bob' }),
    await bob.client.send('PUT', inner, { body: '<folder><displayName>renamed</displayName></folder>' }),
    await bob.client.send('PUT', file, parent(folder, 'file')),
    await bob.client.send('DELETE', file),
    await bob.client.send('DELETE', inner),
  ];

  expect(allowed.map(({ status }) => status)).toEqual([204, 204, 200, 204, 204]);
  expect([(await ann.client.get(file)).status, (await ann.client.get(inner)).status]).toEqual([404, 404]);
});

test('a receiver copies what he can read, and keeps the copy after a withdrawal', async () => {
  const folder = await shared('copied', { email: bob.email, write: false });
  const file = await ann.client.createFilled(folder, 'file', 'of ann');
  const source = `<fileCopy source="${file}"><displayName>copy</displayName></fileCopy>`;
  const copy = await bob.client.create(bob.folder('2'), source);

  await server.administration.unshare(ann.email, localOf(folder), bob.email);

  expect((await bob.client.get(file)).status).toBe(404);
  expect((await bob.client.get(`${copy}/data`)).text).toBe('of ann');
});

test('folders of pictures in a deep tree are found, those in the trash are not', async () => {
  const { client, folder } = await signUp(server, 'deep@example.com');
  let at = folder('2');
  for (let depth = 0; depth < 30; depth += 1) {
    at = await client.createFolder(at, `level ${depth}`);
    await client.createFile(at, 'picture', 'image/png');
  }
  const trashed = await client.createFolder(folder('2'), 'trashed');
  await client.createFile(trashed, 'picture', 'image/png');
  await client.send('PUT', trashed, parent(folder('9')));
  const uid = /:sc:(\d+):/.exec(folder('2'))?.[1];
  const albums = await client.get(`/user/${uid}/albums/contents`);

  expect(texts(albums.text, 'displayName')).toHaveLength(30);
  await until(() => server.uploadsUnderWay === 0);
});

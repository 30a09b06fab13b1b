import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';

/** Workspaces, albums, shares and contacts (docs/service.md 8 and 9), and the rules that can be switched on. */

const directory = mkdtempSync(join(tmpdir(), 'cfs-accounts-'));
let server: ReferenceServer;
let owner: TestUser;
let friend: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  owner = await signUp(server, 'owner@example.com');
  friend = await signUp(server, 'friend@example.com');
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const localOf = (url: string) => url.split(':').at(-1) as string;

test('a workspace lists its sync folders and can be renamed', async () => {
  const local = await server.administration.addWorkspace(owner.email, 'Laptop', {
    syncFolders: ['Documents', 'Pictures'],
  });
  const url = `${server.origin}/workspace/:sc:${owner.uid}:${local}`;

  const all = await owner.client.get(`/user/${owner.uid}/workspaces/contents`);
  const contents = await owner.client.get(`${url}/contents`);
  const renamed = await owner.client.send('PUT', url, {
    body: '<workspace><displayName>Desk</displayName></workspace>',
  });
  const workspace = await owner.client.get(url);

  expect(all.text).toContain('<collection type="workspace">');
  expect(texts(all.text, 'ref')).toEqual([url]);
  expect(texts(contents.text, 'displayName')).toEqual(['Documents', 'Pictures']);
  expect(contents.text).toContain('<collection type="syncFolder">');
  expect(renamed.status).toBe(204);
  expect(texts(workspace.text, 'displayName')).toEqual(['Desk']);
  expect((await owner.client.send('POST', url, { body: '<folder><displayName>x</displayName></folder>' })).status).toBe(
    405,
  );
});

test('a folder becomes an album with its first picture', async () => {
  const folder = await owner.client.createFolder(owner.folder('2'), 'Holidays');
  const album = folder.replace('/folder/', '/album/');
  await owner.client.createFilled(folder, 'notes.txt', 'x');
  const before = await owner.client.get(album);
  const allBefore = await owner.client.get(`/user/${owner.uid}/albums/contents`);
  await owner.client.createFilled(folder, 'beach.jpg', 'not really', 'image/jpeg');

  const after = await owner.client.get(album);
  const all = await owner.client.get(`/user/${owner.uid}/albums/contents`);
  const files = await owner.client.get(`${album}/contents?order=name`);

  expect([before.status, after.status]).toEqual([404, 200]);
  expect(texts(all.text, 'ref')).toEqual([...texts(allBefore.text, 'ref'), album]);
  expect(texts(files.text, 'displayName')).toEqual(['beach.jpg', 'notes.txt']);
});

test('a picture that nobody can scale is 406', async () => {
  const file = await owner.client.createFilled(owner.folder('2'), 'p.jpg', 'not really', 'image/jpeg');

  const scaled = await owner.client.get(`${file}/data`, { Accept: 'image/jpeg; pxmax=100; pymax=100; sq=(1); r=(0)' });
  const plain = await owner.client.get(`${file}/data`, { Accept: 'image/jpeg' });

  expect([scaled.status, plain.status]).toEqual([406, 200]);
});

test('a share shows what is below it, and nothing above', async () => {
  const above = await owner.client.createFolder(owner.folder('2'), 'above');
  const shared = await owner.client.createFolder(above, 'shared');
  const inner = await owner.client.createFolder(shared, 'inner');
  const file = await owner.client.createFilled(inner, 'f', 'for you');
  await server.administration.share(owner.email, localOf(shared), friend.email, { writeAllowed: false });

  const list = await friend.client.get(`/user/${friend.uid}/receivedShares/contents`);
  const folder = await friend.client.get(shared);
  const share = `${server.origin}/receivedShare/${friend.uid}/:sc:${owner.uid}:${localOf(shared)}`;

  expect(list.text).toContain(`ref="${share}"`);
  expect(texts(list.text, 'sharedFolder')).toContain(shared);
  expect(list.text).toContain('<writeAllowed enabled="false"');
  expect(texts((await friend.client.get(share)).text, 'displayName')).toEqual(['shared']);
  expect(folder.text).toContain('<sharing enabled="true">');
  expect(folder.text).not.toContain('<parent>');
  expect((await friend.client.get(inner)).text).toContain(`<parent>${shared}</parent>`);
  expect((await friend.client.get(`${file}/data`)).text).toBe('for you');
  expect((await friend.client.get(above)).status).toBe(404);
  expect((await owner.client.get(shared)).text).toContain('<sharing enabled="true">');
});

test("a read-only share is read only; a share for writing takes new files into its owner's account", async () => {
  const shared = await owner.client.createFolder(owner.folder('2'), 'ours');
  const file = await owner.client.createFilled(shared, 'f', 'first');
  const share = (writeAllowed: boolean) =>
    server.administration.share(owner.email, localOf(shared), friend.email, { writeAllowed });
  await share(false);
  const refused = [
    await friend.client.send('PUT', `${file}/data`, { body: 'x' }),
    await friend.client.send('DELETE', file),
    await friend.client.send('PUT', file, { body: '<file><displayName>x</displayName></file>' }),
    await friend.client.send('POST', shared, { body: '<file><displayName>x</displayName></file>' }),
    await friend.client.send('POST', `${file}/version`),
  ];
  await share(true);
  const created = await friend.client.createFilled(shared, 'from a friend', 'hello');
  const overwritten = await friend.client.send('PUT', `${file}/data`, { body: 'second' });
  const stolen = await friend.client.send('PUT', file, { body: `<file><parent>${friend.folder('2')}</parent></file>` });
  const thrownAway = await friend.client.send('PUT', created, {
    body: `<file><parent>${friend.folder('9')}</parent></file>`,
  });

  expect(refused.map(({ status }) => status)).toEqual([403, 403, 403, 403, 403]);
  expect(created).toContain(`:sc:${owner.uid}:`);
  expect([overwritten.status, stolen.status, thrownAway.status]).toEqual([204, 403, 200]);
  expect(texts((await owner.client.get(`${owner.folder('9')}/contents`)).text, 'displayName')).toEqual([
    'from a friend',
  ]);
  expect((await friend.client.get(created)).status).toBe(404);
  expect((await friend.client.send('DELETE', shared)).status).toBe(403);
});

test('contacts know each other while something is shared', async () => {
  const shared = await owner.client.createFolder(owner.folder('2'), 'for the address book');
  await server.administration.share(owner.email, localOf(shared), friend.email, { writeAllowed: false });
  const contact = await friend.client.get(`/contact/${friend.uid}/${owner.uid}`);

  expect(texts(contact.text, 'primaryEmailAddress')).toEqual(['owner@example.com']);
  expect((await owner.client.get(`/contact/${owner.uid}/${friend.uid}`)).status).toBe(200);
  await server.administration.unshare(owner.email, localOf(shared), friend.email);
  expect((await friend.client.get(shared)).status).toBe(404);
});

test('links that were given are listed', async () => {
  const file = await owner.client.createFilled(owner.folder('2'), 'linked', 'x');
  await owner.client.send('PUT', file, { body: '<file><publicLink enabled="true"/></file>' });

  const { text } = await owner.client.get(`/user/${owner.uid}/publicLinks/contents`);
  const recent = await owner.client.get(`/user/${owner.uid}/recentActivities/contents`);

  expect(texts(text, 'ref')).toEqual([file]);
  expect([recent.status, texts(recent.text, 'ref')]).toEqual([200, []]);
});

test.each([
  { rules: { uniqueNames: true }, upper: 201 },
  { rules: { uniqueNames: true, foldCase: true }, upper: 409 },
])('names can be made unique: $rules', async ({ rules, upper }) => {
  const own = mkdtempSync(join(tmpdir(), 'cfs-unique-'));
  const strict = await ReferenceServer.open({ dataDirectory: own, ...rules });
  const { client, folder } = await signUp(strict, 'x@example.com');
  const parent = await client.createFolder(folder('2'), 'p');
  const file = await client.createFile(parent, 'name');
  const other = await client.createFile(parent, 'other');
  const post = async (name: string, root = 'file') =>
    (await client.send('POST', parent, { body: `<${root}><displayName>${name}</displayName></${root}>` })).status;
  const rename = (url: string, name: string) =>
    client.send('PUT', url, { body: `<file><displayName>${name}</displayName></file>` });

  expect([await post('name'), await post('name', 'folder'), await post('NAME')]).toEqual([409, 409, upper]);
  expect((await rename(other, 'name')).status).toBe(409);
  // To its own name in other letters: nobody is in the way.
  expect((await rename(file, 'Name')).status).toBe(200);
  for (const url of [file, other]) {
    const body = `<file><displayName>same</displayName><parent>${folder('9')}</parent></file>`;
    expect((await client.send('PUT', url, { body })).status).toBe(200);
  }
  await strict.close();
  rmSync(own, { recursive: true });
});

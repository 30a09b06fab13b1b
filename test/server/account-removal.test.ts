import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { finishRemovals } from '../../src/server/account-removal.ts';
import { openAdministration, openParts } from '../../src/server/local-back-end.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { appAuthorization, RawClient, signUp, TEST_PASSWORD, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** Changed passwords and removed accounts. */

let directory: string;
let server: ReferenceServer;
let user: TestUser;
let other: TestUser;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-removal-'));
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'a@example.com');
  other = await signUp(server, 'b@example.com');
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const signIn = async (password: string) =>
  (
    await new RawClient(server.origin).send('POST', '/app-authorization', {
      body: appAuthorization({ ...user, password }),
    })
  ).status;
const email = 'removed@example.com';
const blobs = () =>
  readdirSync(join(directory, 'blobs'), { recursive: true, withFileTypes: true }).filter((e) => e.isFile());

test('a new password replaces the old one, and signs out everywhere', async () => {
  await server.administration.setPassword(user.email, 'another password');

  expect((await user.client.get('/user')).status).toBe(401);
  expect([await signIn(TEST_PASSWORD), await signIn('another password')]).toEqual([401, 201]);
  await expect(server.administration.setPassword(user.email, '')).rejects.toThrow('empty');
  await expect(server.administration.setPassword('nobody@example.com', 'x')).rejects.toThrow('no user');
});

test('a sign-in that is under way when the user is signed out everywhere, or removed, gives no token', async () => {
  const { administration } = server;
  for (const end of [() => administration.revokeTokens(email), () => administration.removeUser(email)]) {
    await administration.addUser(email, TEST_PASSWORD).catch(() => administration.setPassword(email, TEST_PASSWORD));
    const { bytesArrived } = server;
    const client = new RawClient(server.origin);
    const keys = { accessKeyId: user.accessKeyId, privateAccessKey: user.privateAccessKey };
    const body = appAuthorization({ ...keys, application: user.application, email, password: TEST_PASSWORD });
    // Hashing takes 60 ms, the other calls one commit.
    const signingIn = client.send('POST', '/app-authorization', { body });
    await until(() => server.bytesArrived > bytesArrived);
    await end();

    expect((await signingIn).status).toBe(401);
  }
});

test('a removed account leaves no row and no blob, and nothing of others', async () => {
  const folder = await user.client.createFolder(user.folder('2'), 'folder');
  for (let at = 0; at < 3; at += 1) await user.client.createFilled(folder, `file ${at}`, Buffer.alloc(20_000));
  const linked = await user.client.createFilled(folder, 'small', 'data');
  await user.client.send('PUT', linked, { body: '<file><publicLink enabled="true"/></file>' });
  await server.administration.share(user.email, folder.split(':').pop() as string, other.email, { writeAllowed: true });
  const kept = await other.client.createFilled(other.folder('2'), 'kept', Buffer.alloc(20_000, 'k'));
  const apart = await openAdministration({ dataDirectory: directory });

  await apart.administration.removeUser(user.email);
  await apart.close();

  expect((await user.client.get('/user')).status).toBe(401);
  expect(await signIn(TEST_PASSWORD)).toBe(401);
  expect((await other.client.get(folder)).status).toBe(404);
  expect(texts((await other.client.get(`/user/${other.uid}/receivedShares/contents`)).text, 'ref')).toEqual([]);
  expect((await other.client.get(`${kept}/data`)).bytes.toString('utf8', 0, 1)).toBe('k');
  expect(blobs()).toHaveLength(1);
  const { database } = openParts({ dataDirectory: directory });
  for (const table of [database.resources, database.children, database.names, database.versions])
    expect([...table.getKeys({})].filter(([uid]) => uid === user.uid)).toEqual([]);
  expect([...database.removals.getKeys({})]).toEqual([]);
  await database.close();
  await signUp(server, user.email);
});

test('a removal that was interrupted is finished later', async () => {
  await user.client.createFilled(user.folder('2'), 'file', Buffer.alloc(20_000));
  const parts = openParts({ dataDirectory: directory });
  parts.database.change(() => void parts.database.removals.put(user.uid, true));

  await finishRemovals(parts.database, parts.blobs);

  expect(blobs()).toEqual([]);
  expect(parts.database.resources.get([user.uid, '2'])).toBeUndefined();
  expect(parts.database.removals.getCount()).toBe(0);
  await parts.database.close();
});

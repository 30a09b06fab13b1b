import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { systemClock } from '../../src/base/clock.ts';
import type { EndpointKind } from '../../src/protocol/endpoints.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { accessToken, RawClient, signUp, type TestUser } from './raw-client.ts';

/**
 * Nothing of another user is ever told, not even that it exists: every endpoint with every method, asked for as somebody
 * else, without a token, with an expired one, and with ids that nobody has.
 */

const directory = mkdtempSync(join(tmpdir(), 'cfs-isolation-'));
let nowMs = Date.UTC(2026, 0, 1);
const clock: Clock = { ...systemClock, nowMs: () => nowMs };
let server: ReferenceServer;
let owner: TestUser;
let stranger: TestUser;
let file: string;
let folder: string;
let version: string;
let workspace: string;
/** Of the owner, from an hour ago. */
let expiredToken: string;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory, clock });
  owner = await signUp(server, 'owner@example.com');
  stranger = await signUp(server, 'stranger@example.com');
  folder = await owner.client.createFolder(owner.folder('2'), SECRET);
  file = await owner.client.createFilled(folder, `${SECRET}.jpg`, SECRET, 'image/jpeg');
  version = (await owner.client.send('POST', `${file}/version`)).headers.location as string;
  workspace = await server.administration.addWorkspace(owner.email, SECRET);
  expiredToken = owner.client.token as string;
  nowMs += 61 * 60_000;
});

/** Some tests let time go by. */
beforeEach(async () => {
  for (const user of [owner, stranger]) user.client.token = await accessToken(server.origin, user, user.refreshToken);
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const SECRET = 'top-secret-name';
const METHODS = ['GET', 'POST', 'PUT', 'DELETE'] as const;

type Paths = (uid: string) => { there: string; madeUp: string };

const collection =
  (name: string): Paths =>
  (uid) => ({ there: `/user/${uid}/${name}`, madeUp: `/user/99999/${name}` });

/** Every protected endpoint, as the path of something that is there and as one of the same form that is not. */
const ENDPOINTS: Readonly<Partial<Record<EndpointKind, Paths>>> = {
  user: (uid) => ({ there: `/user/${uid}`, madeUp: '/user/99999' }),
  userCollection: collection('folders'),
  userCollectionContents: collection('folders/contents'),
  folder: (uid) => ({ there: pathOf(folder), madeUp: `/folder/:sc:${uid}:777_778` }),
  folderContents: (uid) => ({ there: `${pathOf(folder)}/contents`, madeUp: `/folder/:sc:${uid}:777_778/contents` }),
  workspace: (uid) => ({ there: `/workspace/:sc:${uid}:${workspace}`, madeUp: `/workspace/:sc:${uid}:777_778` }),
  workspaceContents: (uid) => ({
    there: `/workspace/:sc:${uid}:${workspace}/contents`,
    madeUp: `/workspace/:sc:${uid}:777_778/contents`,
  }),
  album: (uid) => ({ there: pathOf(folder).replace('folder', 'album'), madeUp: `/album/:sc:${uid}:777_778` }),
  albumContents: (uid) => ({
    there: `${pathOf(folder).replace('folder', 'album')}/contents`,
    madeUp: `/album/:sc:${uid}:777_778/contents`,
  }),
  file: (uid) => ({ there: pathOf(file), madeUp: `/file/:sc:${uid}:777_778` }),
  fileData: (uid) => ({ there: `${pathOf(file)}/data`, madeUp: `/file/:sc:${uid}:777_778/data` }),
  fileVersions: (uid) => ({ there: `${pathOf(file)}/version`, madeUp: `/file/:sc:${uid}:777_778/version` }),
  fileVersion: () => ({ there: pathOf(version), madeUp: `${pathOf(file)}/version/777_778` }),
  fileVersionData: () => ({ there: `${pathOf(version)}/data`, madeUp: `${pathOf(file)}/version/777_778/data` }),
  receivedShare: (uid) => ({
    there: `/receivedShare/${stranger.uid}/:sc:${uid}:${pathOf(folder).split(':').at(-1)}`,
    madeUp: `/receivedShare/${stranger.uid}/:sc:${uid}:777_778`,
  }),
  contact: (uid) => ({ there: `/contact/${stranger.uid}/${uid}`, madeUp: `/contact/${stranger.uid}/99999` }),
};

/** The same endpoints once more, where one kind has several names. */
const COLLECTIONS: Readonly<Record<string, Paths>> = Object.fromEntries(
  ['workspaces', 'albums', 'receivedShares', 'publicLinks', 'recentActivities'].flatMap((name) => [
    [name, collection(name)],
    [`${name}/contents`, collection(`${name}/contents`)],
  ]),
);

/** Those that take no token: for what is in their body, or in their path. */
const OPEN_ENDPOINTS: Readonly<Partial<Record<EndpointKind, string>>> = {
  appAuthorization: '/app-authorization/777_778',
  authorization: '/authorization/777_778',
  publicLink: '/pf/777_778',
};

/** What tries to be a path, or holds what no id holds. */
const evilIds = (uid: string): string[] => [
  '..',
  '%2e%2e',
  '..%2f..',
  '%2f',
  '%00',
  `:sc:${uid}:..`,
  `:sc:${uid}:2%00`,
  `:sc:${uid}:2%2f..`,
  ':sc:%2f:2',
  `:sc:${uid}:`,
  ':sc::2',
  ':sc:..:2',
  '__proto__',
  '%ff',
  `:sc:${uid}:${'9'.repeat(4000)}`,
];

/** A path with each of its ids in turn replaced by each of these. */
function evilPaths(path: string): string[] {
  const segments = path.split('/');
  return segments.flatMap((segment, at) =>
    /\d/.test(segment) ? evilIds(owner.uid).map((evil) => segments.with(at, evil).join('/')) : [],
  );
}

function pathOf(url: string): string {
  return url.slice(server.origin.length);
}

/** A body that the endpoint would understand, so that nothing is refused for its form. */
function bodyFor(kind: string, method: string): string | undefined {
  if (method !== 'POST' && method !== 'PUT') return undefined;
  const root = kind.startsWith('file')
    ? 'file'
    : kind === 'workspace'
      ? 'workspace'
      : kind === 'userCollection'
        ? 'syncFolder'
        : 'folder';
  return `<${root}><displayName>taken over</displayName></${root}>`;
}

describe.each(Object.entries({ ...ENDPOINTS, ...COLLECTIONS }))('%s', (kind, paths) => {
  test.each(METHODS)('%s tells a stranger the same of what is there and of what is not', async (method) => {
    const { there, madeUp } = paths(owner.uid);
    const body = bodyFor(kind, method);
    const ask = (path: string) => stranger.client.send(method, path, body === undefined ? {} : { body });

    const [real, none] = [await ask(there), await ask(madeUp)];

    expect(real.status, there).toBe(none.status);
    expect([404, 405]).toContain(real.status);
    expect(real.text).toBe(none.text);
    expect(real.text).not.toContain(SECRET);
  });

  test.each(METHODS)('%s of an id that no resource can have tells nothing, to nobody', async (method) => {
    const { there } = paths(owner.uid);
    const body = bodyFor(kind, method);
    const asked = evilPaths(there);

    expect(asked.length).toBeGreaterThan(10);
    for (const { client } of method === 'GET' ? [owner, stranger] : [owner]) {
      const answers = await Promise.all(
        asked.map((path) => client.send(method, path, body === undefined ? {} : { body })),
      );
      // 400 for a version of what is a folder: the wrong kind comes first.
      const told = answers.map(({ status, text }, at) => ({ status, path: asked[at], secret: text.includes(SECRET) }));
      expect(told.filter(({ status, secret }) => secret || ![400, 404, 405].includes(status))).toEqual([]);
    }
  });

  test.each(METHODS)('%s without a token, with an expired one, or with one that is none, is 401', async (method) => {
    const { there } = paths(owner.uid);
    const madeUp = `${server.origin}/authorization/made-up`;
    const tokens = [null, madeUp, 'Bearer x', owner.refreshToken, '', expiredToken];

    for (const token of tokens) {
      const { status, text } = await new RawClient(server.origin, token).send(method, there);
      expect([401, 405], `${token}`).toContain(status);
      expect(text).not.toContain(SECRET);
    }
  });
});

describe.each(Object.entries(OPEN_ENDPOINTS))('%s', (_kind, path) => {
  test.each(METHODS)('%s of a made-up or impossible token tells nothing', async (method) => {
    const anybody = new RawClient(server.origin, null);
    for (const asked of [path, ...evilPaths(path)]) {
      const { status, text } = await anybody.send(method, asked);
      expect([400, 404, 405], `${method} ${asked}`).toContain(status);
      expect(text).not.toContain(SECRET);
    }
  });
});

test('every endpoint that the server knows is in a table', () => {
  const all: Readonly<Record<EndpointKind, unknown>> = {
    ...{ appAuthorization: 0, authorization: 0, user: 0, userCollection: 0, userCollectionContents: 0, folder: 0 },
    ...{ folderContents: 0, workspace: 0, workspaceContents: 0, album: 0, albumContents: 0, file: 0, fileData: 0 },
    ...{ fileVersions: 0, fileVersion: 0, fileVersionData: 0, receivedShare: 0, contact: 0, publicLink: 0 },
  };

  expect(Object.keys({ ...ENDPOINTS, ...OPEN_ENDPOINTS }).sort()).toEqual(Object.keys(all).sort());
});

test('a NUL in a request line ends in 400, whatever stands behind it', async () => {
  const socket = connect(Number(new URL(server.origin).port), '127.0.0.1');
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.write(`GET ${pathOf(file)}\0/data HTTP/1.1\r\nHost: x\r\nAuthorization: ${owner.client.token}\r\n\r\n`);
  await new Promise((resolve) => socket.once('close', resolve));

  expect(Buffer.concat(chunks).toString()).toMatch(/^HTTP\/1\.1 400 /);
  expect(Buffer.concat(chunks).toString()).not.toContain(SECRET);
});

test('an id may be written with %3A', async () => {
  expect((await owner.client.get('/folder/%3Asc%3A1001%3A2')).status).toBe(200);
});

test('nothing can be moved to another account, or fetched from it by a copy', async () => {
  const own = await stranger.client.createFile(stranger.folder('2'), 'mine');
  const move = (parent: string) =>
    stranger.client.send('PUT', own, { body: `<file><parent>${parent}</parent></file>` });
  const copy = (source: string) =>
    stranger.client.send('POST', stranger.folder('2'), {
      body: `<fileCopy source="${source}"><displayName>x</displayName></fileCopy>`,
    });

  const answers = [await move(folder), await move(`${folder}7`), await copy(file), await copy(`${file}7`)];

  expect(answers.map(({ status }) => status)).toEqual([403, 403, 404, 404]);
  expect(answers[0]?.text).toBe(answers[1]?.text);
  expect(answers[2]?.text).toBe(answers[3]?.text);
});

test('a parent or source on another server is not ours', async () => {
  const own = await owner.client.createFile(owner.folder('2'), 'mine');
  const body = `<file><parent>${owner.folder('2').replace(server.origin, 'http://elsewhere.example')}</parent></file>`;

  expect((await owner.client.send('PUT', own, { body })).status).toBe(403);
});

test('a token is good for an hour, a new one can be had with the same refresh token', async () => {
  const user = await signUp(server, 'hour@example.com');
  nowMs += 59 * 60_000;
  expect((await user.client.get('/user')).status).toBe(200);
  nowMs += 2 * 60_000;
  expect((await user.client.get('/user')).status).toBe(401);

  user.client.token = await accessToken(server.origin, user, user.refreshToken);

  expect((await user.client.get('/user')).status).toBe(200);
});

test('revoking ends what was given: tokens at once, keys and applications for new tokens', async () => {
  const user = await signUp(server, 'revoked@example.com');
  const { administration } = server;

  await administration.setApplicationEnabled(user.application, false);
  await expect(accessToken(server.origin, user, user.refreshToken)).rejects.toThrow('401');
  await administration.setApplicationEnabled(user.application, true);
  await administration.revokeKeyPair(user.accessKeyId);
  await expect(accessToken(server.origin, user, user.refreshToken)).rejects.toThrow('401');
  expect((await user.client.get('/user')).status).toBe(200);
  await administration.revokeTokens('revoked@example.com');

  expect((await user.client.get('/user')).status).toBe(401);
});

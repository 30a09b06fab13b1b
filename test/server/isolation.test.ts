import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
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

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory, clock });
  owner = await signUp(server, 'owner@example.com');
  stranger = await signUp(server, 'stranger@example.com');
  folder = await owner.client.createFolder(owner.folder('2'), SECRET);
  file = await owner.client.createFilled(folder, `${SECRET}.jpg`, SECRET, 'image/jpeg');
  version = (await owner.client.send('POST', `${file}/version`)).headers.location as string;
  workspace = server.administration.addWorkspace(owner.email, SECRET);
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const SECRET = 'top-secret-name';
const METHODS = ['GET', 'POST', 'PUT', 'DELETE'] as const;

/** Every protected endpoint, as the path of something that is there and as one of the same form that is not. */
const ENDPOINTS: Readonly<Partial<Record<EndpointKind, (uid: string) => { there: string; madeUp: string }>>> = {
  user: (uid) => ({ there: `/user/${uid}`, madeUp: '/user/99999' }),
  userCollection: (uid) => ({ there: `/user/${uid}/folders`, madeUp: '/user/99999/folders' }),
  userCollectionContents: (uid) => ({ there: `/user/${uid}/folders/contents`, madeUp: '/user/99999/folders/contents' }),
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

describe.each(Object.entries(ENDPOINTS))('%s', (kind, paths) => {
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

  test.each(METHODS)('%s without a token, or with one that is none, is 401', async (method) => {
    const { there } = paths(owner.uid);
    const tokens = [null, `${server.origin}/authorization/made-up`, 'Bearer x', owner.refreshToken, ''];

    for (const token of tokens) {
      const { status, text } = await new RawClient(server.origin, token).send(method, there);
      expect([401, 405], `${token}`).toContain(status);
      expect(text).not.toContain(SECRET);
    }
  });
});

test('every endpoint that the server knows is in the table', () => {
  const open: EndpointKind[] = ['appAuthorization', 'authorization', 'publicLink'];
  expect(Object.keys(ENDPOINTS)).toHaveLength(16);
  expect(open.some((kind) => kind in ENDPOINTS)).toBe(false);
});

test('ids that try to be paths, or hold what no id holds, are 404 and nothing else', async () => {
  const ids = [
    '..',
    '%2e%2e',
    '..%2f..',
    ':sc:1001:..',
    ':sc:1001:%00',
    ':sc:1001:2%00',
    ':sc:1001:2%2f..',
    ':sc:%2f:2',
    ':sc:1001:',
    ':sc::2',
    '%ff',
    `:sc:1001:${'9'.repeat(4000)}`,
  ];
  for (const id of ids) {
    for (const path of [
      `/folder/${id}`,
      `/file/${id}/data`,
      `/folder/${id}/contents`,
      `/file/:sc:${owner.uid}:2/version/${id}`,
      `/user/${id}`,
    ]) {
      const { status } = await owner.client.get(path);
      // A version of what is a folder: the wrong kind comes first.
      expect([400, 404], path).toContain(status);
    }
  }
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

  administration.setApplicationEnabled(user.application, false);
  await expect(accessToken(server.origin, user, user.refreshToken)).rejects.toThrow('401');
  administration.setApplicationEnabled(user.application, true);
  administration.revokeKeyPair(user.accessKeyId);
  await expect(accessToken(server.origin, user, user.refreshToken)).rejects.toThrow('401');
  expect((await user.client.get('/user')).status).toBe(200);
  administration.revokeTokens('revoked@example.com');

  expect((await user.client.get('/user')).status).toBe(401);
});

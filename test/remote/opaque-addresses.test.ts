import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { AccountTree, SHARES_NAME, WORKSPACES_NAME } from '../../src/remote/http/account-tree.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { clientOf } from './client.ts';
import { reply, ScriptedServer, xml } from './scripted-server.ts';

/** A service whose ids look like nothing of ours (docs/service.md 2.1: the last part of an address is opaque). */

let server: ScriptedServer;
let service: HttpService;
let documents: Map<string, string>;
beforeEach(async () => {
  server = await ScriptedServer.start();
  service = clientOf(server.baseUrl);
  documents = new Map([
    [
      '/user/1', // of the scripted token
      `<user><username>a</username><syncfolders>${server.url('/user/u-1/folders/contents')}</syncfolders>` +
        `<workspaces>${server.url('/user/u-1/workspaces/contents')}</workspaces>` +
        `<receivedShares>${server.url('/user/u-1/receivedShares/contents')}</receivedShares>` +
        `<deleted>${url('trash')}</deleted><magicBriefcase>${url('briefcase')}</magicBriefcase></user>`,
    ],
    ['/user/u-1/folders/contents', listing(entry('briefcase'), entry('trash'), entry('desk'))],
    ['/user/u-1/workspaces/contents', listing(entry('laptop', 'workspace'))],
    ['/workspace/laptop/contents', listing(entry('desk'))],
    ['/workspace/laptop', '<workspace><displayName>laptop</displayName><contents>c</contents></workspace>'],
    [
      '/user/u-1/receivedShares/contents',
      `<receivedShares><receivedShare><displayName>plans</displayName><sharedFolder>${url('plans')}</sharedFolder>` +
        '<permissions><readAllowed enabled="true"/><writeAllowed enabled="true"/></permissions>' +
        `<owner>${server.url('/contact/u-1/u-2')}</owner></receivedShare></receivedShares>`,
    ],
    ...['desk', 'plans'].map((id): [string, string] => [
      `/folder/${id}`,
      `<folder><displayName>${id}</displayName><contents>${url(id)}/contents</contents></folder>`,
    ]),
  ]);
  server.otherwise = {
    act: (socket, request) => {
      const document = documents.get(request.path.replace(/\?.*/, ''));
      (document === undefined ? reply(404) : xml(document)).act(socket, request);
    },
  };
});
afterEach(async () => {
  await service.close();
  await server.close();
});

function url(id: string, kind = 'folder'): ResourceUrl {
  return server.url(`/${kind}/${id}`) as ResourceUrl;
}

function entry(id: string, kind: 'folder' | 'workspace' = 'folder'): string {
  return `<collection type="${kind}"><displayName>${id}</displayName><ref>${url(id, kind)}</ref></collection>`;
}

function listing(...entries: readonly string[]): string {
  return `<collectionContents hasMore="false">${entries.join('')}</collectionContents>`;
}

const top = () => server.url('/user/u-1/folders') as ResourceUrl;

test('a folder at the top of the account is made as a sync folder', async () => {
  server.steps = [reply(201, { Location: url('new') })];

  expect(await service.createFolder(top(), 'new')).toBe(url('new'));
  expect(server.requests[0]?.body.toString()).toContain('<syncFolder>');
  expect(server.requests[0]?.headers['x-sugarsync-api-version']).toBe('1.5');
});

test('a folder whose address is told as nothing is looked for where it was made', async () => {
  server.steps = [reply(201, { Location: '' })];
  documents.set('/folder/desk/contents', listing(entry('new')));

  expect(await service.createFolder(url('desk'), 'new')).toBe(url('new'));
});

test('the top itself is there as long as its user is: it has no document', async () => {
  expect(await service.resource(top(), 'folder')).toMatchObject({ kind: 'folder', url: top() });
});

test('a computer is asked for as one', async () => {
  expect(await service.resource(url('laptop', 'workspace'), 'folder')).toMatchObject({ name: 'laptop' });
});

test('the whole account has its places', async () => {
  const account = new AccountTree({ service, baseUrl: server.baseUrl, shownName: (name) => name });
  const names = async (folder: ResourceUrl) => (await account.listPage(folder, 0)).entries.map(({ name }) => name);

  expect(await names(top())).toEqual(['briefcase', 'desk', WORKSPACES_NAME, SHARES_NAME]);
  // What lies at the top is shown there, and linked to from the computer.
  expect((await account.listPage(url('laptop', 'workspace'), 0)).entries).toMatchObject([
    { name: 'desk', mediaType: 'inode/symlink' },
  ]);
  const [owner] = (await account.listPage(server.url('/user/u-1/receivedShares/contents') as ResourceUrl, 0)).entries;
  expect((await account.resource(url('laptop', 'workspace'), 'folder'))?.parent).toBe(
    server.url('/user/u-1/workspaces'),
  );
  expect((await account.resource(url('desk'), 'folder'))?.parent).toBe(top());
  expect((await account.resource(url('plans'), 'folder'))?.parent).toBe(owner?.url);
});

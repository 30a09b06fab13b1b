import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { missingPrograms, testUnless } from '../harness/requirement.ts';
import { signUp, TEST_PASSWORD, type TestUser } from './raw-client.ts';

/** docs/service.md: its examples run as printed, in one shell, and leave out no call. */

const TEXT = readFileSync(new URL('../../docs/service.md', import.meta.url), 'utf8');
const directory = mkdtempSync(join(tmpdir(), 'cfs-examples-'));
let server: ReferenceServer;
let user: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'me@example.com');
  const friend = await signUp(server, 'friend@example.com');
  const shared = await friend.client.createFolder(friend.folder('2'), 'for you');
  await server.administration.share(friend.email, shared.split(':').at(-1) as string, user.email, {
    writeAllowed: false,
  });
  await server.administration.addWorkspace(user.email, 'Computer', { syncFolders: ['Documents'] });
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** Every call of the interface, as kind of endpoint and method. */
const CALLS = [
  'POST appAuthorization',
  'POST authorization',
  'GET user',
  'POST userCollection',
  'GET userCollectionContents',
  'GET folder',
  'POST folder',
  'PUT folder',
  'DELETE folder',
  'GET folderContents',
  'GET file',
  'PUT file',
  'DELETE file',
  'GET fileData',
  'PUT fileData',
  'GET fileVersions',
  'POST fileVersions',
  'GET fileVersion',
  'GET fileVersionData',
  'PUT fileVersionData',
  'GET workspace',
  'PUT workspace',
  'GET workspaceContents',
  'GET album',
  'GET albumContents',
  'GET receivedShare',
  'GET contact',
  'GET publicLink',
];

testUnless(missingPrograms('curl'))('every example works as printed, and every call is among them', async () => {
  const examples = [...TEXT.matchAll(/```sh\n([\s\S]*?)```/g)].map((match) => match[1]);
  server.requests.clear();

  await promisify(execFile)('bash', ['-euo', 'pipefail', '-c', examples.join('\n')], {
    timeout: 60_000,
    env: {
      PATH: process.env.PATH,
      CFS_URL: server.origin,
      CFS_USERNAME: user.email,
      CFS_PASSWORD: TEST_PASSWORD,
      CFS_APPLICATION: user.application,
      CFS_ACCESS_KEY_ID: user.accessKeyId,
      CFS_PRIVATE_ACCESS_KEY: user.privateAccessKey,
    },
  });

  const refused = server.requests.entries.filter(({ status }) => status >= 300);
  expect(refused.map(({ method, path, status }) => `${method} ${path} ${status}`)).toEqual([]);
  const made = new Set(server.requests.entries.map(({ method, kind }) => `${method} ${kind}`));
  expect(CALLS.filter((call) => !made.has(call))).toEqual([]);
});

test('what the code marks as assumed is what the document lists, and every mark says where', () => {
  const listed = new Set(
    [...TEXT.slice(TEXT.indexOf('## 12.')).matchAll(/^\| (\d+\.\d+) \|/gm)].map((match) => match[1]),
  );
  const marks = sources('src').flatMap((text) => text.match(/ASSUMED.{0,30}/g) ?? []);
  const marked = marks.map((mark) => /^ASSUMED \(docs\/service\.md (\d+\.\d+)\)/.exec(mark)?.[1] ?? mark);

  expect([...new Set(marked)].sort()).toEqual([...listed].sort());
});

test('every section that the code cites exists', () => {
  const sections = new Set([...TEXT.matchAll(/^##+ (\d+(?:\.\d+)?)/gm)].map((match) => match[1]));
  const cited = ['src', 'test', 'scripts']
    .flatMap(sources)
    .flatMap((text) => [...text.matchAll(/docs\/service\.md ((?:(?:, | and | to )?\d+(?:\.\d+)?)+)/g)])
    .flatMap(([, list = '']) => list.split(/, | and | to /));

  expect(cited.length).toBeGreaterThan(50);
  expect(cited.filter((section) => !sections.has(section))).toEqual([]);
});

function sources(folder: string): string[] {
  const root = new URL(`../../${folder}`, import.meta.url).pathname;
  return readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|mjs)$/.test(name))
    .map((name) => readFileSync(join(root, name), 'utf8'));
}

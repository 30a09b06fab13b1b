// biome-ignore-all lint/suspicious/noThenProperty: it is a word of the fault plan
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { RequestBody } from '../../src/remote/contract.ts';
import type { AccountUser } from '../../src/remote/http/account.ts';
import { HttpService } from '../../src/remote/http/http-service.ts';
import type { FaultRule } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { HastyClock } from './client.ts';

/** The client beside the reference server: what each of them promises, held against the other. */

let directory: string;
let server: ReferenceServer;
let service: HttpService;
let user: AccountUser;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'cfs-service-'));
  server = await ReferenceServer.open({ dataDirectory: directory });
  const { administration } = server;
  await administration.addUser('someone@example.com', 'pass<&>word', { scryptCost: 2 ** 10 });
  await administration.addUser('other@example.com', 'password', { scryptCost: 2 ** 10 });
  service = await signedIn('someone@example.com', 'pass<&>word');
  user = await service.user();
});

afterEach(() => {
  server.faults = [];
});

afterAll(async () => {
  await service.close();
  await server.close();
  await rm(directory, { recursive: true });
});

async function signedIn(username: string, password: string): Promise<HttpService> {
  const keys = {
    application: await server.administration.addApplication('test'),
    ...(await server.administration.addKeyPair(username)),
  };
  const client = new HttpService({
    baseUrl: server.origin,
    keys,
    refreshToken: null,
    clock: new HastyClock(),
    log: silentLogger,
    userAgent: 'cfs-mount/0.0.0 (test)',
  });
  await client.signIn({ username, password });
  return client;
}

function body(bytes: string | Uint8Array): RequestBody {
  const buffer = Buffer.from(bytes as string);
  return {
    length: buffer.byteLength,
    chunks: async function* () {
      yield buffer;
    },
  };
}

async function textOf(version: VersionUrl, size: number, start = 0, end = size): Promise<string> {
  const { chunks } = await service.readVersion(version, { start, end }, size);
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts).toString();
}

let counted = 0;
/** A new empty folder in the magic briefcase. */
const newFolder = () => service.createFolder(user.home, `folder ${++counted}`);

async function newFile(text: string, name = `file ${++counted}`): Promise<ResourceUrl> {
  const file = await service.createFile(user.home, name, 'text/plain');
  await service.putFileData(file, body(text), 'text/plain');
  return file;
}

test('a user has the folders that every account has, and a quota', () => {
  expect(user.username).toBe('someone@example.com');
  expect(user.quota?.limitBytes).toBeGreaterThan(0);
  expect(user.syncFolders).toBe(`${user.url}/folders`);
});

test('a wrong password is a refusal to sign in', async () => {
  await expect(signedIn('other@example.com', 'wrong')).rejects.toMatchObject({ name: 'SignInError' });
});

test('a file is made, filled, read in part, renamed, moved, copied, trashed and deleted', async () => {
  const folder = await newFolder();
  const file = await service.createFile(folder, 'ä <&>" .txt ', 'text/plain');
  expect(await service.resource(file, 'file')).toMatchObject({
    presentOnServer: false,
    sizeBytes: null,
    parent: folder,
  });
  expect(await service.newestVersion(file)).toBeNull();

  await service.putFileData(file, body('hello, world'), 'text/plain');
  const version = await service.newestVersion(file);
  expect(version).toMatchObject({ sizeBytes: 12, complete: true });
  expect(await textOf(version?.url as VersionUrl, 12)).toBe('hello, world');
  expect(await textOf(version?.url as VersionUrl, 12, 7, 12)).toBe('world');

  const elsewhere = await newFolder();
  const moved = await service.relocate(file, 'file', elsewhere, 'renamed');
  expect(await service.resource(moved, 'file')).toMatchObject({ name: 'renamed', parent: elsewhere, sizeBytes: 12 });
  const copy = await service.copyFile(moved, folder, 'copy');
  expect(await service.list(folder)).toMatchObject([{ url: copy, name: 'copy', sizeBytes: 12 }]);

  await service.moveToTrash(moved, 'file', 'renamed');
  expect(await service.list(elsewhere)).toEqual([]);
  expect((await service.list(user.deletedFiles)).map(({ url }) => url)).toContain(moved);
  await service.deleteForever(moved, 'file');
  await service.deleteForever(moved, 'file');
  expect(await service.resource(moved, 'file')).toBeNull();
  expect(await service.newestVersion(moved)).toBeNull();
});

test('a folder is listed in pages, complete, in the order of the service', async () => {
  const folder = await newFolder();
  const names = Array.from({ length: 23 }, (_, i) => `n${i}`);
  for (const name of names) await service.createFile(folder, name, 'text/plain');
  await service.createFolder(folder, 'sub');

  const listed = await service.list(folder);
  const first = await service.listPage(folder, 0, undefined, { max: 10 });
  const second = await service.listPage(folder, 10, undefined, { max: 10 });

  expect(listed.map(({ name }) => name).sort()).toEqual([...names, 'sub'].sort());
  expect([...first.entries, ...second.entries]).toEqual(listed.slice(0, 20));
  expect(first).toMatchObject({ hasMore: true, serverTimeMs: expect.any(Number) });
  expect(await service.listPage(folder, 24)).toMatchObject({ entries: [], hasMore: false });
});

test('a top-level folder is made, though the service need not tell where', async () => {
  const folder = await service.createFolder(user.syncFolders, 'Top');

  expect((await service.list(user.syncFolders)).find(({ url }) => url === folder)).toMatchObject({ name: 'Top' });
  expect(await service.resource(user.syncFolders, 'folder')).toMatchObject({ kind: 'folder', parent: null });
});

describe('an upload in parts', () => {
  test('goes on from what the service holds', async () => {
    const file = await newFile('one');
    const version = await service.createVersion(file);
    server.faults = [{ on: 'PUT', path: 'fileVersionData', then: { acceptBytes: 5 } }];

    expect(await service.putVersionData(version, 0, body('0123456789'))).toEqual({ complete: false, receivedBytes: 5 });
    await expect(service.putVersionData(version, 3, body('3456789'))).rejects.toMatchObject({ status: 416 });
    expect(await service.versionProgress(version)).toEqual({ complete: false, receivedBytes: 5 });
    expect(await service.putVersionData(version, 5, body('56789'))).toEqual({ complete: true, receivedBytes: 10 });
    expect(await textOf(version, 10)).toBe('0123456789');
    expect((await service.versions(file)).map(({ sizeBytes, complete }) => [sizeBytes, complete])).toEqual([
      [10, true],
      [3, true],
    ]);
  });

  test('an upload in parts of 0 bytes is complete', async () => {
    const version = await service.createVersion(await newFile('one'));

    expect(await service.putVersionData(version, 0, body(''))).toEqual({ complete: true, receivedBytes: 0 });
  });

  test('an upload in parts to a missing version is 404, without progress', async () => {
    const made_up = `${await newFile('x')}/version/1_1` as VersionUrl;

    await expect(service.putVersionData(made_up, 0, body('x'))).rejects.toMatchObject({ status: 404 });
    expect(await service.versionProgress(made_up)).toBeNull();
  });
});

describe('when an answer is lost after the service acted,', () => {
  const lostAfter = (on: string, path: string): FaultRule => ({ on, path, then: { actButNeverAnswer: true } });

  test('a new file is not made twice', async () => {
    const folder = await newFolder();
    server.faults = [lostAfter('POST', 'folder')];

    await expect(service.createFile(folder, 'a', 'text/plain')).rejects.toMatchObject({
      name: 'TransportError',
      neverSent: false,
    });

    expect(await service.list(folder)).toHaveLength(1);
  });

  test('a new version may be made twice, but is never complete twice', async () => {
    const file = await newFile('one');
    server.faults = [lostAfter('POST', 'fileVersions')];

    const version = await service.createVersion(file);
    await service.putVersionData(version, 0, body('two'));

    const versions = await service.versions(file);
    expect(versions.filter(({ complete }) => complete)).toHaveLength(2);
    expect(versions.filter(({ complete }) => !complete)).toHaveLength(1);
  });

  test('data is not sent twice: the version says that it is complete', async () => {
    const file = await newFile('one');
    const version = await service.createVersion(file);
    server.faults = [lostAfter('PUT', 'fileVersionData')];

    await expect(service.putVersionData(version, 0, body('two'))).rejects.toMatchObject({ name: 'TransportError' });

    expect(await service.versionProgress(version)).toEqual({ complete: true, receivedBytes: 3 });
    expect(await service.versions(file)).toHaveLength(2);
  });

  test('a rename is said again, a deletion is found done', async () => {
    const file = await newFile('one');
    server.faults = [lostAfter('PUT', 'file'), lostAfter('DELETE', 'file')];

    await service.relocate(file, 'file', user.home, 'said twice');
    expect(await service.resource(file, 'file')).toMatchObject({ name: 'said twice' });
    await service.deleteForever(file, 'file');
    expect(await service.resource(file, 'file')).toBeNull();
  });
});

describe('what the service does wrong is seen:', () => {
  const reading = async (fault: FaultRule['then']) => {
    const file = await newFile('0123456789');
    const version = (await service.newestVersion(file))?.url as VersionUrl;
    server.faults = [{ on: 'GET', path: 'fileVersionData', then: fault }];
    return await textOf(version, 10, 2, 8);
  };

  test('a body that breaks off is completed', async () => {
    expect(await reading({ hangUpAfterBytes: 2 })).toBe('234567');
  });

  test('a range that was not asked for is refused', async () => {
    await expect(reading({ wrongContentRange: true })).rejects.toMatchObject({ name: 'ProtocolError' });
  });

  test('a whole instead of a range is taken as a whole', async () => {
    expect(await reading({ ignoreRange: true })).toBe('0123456789');
  });

  test('a page instead of data is refused', async () => {
    await expect(reading({ garbage: true })).rejects.toMatchObject({ name: 'ProtocolError' });
  });

  test('an expired token is renewed in passing', async () => {
    expect(await reading({ expireToken: true })).toBe('234567');
  });

  test('a service that is busy for a moment is asked again', async () => {
    expect(await reading({ status: 503, retryAfterSeconds: 1 })).toBe('234567');
  });
});

describe('an account', () => {
  test('gives and takes public links', async () => {
    const file = await newFile('x', 'linked');

    const link = await service.account.setPublicLink(file, 'on');

    expect(link).toMatch(/\/pf\//);
    expect(await service.account.publicLink(file)).toBe(link);
    expect((await service.account.publicLinks()).map(({ url }) => url)).toContain(file);
    expect(await service.account.setPublicLink(file, 'off')).toBeNull();
    expect(await service.account.publicLink(file)).toBeNull();
  });

  test('has workspaces and albums', async () => {
    for (const workspace of await service.account.workspaces()) {
      await service.account.renameWorkspace(workspace.url, 'Desk');
      expect(await service.resource(workspace.url, 'folder')).toMatchObject({ name: 'Desk' });
    }
    expect(await service.account.albums()).toEqual([]);
  });

  test('reads what another shares with it, and sees who that is', async () => {
    const other = await signedIn('other@example.com', 'password');
    const folder = await other.createFolder((await other.user()).home, 'Trip');
    await other.createFile(folder, 'plan', 'text/plain');
    await server.administration.share('other@example.com', folder.split(':').at(-1) as string, 'someone@example.com', {
      writeAllowed: false,
    });

    const [share] = await service.account.receivedShares();

    expect(share).toMatchObject({ name: 'Trip', folder, mayRead: true, mayWrite: false });
    expect(await service.list(folder)).toMatchObject([{ name: 'plan' }]);
    await expect(service.createFile(folder, 'no', 'text/plain')).rejects.toMatchObject({ status: 403 });
    expect(await service.account.receivedShare(share?.url as string)).toEqual(share);
    expect(await service.account.contact(share?.owner as string)).toMatchObject({ emailAddress: 'other@example.com' });
    await other.close();
  });

  test('an account request reports that a text is no image', async () => {
    const form = { widthMax: 10, heightMax: 10, square: true, quarterTurns: 1 } as const;

    await expect(service.account.transcodedImage(await newFile('text'), form)).rejects.toMatchObject({ status: 406 });
  });

  test('has nothing of another’s', async () => {
    const other = await signedIn('other@example.com', 'password');
    const file = await newFile('mine');

    await expect(other.resource(file, 'file')).resolves.toBeNull();
    expect(await other.account.receivedShares()).toEqual([]);
    await other.close();
  });
});

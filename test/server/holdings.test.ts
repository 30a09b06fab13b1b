import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { Administration } from '../../src/server/administration.ts';
import { Database } from '../../src/server/database.ts';
import type { DiskSpace } from '../../src/server/disk-reserve.ts';
import { HOLDING_LIMITS } from '../../src/server/holdings.ts';
import { openParts } from '../../src/server/local-back-end.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import type { ReferenceServerOptions } from '../../src/server/server-options.ts';
import { HeldRequest } from './held-request.ts';
import { accessToken, signUp, type TestUser, texts } from './raw-client.ts';

/** Everything that an account stores counts, and no kind of write fills the disk. */

/** In `postgres/suite.test.ts`: no tables and no blobs in the data directory. */
const isElsewhere = () => !(server.administration instanceof Administration);
const MIB = 1024 * 1024;

let directory: string;
let server: ReferenceServer;
let user: TestUser;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-holdings-'));
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

async function open(options: Partial<ReferenceServerOptions> = {}, quotaBytes?: number): Promise<void> {
  server = await ReferenceServer.open({ dataDirectory: directory, ...options });
  user = await signUp(server, 'a@example.com', quotaBytes);
}

const newVersion = async (file: string) =>
  (await user.client.send('POST', `${file}/version`)).headers.location as string;

/** Bytes of all files of the data directory. */
const usedBytes = () =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);

/** The counts of all accounts, as written and as counted anew. */
async function countsOf(): Promise<{ written: object; counted: object }> {
  const uid = user.uid;
  const database = Database.open(directory);
  const written = database.holdings.of(uid);
  database.change(() => void database.meta.remove('holdings'));
  database.change(() => database.holdings.note(uid, { entries: -1e9, unfinished: -1e9, bytes: -1e15 }));
  await database.close();
  const again = Database.open(directory);
  const counted = again.holdings.of(uid);
  await again.close();
  return { written, counted };
}

describe('a disk that names have filled', () => {
  const DISK_BYTES = 24 * MIB;
  let othersBytes: number;
  const disk: DiskSpace = { totalBytes: DISK_BYTES, freeBytes: () => DISK_BYTES - othersBytes - usedBytes() };

  beforeEach(() => {
    othersBytes = 0;
  });

  test('refuses every creation with 507; deletion, trash, sign-in, a restart and administration work', async ({
    skip,
  }) => {
    await open({ disk });
    skip(isElsewhere());
    const victim = await signUp(server, 'b@example.com');
    const [first, second] = [
      await victim.client.createFilled(victim.folder('2'), 'one', 'data'),
      await victim.client.createFilled(victim.folder('2'), 'two', Buffer.alloc(20_000)),
    ];
    const version = (await victim.client.send('POST', `${first}/version`)).headers.location as string;
    othersBytes = (disk.freeBytes() as number) - 10 * MIB;
    const name = 'ä'.repeat(16_000);
    let status = 201;
    for (let at = 0; at < 2000 && status === 201; at += 1) {
      const body = `<folder><displayName>${name}</displayName></folder>`;
      ({ status } = await user.client.send('POST', user.folder('2'), { body }));
    }
    expect(status).toBe(507);
    for (status = 201; status === 201; )
      ({ status } = await user.client.send('POST', user.folder('2'), {
        body: '<folder><displayName>f</displayName></folder>',
      }));
    expect(status).toBe(507);
    expect(disk.freeBytes()).toBeGreaterThan(4 * MIB);

    const { client, folder } = victim;
    const long = `<file><displayName>${name}</displayName></file>`;
    const creations = [
      await client.send('POST', folder('2'), { body: '<file><displayName>f</displayName></file>' }),
      await client.send('POST', folder('2'), {
        body: `<fileCopy source="${second}"><displayName>f</displayName></fileCopy>`,
      }),
      await client.send('POST', `/user/${victim.uid}/folders`, {
        body: '<syncFolder><displayName>f</displayName></syncFolder>',
      }),
      await client.send('POST', `${first}/version`),
      await client.send('PUT', `${version}/data`, { body: 'x' }),
      await client.send('PUT', `${first}/data`, { body: 'x' }),
      await client.send('PUT', first, { body: long }),
      await client.send('PUT', first, {
        body: '<file><displayName>f</displayName><publicLink enabled="true"/></file>',
      }),
    ];
    expect(creations.map((answer) => answer.status)).toEqual(creations.map(() => 507));

    const trash = `<file><displayName>one</displayName><parent>${folder('9')}</parent></file>`;
    expect((await client.send('PUT', first, { body: trash })).status).toBe(200);
    await server.close();
    server = await ReferenceServer.open({ dataDirectory: directory, disk });
    client.token = await accessToken(server.origin, victim, victim.refreshToken);
    expect((await client.send('DELETE', second)).status).toBe(204);
    await signUp(server, 'c@example.com');
    await server.administration.setQuota('a@example.com', 0);
    expect(await server.administration.revokeTokens('a@example.com')).toBe(1);
  });
});

describe('limits of an account', () => {
  test('names count: an account of 64 KiB creates some MiB of long names, then gets 413', async () => {
    await open({ limits: { ...HOLDING_LIMITS, rowsBytes: 2 * MIB } }, 64 * 1024);
    const name = 'ä'.repeat(16_000);
    let created = 0;
    let status = 201;
    for (; created < 2000 && status === 201; created += 1) {
      const body = `<folder><displayName>${name}</displayName></folder>`;
      ({ status } = await user.client.send('POST', user.folder('2'), { body }));
    }
    expect(status).toBe(413);
    expect(created).toBeLessThan(90);
  });

  test('entries have a limit that an operator sets; a deletion makes room', async () => {
    await open({ limits: { ...HOLDING_LIMITS, entriesMax: 3 } });
    const folders = [];
    for (const name of ['a', 'b', 'c']) folders.push(await user.client.createFolder(user.folder('2'), name));
    const body = '<folder><displayName>d</displayName></folder>';

    const refused = await user.client.send('POST', user.folder('2'), { body });
    await user.client.send('DELETE', folders[0] as string);
    const created = await user.client.send('POST', user.folder('2'), { body });

    expect([refused.status, created.status]).toEqual([413, 201]);
  });

  test('a file saved 60 times at a quota of 1 MiB is never refused, and the disk holds a bounded history', async () => {
    const limits = { ...HOLDING_LIMITS, storageFactor: 8, rowsBytes: MIB };
    await open({ limits }, MIB);
    const other = await user.client.createFile(user.folder('2'), 'other');
    for (let at = 0; at < 7; at += 1) await user.client.send('PUT', `${other}/data`, { body: `other ${at}` });
    const file = await user.client.createFile(user.folder('2'), 'file');
    const statuses = new Set<number>();
    for (let at = 10; at < 70; at += 1) {
      const body = Buffer.alloc(MIB / 2, String(at));
      statuses.add((await user.client.send('PUT', `${file}/data`, { body })).status);
    }

    expect(statuses).toEqual(new Set([204]));
    await server.collectObjects();
    expect(usedBytes()).toBeLessThan(12 * MIB);
    const versions = texts((await user.client.get(`${file}/version`)).text, 'size');
    expect(versions.length).toBeGreaterThanOrEqual(5);
    expect(texts((await user.client.get(`${other}/version`)).text, 'size')).toHaveLength(5);
    expect((await user.client.get(`${file}/data`)).bytes.toString('utf8', 0, 6)).toBe('696969');
    if (isElsewhere()) return;
    await server.close();
    const { written, counted } = await countsOf();
    expect(written).toEqual(counted);
    server = await ReferenceServer.open({ dataDirectory: directory });
  });

  test('files that shrink after large versions do not multiply the limit', async () => {
    await open({ limits: { ...HOLDING_LIMITS, storageFactor: 1, rowsBytes: MIB } }, MIB);
    for (let at = 0; at < 10; at += 1) {
      const file = await user.client.createFile(user.folder('2'), `file ${at}`);
      for (const bytes of [MIB / 2, MIB / 2, 1]) {
        const { status } = await user.client.send('PUT', `${file}/data`, { body: Buffer.alloc(bytes) });
        expect(status).toBe(204);
      }
    }
    await server.collectObjects();
    expect(usedBytes()).toBeLessThan(4 * MIB);
  });

  test('unfinished uploads count: their bytes end at the limit, for parallel ones too', async () => {
    await open({ limits: { ...HOLDING_LIMITS, storageFactor: 1, rowsBytes: MIB } }, 2 * MIB);
    const file = await user.client.createFile(user.folder('2'), 'file');
    const body = Buffer.alloc(2 * MIB - 1);
    const headers = { 'Content-Length': String(2 * MIB) };
    const rounds = Array.from({ length: 6 }, async () => {
      const version = await newVersion(file);
      await user.client
        .send('PUT', `${version}/data`, { body, headers, cutAfter: body.byteLength })
        .catch((error: unknown) => error);
    });
    await Promise.all(rounds);
    await expect.poll(() => server.uploadsUnderWay).toBe(0);
    // How much the six have stored depends on how they overlapped: what is left may not even hold an empty version.
    const created = await user.client.send('POST', `${file}/version`);
    const refused =
      created.status === 413 ? created : await user.client.send('PUT', `${created.headers.location}/data`, { body });

    expect(refused.status).toBe(413);
    await server.collectObjects();
    expect(usedBytes()).toBeLessThan(5 * MIB);
  });

  test('an unfinished upload that grows by small pieces ends at the limit as well', async () => {
    await open({ limits: { ...HOLDING_LIMITS, storageFactor: 1, rowsBytes: MIB / 4 } }, MIB / 4);
    const file = await user.client.createFile(user.folder('2'), 'file');
    const body = Buffer.alloc(60_000);
    const refused: number[] = [];
    for (let nth = 0; nth < 4; nth += 1) {
      const { status, headers } = await user.client.send('POST', `${file}/version`);
      if (status === 413) refused.push(nth);
      const version = headers.location;
      for (let piece = 0; piece < 4 && version !== undefined; piece += 1) {
        server.faults = [{ on: 'PUT', then: { acceptBytes: body.byteLength - 1 } }];
        const stored = Number(texts((await user.client.get(version)).text, 'storedSize')[0]);
        const continued = { body, headers: { Range: `bytes=${stored}-` } };
        const answer = await user.client.send('PUT', `${version}/data`, continued);
        if (answer.status === 413) refused.push(nth);
      }
    }

    expect(refused).toContain(3);
    await server.collectObjects();
    expect(usedBytes()).toBeLessThan(2 * MIB);
  });

  test('their number has a limit: the oldest ones without an active upload go', async () => {
    await open({ limits: { ...HOLDING_LIMITS, unfinishedMax: 20 } });
    const file = await user.client.createFile(user.folder('2'), 'file');
    const versions: string[] = [];
    for (let at = 0; at < 30; at += 1) versions.push(await newVersion(file));

    expect((await user.client.get(versions[0] as string)).status).toBe(404);
    expect((await user.client.get(versions[29] as string)).status).toBe(200);
    const all = texts((await user.client.get(`${file}/version`)).text, 'presentOnServer');
    expect(all.length).toBeLessThanOrEqual(20);
  });

  test('the oldest unfinished upload stays while it is active, however many others begin', async () => {
    await open({ limits: { ...HOLDING_LIMITS, unfinishedMax: 5 } });
    const file = await user.client.createFile(user.folder('2'), 'file');
    const oldest = await newVersion(file);
    const held = await HeldRequest.begin(server, user.client, `${oldest}/data`, { bodyBytes: 30_000, front: 'x' });
    await expect.poll(() => server.uploadsUnderWay).toBe(1);
    for (let at = 0; at < 20; at += 1) await newVersion(file);
    await held.send('x'.repeat(29_999));

    expect(await held.status()).toBe(200);
    held.cut();
    expect((await user.client.get(`${oldest}/data`)).bytes).toHaveLength(30_000);
  });

  test('the content of files stays: what only they could give room for is refused', async () => {
    await open({ limits: { ...HOLDING_LIMITS, storageFactor: 1, rowsBytes: 0 } }, MIB);
    const files: string[] = [];
    const body = Buffer.alloc(90 * 1024);
    for (let at = 0; at < 10; at += 1) {
      const file = await user.client.createFile(user.folder('2'), `file ${at}`);
      expect((await user.client.send('PUT', `${file}/data`, { body })).status).toBe(204);
      files.push(file);
    }
    const file = await user.client.createFile(user.folder('2'), 'last');
    const refused = await user.client.send('PUT', `${file}/data`, { body: Buffer.alloc(115 * 1024) });

    expect(refused.status).toBe(413);
    for (const each of files) expect((await user.client.get(`${each}/data`)).bytes).toHaveLength(body.byteLength);
  });

  test('a receiver of a share drops only versions of the file that he saves', async () => {
    await open({ limits: { ...HOLDING_LIMITS, storageFactor: 2, rowsBytes: MIB } }, MIB);
    const receiver = await signUp(server, 'b@example.com');
    const shared = await user.client.createFolder(user.folder('2'), 'shared');
    const id = shared.split(':').pop() as string;
    await server.administration.share('a@example.com', id, 'b@example.com', { writeAllowed: true });
    const mine = await user.client.createFile(user.folder('2'), 'private');
    for (let at = 0; at < 8; at += 1) await user.client.send('PUT', `${mine}/data`, { body: Buffer.alloc(20_000) });
    const body = Buffer.alloc(MIB / 4);
    const theirs = await receiver.client.createFile(shared, 'theirs');

    for (let at = 0; at < 20; at += 1)
      expect((await receiver.client.send('PUT', `${theirs}/data`, { body })).status).toBe(204);

    expect(texts((await user.client.get(`${mine}/version`)).text, 'size')).toHaveLength(8);
    await server.collectObjects();
    expect(usedBytes()).toBeLessThan(5 * MIB);
  });

  test('counts equal a new count after every kind of change', async ({ skip }) => {
    await open({ versionsKept: 2 });
    skip(isElsewhere());
    const { client, folder } = user;
    const top = await client.createFolder(folder('2'), 'folder');
    const file = await client.createFilled(top, 'file', 'data');
    const large = await client.createFilled(top, 'large', Buffer.alloc(50_000));
    for (let at = 0; at < 4; at += 1) await client.send('PUT', `${file}/data`, { body: `version ${at}` });
    const version = await newVersion(large);
    server.faults = [{ on: 'PUT', then: { acceptBytes: 20_000 } }];
    await client.send('PUT', `${version}/data`, { body: Buffer.alloc(30_000) });
    server.faults = [];
    await client.send('PUT', `${version}/data`, { body: Buffer.alloc(5), headers: { Range: 'bytes=20000-' } });
    await newVersion(large);
    await client.create(top, `<fileCopy source="${large}"><displayName>copy</displayName></fileCopy>`);
    const renamed = await client.send('PUT', file, {
      body: '<file><displayName>a longer name</displayName><publicLink enabled="true"/></file>',
    });
    expect(renamed.status).toBe(200);
    await client.send('DELETE', await client.createFilled(top, 'gone', 'data'));
    await client.send('DELETE', await client.createFolder(top, 'gone'));
    await client.send('POST', folder('2'), { body: '<folder><displayName/></folder>' });
    await server.close();

    const { written, counted } = await countsOf();

    expect(written).toEqual(counted);
    expect(written).toMatchObject({ entries: 5, unfinished: 1 });
    server = await ReferenceServer.open({ dataDirectory: directory });
  });

  test('a file of thousands of versions is deleted in several short changes', async ({ skip }) => {
    await open();
    skip(isElsewhere());
    const file = await user.client.createFile(user.folder('2'), 'file');
    const id = { uid: user.uid, local: file.split(':').pop() as string };
    const parts = openParts({ dataDirectory: directory, limits: { ...HOLDING_LIMITS, unfinishedMax: 2000 } });
    parts.database.change(() => {
      for (let at = 0; at < 1100; at += 1) parts.histories.create(user.uid, id, parts.blobs.newName());
    });
    await parts.database.close();

    expect((await user.client.send('DELETE', file)).status).toBe(204);
    await server.close();

    const { written } = await countsOf();
    expect(written).toEqual({ entries: 0, unfinished: 0, bytes: 0 });
    server = await ReferenceServer.open({ dataDirectory: directory });
  });
});

test('the refresh token of a mount that uses it is not dropped, however often the user signs in elsewhere', async ({
  skip,
}) => {
  let aheadMs = 0;
  await open({ clock: { ...systemClock, nowMs: () => Date.now() + aheadMs } });
  skip(isElsewhere());
  const database = Database.open(directory);
  const signIn = (at: number) =>
    database.change(() => {
      const row = { uid: user.uid, application: user.application, createdMs: Date.now() + aheadMs };
      database.addRefreshToken(`r${at}`, row);
    });
  for (let at = 0; at < 600; at += 1) {
    aheadMs += 120_000;
    signIn(at);
    if (at % 100 === 0) await accessToken(server.origin, user, user.refreshToken);
  }

  expect(database.refreshTokens.getCount()).toBe(256);
  await accessToken(server.origin, user, user.refreshToken);
  await database.close();
});

test('a user keeps the newest 256 refresh tokens: sign-ins store a limited number of rows', async ({ skip }) => {
  await open();
  skip(isElsewhere());
  const first = user.refreshToken;
  const database = Database.open(directory);
  database.change(() => {
    for (let at = 0; at < 2000; at += 1) {
      const createdMs = Date.now() + 1000 + at;
      database.addRefreshToken(`r${at}`, { uid: user.uid, application: user.application, createdMs });
      database.addAccessToken(`a${at}`, { uid: user.uid, refreshToken: null, expiresMs: createdMs + 1e9 });
    }
  });

  expect(database.refreshTokens.getCount()).toBe(256);
  expect(database.accessTokens.getCount()).toBe(1000);
  await database.close();
  await expect(accessToken(server.origin, user, first)).rejects.toThrow('401');
});

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { type HashedBytes, type HashedFile, StoreError } from '../../../src/server/object-store.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { titled } from '../../harness/requirement.ts';
import { ManualClock } from '../../kernel/manual-clock.ts';
import { HeldRequest } from '../held-request.ts';
import { signUp, type TestUser } from '../raw-client.ts';
import { bytesOf } from '../s3/store-contract.ts';
import { until } from '../until.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/**
 * Buffers for the parts of uploads, with several accounts: a quarter for each is one buffer. Time passes when a test says so: a busy
 * machine makes no sender slow.
 */

const missing = missingPostgres();
const ORIGIN = 'http://cloud.example.com';
const MIB = 1024 * 1024;
const BUFFERS = 4;
const data = bytesOf(MIB);

/** Tells where the bytes of each object came from. */
class WatchedStore extends DirectoryStore {
  readonly sources: ('memory' | 'file')[] = [];
  fails = false;

  override async put(key: string, content: HashedBytes | HashedFile): Promise<string> {
    this.sources.push('path' in content ? 'file' : 'memory');
    if (this.fails) throw new StoreError('the store fails', { isPassing: true });
    return super.put(key, content);
  }
}

describe.skipIf(missing !== null)(titled('buffers for parts', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-buffers-'));
  const store = new WatchedStore(join(directory, 'objects'));
  const clock = new ManualClock();
  let postgres: PostgresServer;
  let server: ReferenceServer;
  let user: TestUser;
  let accounts = 0;

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    server = await ReferenceServer.open({
      dataDirectory: directory,
      publicOrigin: ORIGIN,
      ...{ objects: store, clock },
      database: { url: await postgres.newDatabase(), partBytes: MIB, partBuffers: BUFFERS },
    });
  }, 60_000);

  afterAll(async () => {
    await server.close();
    await postgres.close();
    rmSync(directory, { recursive: true });
  });

  beforeEach(async () => {
    user = await newUser();
    store.sources.splice(0);
  });

  const newUser = (): Promise<TestUser> => {
    accounts += 1;
    const at = { origin: `http://127.0.0.1:${server.port}`, administration: server.administration };
    return signUp(at as ReferenceServer, `user${accounts}@example.com`);
  };
  const newFile = async ({ uid, client }: TestUser): Promise<string> =>
    new URL(await client.createFile(`/folder/:sc:${uid}:2`, 'file')).pathname;
  const filesOfParts = (): number => readdirSync(join(directory, 'incoming')).length;
  const put = async (by: TestUser, file: string): Promise<number> =>
    (await by.client.send('PUT', `${file}/data`, { body: data })).status;
  const begin = async (file: string, frontBytes: number, range?: string): Promise<HeldRequest> => {
    const before = server.uploadsUnderWay;
    const held = await HeldRequest.begin(server, user.client, `${ORIGIN}${file}/data`, {
      ...{ bodyBytes: MIB, front: data.subarray(0, frontBytes) },
      ...(range === undefined ? {} : { range }),
    });
    await until(() => server.uploadsUnderWay === before + 1);
    return held;
  };
  /** Time passes until so many parts lie in files. */
  const untilFiles = (count: number): Promise<void> =>
    until(() => {
      clock.advance(10);
      return filesOfParts() === count;
    }, 30_000);

  test.each([1, 4])(
    '200 senders at 5 KB/s, of %i accounts: an upload of 1 MiB goes through memory beside them',
    { timeout: 120_000 },
    async (count) => {
      const senders = await Promise.all(
        (await Promise.all(Array.from({ length: count }, newUser))).flatMap((sender) =>
          Array.from({ length: 200 / count }, async () => {
            const file = await newFile(sender);
            const socket = connect(server.port, '127.0.0.1');
            const head = `PUT ${file}/data HTTP/1.1\r\nHost: x\r\nAuthorization: ${sender.client.token}\r\n`;
            socket.on('error', () => {});
            socket.write(`${head}Content-Length: ${MIB}\r\n\r\n`);
            return socket;
          }),
        ),
      );
      try {
        await until(() => server.uploadsUnderWay === senders.length, 30_000);
        const arrivedBefore = server.bytesArrived;
        for (let round = 1; round <= 5; round += 1) {
          for (const socket of senders) socket.write(data.subarray(0, 5000));
          await until(() => server.bytesArrived >= arrivedBefore + round * senders.length * 5000, 30_000);
          clock.advance(1000);
        }
        // More than 16 KiB of each.
        await untilFiles(senders.length);

        expect(await put(user, await newFile(user))).toBe(204);
        expect(store.sources).toEqual(['memory']);
      } finally {
        for (const socket of senders) socket.destroy();
      }
      await until(() => server.uploadsUnderWay === 0 && filesOfParts() === 0, 30_000);
    },
  );

  test('a sender that becomes silent in a part leaves its buffer, and its upload is complete later', async () => {
    const file = await newFile(user);
    const held = await begin(file, 300_000);
    expect(filesOfParts()).toBe(0);
    await untilFiles(1);
    expect(await put(user, await newFile(user))).toBe(204);
    await held.send(data.subarray(300_000));
    expect(await held.status()).toBe(204);
    held.cut();
    expect(store.sources).toEqual(['memory', 'file']);
    expect((await user.client.get(`${file}/data`)).bytes.equals(data)).toBe(true);
  });

  test('a cut upload leaves its buffer', async () => {
    const [cut, whole] = [await newFile(user), await newFile(user)];
    for (let times = 0; times < 2 * BUFFERS; times += 1) {
      (await begin(cut, 100_000)).cut();
      await until(() => server.uploadsUnderWay === 0);
    }
    expect(await put(user, whole)).toBe(204);
    expect(store.sources).toEqual(['memory']);
  });

  test('a cut upload of a version leaves its buffer, and what arrived is stored from it', async () => {
    const file = await newFile(user);
    const begun = (await user.client.send('POST', `${file}/version`)).headers.location as string;
    const version = new URL(begun).pathname;
    (await begin(version, 100_000, 'bytes=0-')).cut();
    await until(() => server.uploadsUnderWay === 0);
    expect(await put(user, await newFile(user))).toBe(204);
    expect(store.sources).toEqual(['memory', 'memory']);
    const rest = { body: data.subarray(100_000), headers: { Range: 'bytes=100000-' } };
    expect((await user.client.send('PUT', `${version}/data`, rest)).status).toBe(200);
    expect((await user.client.get(`${file}/data`)).bytes.equals(data)).toBe(true);
  });

  test('a part that the store refuses leaves its buffer', async () => {
    const file = await newFile(user);
    store.fails = true;
    for (let times = 0; times < BUFFERS; times += 1) expect(await put(user, file)).toBe(503);
    store.fails = false;
    expect(await put(user, file)).toBe(204);
    expect(store.sources).toEqual(Array(BUFFERS + 1).fill('memory'));
    expect((await user.client.get(`${file}/data`)).bytes.equals(data)).toBe(true);
  });

  test('the quick uploads of an account leave buffers for others', async () => {
    const held: HeldRequest[] = [];
    for (let nth = 0; nth < BUFFERS; nth += 1) held.push(await begin(await newFile(user), 20_000));
    await until(() => filesOfParts() === BUFFERS - 1);
    const other = await newUser();
    expect(await put(other, await newFile(other))).toBe(204);
    expect(store.sources).toEqual(['memory']);
    for (const request of held) request.cut();
    await until(() => server.uploadsUnderWay === 0);
  });
});

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { StorageError, UsageError } from '../../../src/base/errors.ts';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { PostgresInstallation } from '../../../src/server/postgres/postgres-installation.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { PortClaim } from '../../harness/port-claim.ts';
import { titled } from '../../harness/requirement.ts';
import { SeededRandom } from '../../store/seeded-random.ts';
import { HeldRequest } from '../held-request.ts';
import { RawClient, signUp, type TestUser, texts } from '../raw-client.ts';
import { until } from '../until.ts';
import { miscounts } from './miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** Three servers of one database and one object store: each request may meet any of them. */

const missing = missingPostgres();
const ORIGIN = 'http://cloud.example.com';
const PART_BYTES = 32 * 1024;
const LEASE_MS = 2000;

describe.skipIf(missing !== null)(titled('several servers', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-servers-'));
  const random = new SeededRandom(7);
  let postgres: PostgresServer;
  let url: string;
  let servers: ReferenceServer[];
  let user: TestUser;
  let turn = 0;
  let accounts = 0;

  const options = (publicOrigin = ORIGIN) => ({
    dataDirectory: join(directory, `server ${turn++}`),
    publicOrigin,
    objects: new DirectoryStore(join(directory, 'objects')),
    database: { url, partBytes: PART_BYTES, leaseMs: LEASE_MS, deletedAfterMs: 0 },
  });
  const open = (publicOrigin?: string): Promise<ReferenceServer> => ReferenceServer.open(options(publicOrigin));

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
    // Together: the first one migrates the database.
    servers = await Promise.all([open(), open(), open()]);
  }, 60_000);

  afterAll(async () => {
    try {
      await Promise.all(servers.map((server) => server.close()));
      expect(await miscounts(url)).toEqual([]);
    } finally {
      await postgres.close();
      rmSync(directory, { recursive: true });
    }
  });

  const pathOf = (location: string): string => new URL(location).pathname;
  const next = (): RawClient => {
    turn += 1;
    const { port } = servers[turn % 3] as ReferenceServer;
    return new RawClient(`http://127.0.0.1:${port}`, user.client.token);
  };

  beforeEach(async () => {
    accounts += 1;
    const [first] = servers as [ReferenceServer];
    const direct = { origin: `http://127.0.0.1:${first.port}`, administration: first.administration };
    user = await signUp(direct as ReferenceServer, `user${accounts}@example.com`);
  });

  const newFile = async (): Promise<string> =>
    pathOf(await next().createFile(`/folder/:sc:${user.uid}:2`, `file ${turn}`));
  const newVersion = async (file: string): Promise<string> =>
    pathOf((await next().send('POST', `${file}/version`)).headers.location as string);
  const storedSize = async (version: string): Promise<number> =>
    Number(texts((await next().get(version)).text, 'storedSize')[0]);
  const put = (client: RawClient, version: string, data: Uint8Array, offset: number, cutAfter?: number) =>
    client.send('PUT', `${version}/data`, {
      body: data.subarray(offset),
      headers: { Range: `bytes=${offset}-` },
      ...(cutAfter === undefined ? {} : { cutAfter }),
    });
  const bytes = (count: number): Buffer => Buffer.from(Array.from({ length: count }, () => random.below(256)));
  const objects = (): number =>
    readdirSync(join(directory, 'objects'), { recursive: true, withFileTypes: true }).filter(
      (entry) => entry.isFile() && entry.name !== 'cfs-serve-installation',
    ).length;

  test('an upload whose every request meets another server stores every byte', async () => {
    const file = await newFile();
    for (let round = 0; round < 4; round += 1) {
      const data = bytes(1 + random.below(6 * PART_BYTES));
      const version = await newVersion(file);
      let offset = 0;
      for (let cuts = 0; cuts < 4 && offset < data.byteLength - 1; cuts += 1) {
        const cutAfter = 1 + random.below(data.byteLength - 1 - offset);
        await put(next(), version, data, offset, cutAfter).catch(() => {});
        offset += cutAfter;
        await until(async () => (await storedSize(version)) === offset);
        // Its lease ends with the request.
        await until(() => servers.every((server) => server.uploadsUnderWay === 0));
      }
      expect((await put(next(), version, data, offset)).status).toBe(200);
      expect((await next().get(`${file}/data`)).bytes.equals(data)).toBe(true);
      const [start, end] = [random.below(data.byteLength), data.byteLength];
      const part = await next().get(`${file}/data`, { Range: `bytes=${start}-${end - 1}` });
      expect(part.bytes.equals(data.subarray(start))).toBe(true);
    }
  });

  test('a sender that slept beyond its lease is refused after another server has completed the version', async () => {
    const file = await newFile();
    const version = await newVersion(file);
    const [sleepers, others] = [bytes(3 * PART_BYTES), bytes(3 * PART_BYTES)];
    const [first, second] = servers as [ReferenceServer, ReferenceServer];
    const sleeper = await HeldRequest.begin(first, user.client, `${ORIGIN}${version}/data`, {
      bodyBytes: sleepers.byteLength,
      front: sleepers.subarray(0, PART_BYTES + 10),
      range: 'bytes=0-',
    });
    await until(async () => (await storedSize(version)) === PART_BYTES);
    const client = new RawClient(`http://127.0.0.1:${second.port}`, user.client.token);
    const during = await put(client, version, others, PART_BYTES);
    let after = during.status;
    await until(async () => {
      after = (await put(client, version, others, PART_BYTES)).status;
      return after !== 416;
    });
    await sleeper.send(sleepers.subarray(PART_BYTES + 10));

    expect([during.status, after, await sleeper.status()]).toEqual([416, 200, 416]);
    const expected = Buffer.concat([sleepers.subarray(0, PART_BYTES), others.subarray(PART_BYTES)]);
    expect((await next().get(`${file}/data`)).bytes.equals(expected)).toBe(true);
  });

  test('a sender that is slow keeps the version, for longer than its lease', async () => {
    const file = await newFile();
    const version = await newVersion(file);
    const data = bytes(3 * PART_BYTES);
    const [first, second] = servers as [ReferenceServer, ReferenceServer];
    const sender = await HeldRequest.begin(first, user.client, `${ORIGIN}${version}/data`, {
      bodyBytes: data.byteLength,
      front: data.subarray(0, 10),
      range: 'bytes=0-',
    });
    const observer = await Postgres.open(url, { connectionsMax: 1 });
    let end: string | undefined;
    await until(async () => {
      const leased =
        "SELECT (lease_until + interval '1 second')::text AS end FROM versions WHERE uid = $1 AND epoch > 0";
      end = (await observer.row<{ end: string }>(leased, user.uid))?.end;
      return end !== undefined;
    });
    let sent = 10;
    await until(async () => {
      await sender.send(data.subarray(sent, sent + 1));
      sent += 1;
      return (await observer.one<{ is: boolean }>('SELECT clock_timestamp() > $1::timestamptz AS is', end)).is;
    });
    await observer.close();
    const client = new RawClient(`http://127.0.0.1:${second.port}`, user.client.token);
    const stored = await storedSize(version);
    expect(stored).toBeGreaterThan(0);
    expect((await put(client, version, data, stored)).status).toBe(416);
    await sender.send(data.subarray(sent));

    expect(await sender.status()).toBe(200);
    expect((await next().get(`${file}/data`)).bytes.equals(data)).toBe(true);
  });

  test('a sender that slept beyond its lease adds nothing while another server receives the version', async () => {
    const file = await newFile();
    const version = await newVersion(file);
    const [sleepers, takers] = [bytes(2 * PART_BYTES + 5), bytes(2 * PART_BYTES + 5)];
    const [first, second] = servers as [ReferenceServer, ReferenceServer];
    const begin = (server: ReferenceServer, data: Buffer, start: number): Promise<HeldRequest> =>
      HeldRequest.begin(server, user.client, `${ORIGIN}${version}/data`, {
        bodyBytes: data.byteLength - start,
        front: data.subarray(start, start + 10),
        range: `bytes=${start}-`,
      });
    const sleeper = await begin(first, sleepers, 0);
    const observer = await Postgres.open(url, { connectionsMax: 1 });
    const isLeased = 'SELECT FROM versions WHERE uid = $1 AND epoch > 0';
    await until(async () => (await observer.row(isLeased, user.uid)) !== undefined);
    const isFree = 'SELECT FROM versions WHERE uid = $1 AND NOT complete AND lease_until < clock_timestamp()';
    await until(async () => (await observer.row(isFree, user.uid)) !== undefined);
    const taker = await begin(second, takers, 0);
    await until(async () => (await observer.row(isFree, user.uid)) === undefined);
    await observer.close();
    await sleeper.send(sleepers.subarray(10));
    expect(await sleeper.status()).toBe(416);
    await taker.send(takers.subarray(10));

    expect(await taker.status()).toBe(200);
    expect((await next().get(`${file}/data`)).bytes.equals(takers)).toBe(true);
  });

  test('a copy keeps its bytes after the source is deleted, and the last reference deletes the objects', async () => {
    const file = await newFile();
    const data = bytes(3 * PART_BYTES);
    await (servers[0] as ReferenceServer).collectObjects();
    const before = objects();
    expect((await next().send('PUT', `${file}/data`, { body: data })).status).toBe(204);
    const copyOf = `<fileCopy source="${ORIGIN}${file}"><displayName>copy</displayName></fileCopy>`;
    const copy = pathOf(await next().create(`/folder/:sc:${user.uid}:2`, copyOf));
    await next().send('DELETE', file);
    for (const server of servers) await server.collectObjects();
    expect((await next().get(`${copy}/data`)).bytes.equals(data)).toBe(true);
    expect(objects()).toBe(before + 3);

    await next().send('DELETE', copy);
    await Promise.all(servers.map((server) => server.collectObjects()));
    expect(objects()).toBe(before);
  });

  test('of senders of one version at the same time, one is accepted', async () => {
    for (let round = 0; round < 5; round += 1) {
      const file = await newFile();
      const version = await newVersion(file);
      const contents = Array.from({ length: 6 }, () => bytes(2 * PART_BYTES + 5));
      const answers = await Promise.all(contents.map((data) => put(next(), version, data, 0)));
      const accepted = answers.flatMap(({ status }, nth) => (status === 200 ? [nth] : []));
      expect(accepted).toHaveLength(1);
      // Of a completed version, and of one that another sender has.
      expect(answers.map(({ status }) => status).filter((status) => ![200, 403, 416].includes(status))).toEqual([]);
      const kept = contents[accepted[0] as number] as Buffer;
      expect((await next().get(`${file}/data`)).bytes.equals(kept)).toBe(true);
    }
  });

  test.each([4 * 1024, 2 * PART_BYTES])(
    '64 saves of %d bytes at the same time never exceed the quota',
    async (size) => {
      const files = await Promise.all(Array.from({ length: 64 }, newFile));
      const { administration } = servers[0] as ReferenceServer;
      await administration.setQuota(user.email, 10 * size + 100);
      const data = bytes(size);
      const answers = await Promise.all(files.map((file) => next().send('PUT', `${file}/data`, { body: data })));
      const statuses = answers.map(({ status }) => status);
      expect(statuses.filter((status) => status === 204)).toHaveLength(10);
      expect(statuses.filter((status) => status === 413)).toHaveLength(54);
    },
  );

  test('wrong sign-ins count at all servers together', async () => {
    const statuses: number[] = [];
    const body =
      `<authRequest><username>${user.email}</username><password>wrong</password>` +
      `<accessKeyId>${'0'.repeat(20)}</accessKeyId><privateAccessKey>x</privateAccessKey></authRequest>`;
    for (let count = 0; count < 6; count += 1)
      statuses.push((await new RawClient(next().origin).send('POST', '/authorization', { body })).status);
    expect(statuses).toEqual([401, 401, 401, 401, 401, 503]);
  });

  test('a server with another public origin or without an object store does not start', async () => {
    await expect(open('http://other.example.com')).rejects.toThrow(StorageError);
    const options = { dataDirectory: join(directory, 'other'), publicOrigin: ORIGIN, database: { url } };
    await expect(ReferenceServer.open(options)).rejects.toThrow(UsageError);
  });

  test('a server on the object store of another installation, or on an empty one, does not start', async () => {
    const database = { url: await postgres.newDatabase() };
    await expect(ReferenceServer.open({ ...options(), database })).rejects.toThrow('another installation');
    const file = await newFile();
    expect((await next().send('PUT', `${file}/data`, { body: bytes(PART_BYTES) })).status).toBe(204);
    const objects = new DirectoryStore(join(directory, 'empty objects'));
    await expect(ReferenceServer.open({ ...options(), objects })).rejects.toThrow('has no objects of these data');
  });

  test('a request that comes while a server starts is answered when it has started', async () => {
    const observer = await Postgres.open(url, { connectionsMax: 1 });
    const claim = await PortClaim.make();
    await observer.rows('BEGIN');
    await observer.rows('LOCK TABLE installation');
    const starting = ReferenceServer.open({ ...options(), listen: { port: claim.port } });
    const client = new RawClient(`http://127.0.0.1:${claim.port}`, user.client.token);
    let answer: Promise<number> | null = null;
    await until(async () => {
      const socket = connect(claim.port, '127.0.0.1');
      const isListening = await new Promise<boolean>((resolve) => {
        socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
      });
      socket.destroy();
      if (isListening) answer = client.get('/user').then(({ status }) => status);
      return isListening;
    });
    await observer.rows('COMMIT');
    await observer.close();
    const server = await starting;

    expect(await answer).toBe(200);
    await server.close();
    await claim.release();
  });

  test('a schema of a newer program is refused', async () => {
    const other = await postgres.newDatabase();
    const database = await Postgres.open(other);
    await database.migrate();
    await database.rows('UPDATE schema_version SET number = 1000');
    await expect(database.migrate()).rejects.toThrow(StorageError);
    await database.close();
  });

  test('a database that cannot be reached is a 503', async () => {
    const database = await Postgres.open(`postgres://cfs@/none?host=${encodeURIComponent(directory)}`);
    await expect(database.rows('SELECT 1')).rejects.toMatchObject({ status: 503 });
    await database.close();
  });

  test.each([
    [
      () => `postgres://cfs@/none?host=${encodeURIComponent(directory)}`,
      'the database does not answer: connect ENOENT',
    ],
    [() => 'postgres://cfs@127.0.0.1:1/none', 'the database does not answer: connect ECONNREFUSED'],
    [() => 'postgres://cfs@localhost:1/none', 'the database does not answer: '],
    [() => url.replace('postgres://cfs@', 'postgres://nobody@'), 'the database refuses this server: role "nobody"'],
    [() => url.replace(/@\/\w+/, '@/none'), 'the database refuses this server: database "none" does not exist'],
  ])('a server whose database cannot be used names the reason (%#)', async (urlOf, reason) => {
    const database = await Postgres.open(urlOf());
    const failure = await database.migrate().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(StorageError);
    expect((failure as StorageError).message).toContain(reason);
    expect((failure as StorageError).message).not.toMatch(/: $/);
    await database.close();
  });

  test('a copy from a database that does not answer names the reason', async () => {
    const store = new DirectoryStore(join(directory, 'objects'));
    const opened = PostgresInstallation.open('postgres://cfs@127.0.0.1:1/none', store);
    await expect(opened).rejects.toThrow(new StorageError('The database does not answer'));
  });

  test('a connection that the database ends is a 503, and the next statement has another', async () => {
    const [victim, observer] = [
      await Postgres.open(url, { connectionsMax: 1 }),
      await Postgres.open(url, { connectionsMax: 1 }),
    ];
    const { pid } = await victim.one<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    const sleeping = victim.rows('SELECT pg_sleep(60)');
    const refused = expect(sleeping).rejects.toMatchObject({ status: 503 });
    await until(
      async () =>
        (await observer.row("SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'", pid)) !==
        undefined,
    );
    await observer.rows('SELECT pg_terminate_backend($1)', pid);
    await refused;
    expect(await victim.answers()).toBe(true);
    await Promise.all([victim.close(), observer.close()]);
  });
});

import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/log.ts';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { openPostgresAdministration } from '../../../src/server/postgres/postgres-back-end.ts';
import { PostgresBlobs } from '../../../src/server/postgres/postgres-blobs.ts';
import { PostgresHousekeeping } from '../../../src/server/postgres/postgres-housekeeping.ts';
import { titled } from '../../harness/requirement.ts';
import { SeededRandom } from '../../store/seeded-random.ts';
import { RawClient, signUpAt, type TestUser, texts } from '../raw-client.ts';
import { until } from '../until.ts';
import { miscounts } from './miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';
import { ServerProcess } from './server-process.ts';

/** Three servers in processes of their own, which are killed and stopped, and a database that fails. Each request meets another server. */

const missing = missingPostgres();
const ORIGIN = 'http://cloud.example.com';
const PART_BYTES = 32 * 1024;
const LEASE_MS = 2000;
const CLIENTS = 6;
const KILLS = 6;
const OPERATIONS_BETWEEN = 20;
const seed = Number(process.env.CFS_CASES_SEED ?? 1);

describe.skipIf(missing !== null)(titled('processes of several servers', missing), { timeout: 180_000 }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-processes-'));
  const objects = join(directory, 'objects');
  const random = new SeededRandom(seed);
  let postgres: PostgresServer;
  let url: string;
  let observer: Postgres;
  let servers: ServerProcess[];
  let user: TestUser;
  let accounts = 0;
  let turn = 0;

  beforeAll(async () => {
    mkdirSync(objects);
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
    observer = await Postgres.open(url, { connectionsMax: 2 });
    const database = { url, partBytes: PART_BYTES, leaseMs: LEASE_MS, deletedAfterMs: 0 };
    servers = await Promise.all(
      [1, 2, 3].map((nth) =>
        ServerProcess.start({ dataDirectory: join(directory, `${nth}`), publicOrigin: ORIGIN, objects, database }),
      ),
    );
  }, 120_000);

  afterAll(async () => {
    await Promise.all(servers.map((server) => server.close()));
    await observer.close();
    await postgres.close();
    rmSync(directory, { recursive: true });
  });

  beforeEach(async () => {
    accounts += 1;
    const { administration, close } = await openPostgresAdministration(url);
    user = await signUpAt((servers[0] as ServerProcess).origin, administration, `user${accounts}@example.com`);
    await close();
  });

  const at = (server: ServerProcess): RawClient => new RawClient(server.origin, user.client.token);
  const next = (): RawClient => {
    turn += 1;
    return at(servers[turn % servers.length] as ServerProcess);
  };
  const pathOf = (location: string | undefined): string => new URL(location ?? '').pathname;
  const top = (): string => `/folder/:sc:${user.uid}:2`;
  const bytes = (count: number): Buffer => Buffer.from(random.bytes(count));
  const newVersion = async (): Promise<{ file: string; version: string }> => {
    const file = pathOf(await next().createFile(top(), `file ${turn}`));
    return { file, version: pathOf((await next().send('POST', `${file}/version`)).headers.location) };
  };
  const storedSize = async (version: string, client = next()): Promise<number> =>
    Number(texts((await client.get(version)).text, 'storedSize')[0]);
  /** Whether no server receives the version, by its lease. */
  const isFree = async (version: string): Promise<boolean> => {
    const name = version.split('/').at(-1);
    return (
      (await observer.row('SELECT FROM versions WHERE version = $1 AND lease_until < clock_timestamp()', name)) !==
      undefined
    );
  };
  const put = (client: RawClient, version: string, data: Uint8Array, offset: number, cutAfter?: number) =>
    client.send('PUT', `${version}/data`, {
      body: data.subarray(offset),
      headers: { Range: `bytes=${offset}-` },
      ...(cutAfter === undefined ? {} : { cutAfter }),
    });

  /** A request whose body comes when the test says so. */
  async function begin(
    server: ServerProcess,
    version: string,
    data: Buffer,
    [start, front]: readonly [number, number],
  ) {
    const socket: Socket = connect(server.port, '127.0.0.1');
    let said = '';
    socket.on('data', (chunk) => {
      said += chunk.toString();
    });
    socket.on('error', () => {});
    const head = `PUT ${version}/data HTTP/1.1\r\nHost: x\r\nAuthorization: ${user.client.token}\r\n`;
    socket.write(`${head}Range: bytes=${start}-\r\nContent-Length: ${data.byteLength - start}\r\n\r\n`);
    socket.write(data.subarray(start, front));
    const status = async (): Promise<number> => {
      await until(() => /^HTTP\/1\.1 \d{3} /.test(said), 60_000);
      return Number(said.slice(9, 12));
    };
    return { sendRest: () => void socket.write(data.subarray(front)), status, end: () => void socket.destroy() };
  }

  test('a killed server loses at most a part of its uploads, and other servers complete them after its lease', async () => {
    const [first, second, third] = servers as [ServerProcess, ServerProcess, ServerProcess];
    const data = bytes(3 * PART_BYTES + 1000);
    const { file, version } = await newVersion();
    const sending = await begin(first, version, data, [0, 2 * PART_BYTES + 500]);
    await until(async () => (await storedSize(version, at(second))) === 2 * PART_BYTES, 60_000);
    await first.kill();
    sending.end();

    expect(await storedSize(version, at(third))).toBe(2 * PART_BYTES);
    await until(async () => (await put(at(third), version, data, 2 * PART_BYTES)).status === 200, 60_000);
    expect((await at(second).get(`${file}/data`)).bytes.equals(data)).toBe(true);
    await first.restart();
  });

  test('a stopped server adds nothing to uploads that others took over, and completes none of them', async () => {
    const [first, second, third] = servers as [ServerProcess, ServerProcess, ServerProcess];
    const [sleepers, others] = [bytes(3 * PART_BYTES), bytes(3 * PART_BYTES)];
    const uploads = await Promise.all(
      ['complete', 'complete', 'cut', 'under way'].map(async (kind) => {
        const { file, version } = await newVersion();
        const sleeper = await begin(first, version, sleepers, [0, PART_BYTES + 10]);
        return { kind, file, version, sleeper };
      }),
    );
    for (const { version } of uploads)
      await until(async () => (await storedSize(version, at(second))) === PART_BYTES, 60_000);
    await first.stop();
    try {
      // The rest of one upload waits in the kernel while the server is stopped.
      uploads[0]?.sleeper.sendRest();
      const takers = await Promise.all(
        uploads.map(async ({ kind, version }) => {
          await until(() => isFree(version), 60_000);
          if (kind === 'complete') {
            expect((await put(at(second), version, others, PART_BYTES)).status).toBe(200);
          } else if (kind === 'cut') {
            await put(at(third), version, others, PART_BYTES, PART_BYTES + 5).catch(() => {});
            await until(async () => (await storedSize(version, at(second))) === 2 * PART_BYTES + 5, 60_000);
          } else {
            const taker = await begin(third, version, others, [PART_BYTES, PART_BYTES + 20]);
            await until(async () => !(await isFree(version)), 60_000);
            return taker;
          }
          return null;
        }),
      );
      first.continue();
      for (const { sleeper } of uploads.slice(1)) sleeper.sendRest();
      for (const { sleeper } of uploads) expect(await sleeper.status()).toBe(416);
      for (const taker of takers) {
        taker?.sendRest();
        if (taker !== null) expect(await taker.status()).toBe(200);
      }
    } finally {
      first.continue();
    }
    const cut = uploads[2]?.version as string;
    expect((await put(next(), cut, others, 2 * PART_BYTES + 5)).status).toBe(200);
    const expected = Buffer.concat([sleepers.subarray(0, PART_BYTES), others.subarray(PART_BYTES)]);
    for (const { file } of uploads) expect((await next().get(`${file}/data`)).bytes.equals(expected)).toBe(true);
  });

  test(`no acknowledged change is lost or made twice while servers are killed and the database fails, seed ${seed}`, async () => {
    const clients = Array.from({ length: CLIENTS }, (_, nth) => new LoadClient(`client ${nth}`));
    const running = clients.map((client) => client.run());
    const done = (): number => clients.reduce((sum, client) => sum + client.done, 0);
    try {
      for (let kills = 0; kills < KILLS; kills += 1) {
        const before = done();
        await until(() => done() >= before + OPERATIONS_BETWEEN, 60_000);
        const victim = servers[kills % servers.length] as ServerProcess;
        if (kills % 3 === 2) await postgres.restart();
        await victim.kill();
        await victim.restart();
      }
    } finally {
      for (const client of clients) client.isOver = true;
      await Promise.all(running);
    }
    expect(clients.reduce((sum, { unknown }) => sum + unknown, 0)).toBeGreaterThan(0);
    for (const client of clients) await client.check();
    // The counts match the rows, and the store has exactly the objects that the rows name.
    await collectAll();
    expect(await miscounts(url)).toEqual([]);
    const known = await observer.rows<{ key: string }>('SELECT key FROM parts ORDER BY key');
    expect(storedKeys()).toEqual(known.map(({ key }) => key));
  });

  const storedKeys = (): string[] =>
    readdirSync(objects, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name !== 'cfs-serve-installation')
      .map((entry) => `${entry.name.slice(0, 2)}/${entry.name}`)
      .sort();

  /** What housekeeping does within hours. */
  async function collectAll(): Promise<void> {
    const store = new DirectoryStore(objects);
    const housekeeping = new PostgresHousekeeping({
      postgres: observer,
      store,
      blobs: new PostgresBlobs({ postgres: observer, store }),
      clock: systemClock,
      log: silentLogger,
      uploadKeptMs: 0,
      deletedAfterMs: 0,
    });
    await until(async () => {
      await housekeeping.dropAbandoned();
      return (await observer.row('SELECT FROM versions WHERE NOT complete')) === undefined;
    }, 60_000);
    await observer.rows("UPDATE objects SET since = since - interval '1 day' WHERE state <> 'live'");
    await housekeeping.collectObjects();
    await housekeeping.close();
  }

  /** Changes files, and remembers what was acknowledged. A change whose outcome is unknown is repeated under another name. */
  class LoadClient {
    isOver = false;
    done = 0;
    unknown = 0;
    readonly #name: string;
    readonly #files = new Map<string, { readonly data: Buffer; readonly path: string; versions: number }>();
    readonly #deleted = new Set<string>();
    #names = 0;

    constructor(name: string) {
      this.#name = name;
    }

    async run(): Promise<void> {
      while (!this.isOver) await this.#round();
    }

    /** Each attempt to create a file or folder has a name of its own: so a change that is made twice is seen. */
    async check(): Promise<void> {
      const { text } = await next().get(`${top()}/contents?max=1000000`);
      const names = texts(text, 'displayName').filter((name) => name.startsWith(this.#name));
      expect(new Set(names).size).toBe(names.length);
      for (const [name, { path, data, versions }] of this.#files) {
        expect(names, name).toContain(name);
        const answer = await next().get(`${path}/data`);
        expect(answer.bytes.equals(data), `${name} of ${data.byteLength} bytes`).toBe(true);
        const history = texts((await next().get(`${path}/version?max=100`)).text, 'presentOnServer');
        expect(history.length, name).toBeLessThanOrEqual(versions);
      }
      for (const name of this.#deleted) expect(names, name).not.toContain(name);
    }

    async #round(): Promise<void> {
      const created = await this.#create();
      if (created === null) return;
      const { name, path } = created;
      const data = bytes(1 + random.below(random.below(2) === 0 ? 2000 : 5 * PART_BYTES));
      const versions = random.below(2) === 0 ? await this.#replace(path, data) : await this.#upload(path, data);
      this.done += 1;
      if (random.below(4) === 0) {
        while ([null, 503].includes((await this.#answer('DELETE', path))?.status ?? null)) await sleep(5);
        this.#deleted.add(name);
      } else {
        this.#files.set(name, { data, path, versions });
      }
    }

    async #create(): Promise<{ name: string; path: string } | null> {
      this.#names += 1;
      const name = `${this.#name} file ${this.#names}`;
      const body = `<file><displayName>${name}</displayName><mediaType></mediaType></file>`;
      const answer = await this.#answer('POST', top(), body);
      return answer?.status === 201 ? { name, path: pathOf(answer.headers.location) } : null;
    }

    /** @returns the number of versions that there may be */
    async #replace(path: string, data: Buffer): Promise<number> {
      for (let tries = 1; ; tries += 1) {
        const answer = await this.#answer('PUT', `${path}/data`, data);
        if (answer?.status === 204) return tries;
        if (answer !== null) expect(answer.status).toBe(503);
        await sleep(5);
      }
    }

    async #upload(path: string, data: Buffer): Promise<number> {
      let version = '';
      let tries = 0;
      for (; version === ''; tries += 1) {
        const answer = await this.#answer('POST', `${path}/version`);
        if (answer?.status === 201) version = pathOf(answer.headers.location);
        else await sleep(5);
      }
      for (;;) {
        const seen = await this.#answer('GET', version);
        if (seen?.status === 200 && texts(seen.text, 'presentOnServer')[0] === 'true') return tries;
        const stored = Number(texts(seen?.text ?? '', 'storedSize')[0]);
        if (seen?.status !== 200 || Number.isNaN(stored)) {
          await sleep(5);
          continue;
        }
        const rest = data.byteLength - stored;
        const cutAfter = rest < 2 || random.below(3) === 0 ? undefined : 1 + random.below(rest - 1);
        const answer = await put(next(), version, data, stored, cutAfter).catch(() => null);
        if (answer === null || answer.status !== 200) await sleep(20);
      }
    }

    /** Null for an unknown outcome: of a server that died, or a database that did not answer. */
    async #answer(method: string, path: string, body?: string | Uint8Array) {
      const to = next();
      const answer = await to.send(method, path, body === undefined ? {} : { body }).catch(() => null);
      if (answer === null || answer.status >= 500) this.unknown += 1;
      return answer !== null && answer.status >= 500 && answer.status !== 503
        ? Promise.reject(new Error(`${method} ${path}: ${answer.status} ${answer.text}`))
        : answer;
    }
  }
});

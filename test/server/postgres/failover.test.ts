import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { titled } from '../../harness/requirement.ts';
import { RawClient, signUp, type TestUser, texts } from '../raw-client.ts';
import { until } from '../until.ts';
import { DatabaseProxy } from './database-proxy.ts';
import { miscounts } from './miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** Two servers, whose database fails over to a synchronous replica: the address of the database then leads there. */

const missing = missingPostgres();
const PART_BYTES = 32 * 1024;
const LEASE_MS = 500;
const WRITERS = 8;

describe.skipIf(missing !== null)(titled('failover of the database', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-failover-'));
  let primary: PostgresServer;
  let replica: PostgresServer;
  let proxy: DatabaseProxy;
  let replicaUrl: string;
  let servers: ReferenceServer[];
  let user: TestUser;

  beforeAll(async () => {
    primary = await PostgresServer.start();
    const url = await primary.newDatabase();
    const carried = await DatabaseProxy.start(url);
    proxy = carried.proxy;
    const open = (name: string): Promise<ReferenceServer> =>
      ReferenceServer.open({
        dataDirectory: join(directory, name),
        publicOrigin: 'http://cloud.example.com',
        objects: new DirectoryStore(join(directory, 'objects')),
        database: { url: carried.url, partBytes: PART_BYTES, leaseMs: LEASE_MS },
      });
    servers = [await open('first'), await open('second')];
    replica = await primary.standby();
    replicaUrl = replica.replicaOf(url);
    const [first] = servers as [ReferenceServer];
    const direct = { origin: `http://127.0.0.1:${first.port}`, administration: first.administration };
    user = await signUp(direct as ReferenceServer, 'a@example.com');
  }, 60_000);

  afterAll(async () => {
    await Promise.all(servers.map((server) => server.close()));
    await proxy.close();
    await Promise.all([primary.close(), replica.close()]);
    rmSync(directory, { recursive: true });
  });

  const at = (nth: number): RawClient =>
    new RawClient(`http://127.0.0.1:${servers[nth % servers.length]?.port}`, user.client.token);
  const top = (): string => `/folder/:sc:${user.uid}:2`;
  const pathOf = (location: string | undefined): string => new URL(location ?? '').pathname;

  test('every acknowledged change is on the replica, once, and the servers go on with it', async () => {
    const file = pathOf(await at(0).createFile(top(), 'upload'));
    const version = pathOf((await at(1).send('POST', `${file}/version`)).headers.location);
    const data = Buffer.alloc(3 * PART_BYTES, 'abcdefg');
    const stored = async (): Promise<number> => Number(texts((await at(0).get(version)).text, 'storedSize')[0]);
    const put = (from: number, to: number) =>
      at(1).send('PUT', `${version}/data`, {
        body: data.subarray(from, to),
        headers: { Range: `bytes=${from}-`, 'Content-Length': String(data.byteLength - from) },
        ...(to < data.byteLength ? { cutAfter: to - from } : {}),
      });
    await put(0, 2 * PART_BYTES).catch(() => {});
    await until(async () => (await stored()) === 2 * PART_BYTES);

    const acknowledged = new Set<string>();
    const refusals: number[] = [];
    let isOver = false;
    const writer = async (nth: number): Promise<void> => {
      for (let count = 0; !isOver; count += 1) {
        const name = `${nth} ${count}`;
        const body = `<file><displayName>${name}</displayName><mediaType></mediaType></file>`;
        const { status } = await at(nth).send('POST', top(), { body });
        if (status === 201) acknowledged.add(name);
        else refusals.push(status);
      }
    };
    const writers = Promise.all(Array.from({ length: WRITERS }, (_, nth) => writer(nth)));
    await until(() => acknowledged.size > 10 * WRITERS);
    await primary.stop();
    const before = acknowledged.size;
    // A replica that takes no changes yet.
    proxy.moveTo(replicaUrl);
    await until(async () => (await at(0).get(`${top()}/contents`)).status === 200);
    await replica.promote();
    await until(() => acknowledged.size > before + 10 * WRITERS);
    isOver = true;
    await writers;

    expect([...new Set(refusals)]).toEqual([503]);
    const names: string[] = [];
    for (let start = 0, more = true; more; start = names.length) {
      const page = texts((await at(0).get(`${top()}/contents?start=${start}&max=500`)).text, 'displayName');
      names.push(...page);
      more = page.length > 0;
    }
    expect(names).toHaveLength(new Set(names).size);
    expect([...acknowledged].filter((name) => !names.includes(name))).toEqual([]);
    expect(names.length - 1 - acknowledged.size).toBeLessThanOrEqual(refusals.length);

    expect((await put(await stored(), data.byteLength)).status).toBe(200);
    expect((await at(0).get(`${file}/data`)).bytes.equals(data)).toBe(true);
    expect(await miscounts(replicaUrl)).toEqual([]);
  }, 60_000);
});

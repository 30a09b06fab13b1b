import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { missingPrograms, titled } from '../../harness/requirement.ts';
import { RawClient, signUp, type TestUser, texts } from '../raw-client.ts';
import { miscounts } from './miscounts.ts';
import { Pooler } from './pooler.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** Servers behind a pooler in transaction mode: no statement may rely on the connection of the one before. */

const PART_BYTES = 64 * 1024;
const CLIENTS = 12;
const missing = missingPostgres() ?? missingPrograms('pgbouncer');

describe.skipIf(missing !== null)(titled('behind a pooler in transaction mode', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-pooled-'));
  let postgres: PostgresServer;
  let direct: string;
  let url: string;
  let pooler: Pooler;
  let servers: readonly ReferenceServer[] = [];

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    direct = await postgres.newDatabase();
    const [, name = '', sockets = ''] = /\/(\w+)\?host=(.*)$/.exec(direct) ?? [];
    pooler = await Pooler.start(decodeURIComponent(sockets), name);
    url = pooler.url(name);
    const database = { url, partBytes: PART_BYTES, deletedAfterMs: 0 };
    const open = (own: string) =>
      ReferenceServer.open({
        dataDirectory: join(directory, own),
        publicOrigin: 'http://cloud.example.com',
        objects: new DirectoryStore(join(directory, 'objects')),
        database,
      });
    // Together: one of them makes the tables.
    servers = await Promise.all([open('one'), open('two')]);
  }, 60_000);

  afterAll(async () => {
    await Promise.all(servers.map((server) => server.close()));
    await pooler?.close();
    await postgres.close();
    rmSync(directory, { recursive: true });
  });

  const at = (turn: number, { client }: TestUser): RawClient => {
    const { port } = servers[turn % servers.length] as ReferenceServer;
    return new RawClient(`http://127.0.0.1:${port}`, client.token);
  };
  const pathOf = (location: string | undefined): string => new URL(location ?? '').pathname;

  test(`${CLIENTS} clients that create, upload in parts, move, copy and delete at the same time lose nothing`, async () => {
    const [server] = servers as [ReferenceServer];
    const origin = `http://127.0.0.1:${server.port}`;
    const { administration } = server;
    const users = await Promise.all(
      ['a', 'b', 'c'].map((name) => signUp({ origin, administration } as ReferenceServer, `${name}@example.com`)),
    );
    const work = async (number: number): Promise<void> => {
      const user = users[number % users.length] as TestUser;
      const top = `/folder/:sc:${user.uid}:2`;
      let turn = number;
      const next = (): RawClient => at(turn++, user);
      const folder = pathOf(await next().createFolder(top, `folder ${number}`));
      const file = pathOf(await next().createFile(folder, 'file'));
      const data = Buffer.alloc(3 * PART_BYTES + 5, number + 1);
      expect((await next().send('PUT', `${file}/data`, { body: data })).status).toBe(204);
      const version = pathOf((await next().send('POST', `${file}/version`)).headers.location);
      expect((await next().send('PUT', `${version}/data`, { body: data.subarray(1) })).status).toBe(200);
      const copy = `<fileCopy source="http://cloud.example.com${file}"><displayName>copy</displayName></fileCopy>`;
      const copied = pathOf(await next().create(folder, copy));
      const moved = `<file><displayName>moved ${number}</displayName><parent>http://cloud.example.com${top}</parent></file>`;
      expect((await next().send('PUT', copied, { body: moved })).status).toBe(200);
      expect((await next().send('DELETE', file)).status).toBe(204);
      expect((await next().get(`${copied}/data`)).bytes.equals(data.subarray(1))).toBe(true);
    };
    await Promise.all(Array.from({ length: CLIENTS }, (_, number) => work(number)));

    for (const [number, user] of users.entries()) {
      const { text } = await at(number, user).get(`/folder/:sc:${user.uid}:2/contents?type=file`);
      const mine = Array.from({ length: CLIENTS }, (_, each) => each).filter((each) => each % users.length === number);
      expect(texts(text, 'displayName').sort()).toEqual(mine.map((each) => `moved ${each}`).sort());
    }
    expect(await server.collectObjects()).toBeGreaterThan(0);
    expect(await miscounts(direct)).toEqual([]);
  }, 60_000);

  test('a statement whose plan another connection keeps runs once', async () => {
    const observer = await Postgres.open(direct, { connectionsMax: 1 });
    await observer.rows('CREATE SEQUENCE calls');
    const pooled = await Promise.all([1, 2].map(() => Postgres.open(url)));
    const calls = Array.from({ length: 40 }, (_, nth) =>
      (pooled[nth % 2] as Postgres).keptRows("SELECT nextval('calls') AS nth, $1::integer AS argument", nth),
    );
    expect((await Promise.all(calls)).map(([row]) => row)).toEqual(
      calls.map((_, argument) => expect.objectContaining({ argument })),
    );
    expect(await observer.rows('SELECT last_value FROM calls')).toEqual([{ last_value: 40 }]);
    await Promise.all([...pooled, observer].map((each) => each.close()));
  });
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { titled } from '../../harness/requirement.ts';
import { signUpAt, type TestUser } from '../raw-client.ts';
import { until } from '../until.ts';
import { DatabaseProxy } from './database-proxy.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** How often a request waits for the database, which may be milliseconds away. */

const missing = missingPostgres();

describe.skipIf(missing !== null)(titled('round trips to the database', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-trips-'));
  let postgres: PostgresServer;
  let url: string;
  let proxy: DatabaseProxy;
  let server: ReferenceServer;
  let origin: string;
  let user: TestUser;
  let top: string;

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
    const carried = await DatabaseProxy.start(url);
    proxy = carried.proxy;
    server = await ReferenceServer.open({
      dataDirectory: directory,
      publicOrigin: 'http://cloud.example.com',
      objects: new DirectoryStore(join(directory, 'objects')),
      database: { url: carried.url, partBytes: 32 * 1024 },
    });
    origin = `http://127.0.0.1:${server.port}`;
    user = await signUpAt(origin, server.administration, 'a@example.com');
    top = `/folder/:sc:${user.uid}:2`;
  }, 60_000);

  afterAll(async () => {
    await server.close();
    await proxy.close();
    await postgres.close();
    rmSync(directory, { recursive: true });
  });

  const newFile = async (): Promise<string> => new URL(await user.client.createFile(top, 'file')).pathname;
  const save = (file: string, data: string) => user.client.send('PUT', `${file}/data`, { body: data });
  async function counted<T>(action: () => Promise<T>): Promise<[number, T]> {
    const before = proxy.statements;
    const result = await action();
    return [proxy.statements - before, result];
  }

  test('a creation costs one, a listing and a save of few bytes two, and the first use of a token one more', async () => {
    const [first, file] = await counted(newFile);
    const [creation] = await counted(newFile);
    const [listing] = await counted(() => user.client.get(`${top}/contents`));
    const [saving, saved] = await counted(() => save(file, 'x'.repeat(1024)));
    expect([first, creation, listing, saving, saved.status]).toEqual([2, 1, 2, 2, 204]);
  });

  test('saves of one account at the same time share commits, each with its own outcome', async () => {
    const files = await Promise.all(Array.from({ length: 32 }, newFile));
    const gone = files[5] as string;
    await user.client.send('DELETE', gone);
    proxy.counted = { text: 'save_all', statements: 0 };
    const answers = await Promise.all(files.map((file, nth) => save(file, `data ${nth}`)));
    expect(proxy.counted.statements).toBeLessThan(files.length);
    for (const [nth, file] of files.entries()) {
      expect(answers[nth]?.status).toBe(file === gone ? 404 : 204);
      if (file !== gone) expect((await user.client.get(`${file}/data`)).text).toBe(`data ${nth}`);
    }
  });

  test('saves of several accounts at the same time share commits, each with its own outcome', async () => {
    const users = await Promise.all(
      Array.from({ length: 16 }, (_, nth) => signUpAt(origin, server.administration, `many${nth}@example.com`)),
    );
    const files = await Promise.all(
      users.map(async ({ client, uid }) => new URL(await client.createFile(`/folder/:sc:${uid}:2`, 'file')).pathname),
    );
    const saveAll = (data: string) =>
      Promise.all(users.map(({ client }, nth) => client.send('PUT', `${files[nth]}/data`, { body: `${data} ${nth}` })));
    proxy.counted = { text: 'save_all', statements: 0 };
    expect((await saveAll('first')).map(({ status }) => status)).toEqual(users.map(() => 204));
    expect(proxy.counted.statements).toBeLessThan(users.length);
    await users[5]?.client.send('DELETE', files[5] ?? '');
    expect((await saveAll('second')).map(({ status }) => status)).toEqual(
      users.map((_, nth) => (nth === 5 ? 404 : 204)),
    );
    for (const [nth, { client }] of users.entries())
      if (nth !== 5) expect((await client.get(`${files[nth]}/data`)).text).toBe(`second ${nth}`);
  });

  test('a save that finds the turn of its account taken is sent again when it is free', async () => {
    const file = await newFile();
    const other = await Postgres.open(url, { connectionsMax: 1 });
    const isWaiting = 'SELECT FROM pg_locks WHERE locktype = $1 AND NOT granted';
    await other.rows('BEGIN');
    await other.rows("SELECT take_turn($1, 'own')", user.uid);
    proxy.counted = { text: 'save_all', statements: 0 };
    const saved = save(file, 'data');
    await until(async () => (await other.row(isWaiting, 'advisory')) !== undefined);
    expect(proxy.counted.statements).toBe(1);
    await other.rows('COMMIT');
    expect([(await saved).status, proxy.counted.statements]).toEqual([204, 2]);
    await other.close();
  });
});

import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { silentLogger } from '../../../src/base/log.ts';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { PostgresBlobs } from '../../../src/server/postgres/postgres-blobs.ts';
import { PostgresHousekeeping } from '../../../src/server/postgres/postgres-housekeeping.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { titled } from '../../harness/requirement.ts';
import { RawClient, signUp, type TestUser } from '../raw-client.ts';
import { until } from '../until.ts';
import { DatabaseProxy } from './database-proxy.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** What protects the database against its own failures: time limits, repetitions, the order of locks and the collector's grace. */

const missing = missingPostgres();
const ORIGIN = 'http://cloud.example.com';
const LIMITS = '{1000000,1000,10,16777216}';

describe.skipIf(missing !== null)(titled('safeguards of PostgreSQL', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-safeguards-'));
  const objects = join(directory, 'objects');
  let server: PostgresServer;
  let url: string;
  let postgres: Postgres;
  let observer: Postgres;

  beforeAll(async () => {
    server = await PostgresServer.start();
    url = await server.newDatabase();
    postgres = await Postgres.open(url);
    await postgres.migrate();
    // The settings of the role are those of new connections.
    await postgres.close();
    postgres = await Postgres.open(url);
    observer = await Postgres.open(url, { connectionsMax: 1 });
  }, 60_000);

  afterAll(async () => {
    await Promise.all([postgres.close(), observer.close()]);
    await server.close();
    rmSync(directory, { recursive: true });
  });

  test('two statements that block each other are both made: the one that PostgreSQL ends is repeated', async () => {
    await postgres.rows(`CREATE TABLE pairs (id integer PRIMARY KEY, changes integer NOT NULL)`);
    await postgres.rows(`INSERT INTO pairs VALUES (1, 0), (2, 0)`);
    await postgres.rows(`CREATE SEQUENCE arrivals`);
    await postgres.rows(`
      CREATE FUNCTION change_pair(one integer, other integer) RETURNS void LANGUAGE plpgsql AS $$
      BEGIN
        UPDATE pairs SET changes = changes + 1 WHERE id = one;
        PERFORM nextval('arrivals');
        WHILE (SELECT last_value FROM arrivals) < 2 LOOP PERFORM pg_sleep(0.005); END LOOP;
        UPDATE pairs SET changes = changes + 1 WHERE id = other;
      END $$`);
    const change = (one: number, other: number) => postgres.rows('SELECT change_pair($1, $2)', one, other);
    await Promise.all([change(1, 2), change(2, 1)]);
    expect(await postgres.rows('SELECT changes FROM pairs')).toEqual([{ changes: 2 }, { changes: 2 }]);
    // Otherwise they did not meet: a statement that is repeated arrives again.
    const { last_value: arrivals } = await postgres.one<{ last_value: number }>('SELECT last_value FROM arrivals');
    expect(arrivals).toBeGreaterThan(2);
  });

  test('a statement that loses four times is made, and one that always loses is a 503', async () => {
    await postgres.rows(`CREATE SEQUENCE attempts`);
    await postgres.rows(`
      CREATE FUNCTION lose(times integer) RETURNS bigint LANGUAGE plpgsql AS $$
      DECLARE attempt bigint := nextval('attempts');
      BEGIN
        IF attempt <= times THEN RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'lost'; END IF;
        RETURN attempt;
      END $$`);
    expect(await postgres.one('SELECT lose(4)')).toEqual({ lose: 5 });
    await expect(postgres.rows('SELECT lose(1000000)')).rejects.toMatchObject({ status: 503 });
  });

  test('a statement that fills the disk of the database is a 507', async () => {
    const full = `DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'No space left on device'; END $$`;
    await expect(postgres.rows(full)).rejects.toMatchObject({ status: 507 });
  });

  test('a connection keeps the plan of a statement, until the columns of its table change', async () => {
    const one = await Postgres.open(url, { connectionsMax: 1 });
    await one.rows('CREATE TABLE changing (a integer)');
    await one.rows('INSERT INTO changing VALUES (1)');
    const seen = [];
    for (let nth = 0; nth < 2; nth += 1) seen.push(await one.keptRows('SELECT * FROM changing'));
    expect(await one.rows('SELECT statement FROM pg_prepared_statements')).toEqual([
      { statement: 'SELECT * FROM changing' },
    ]);
    await observer.rows('ALTER TABLE changing ADD b integer');
    seen.push(await one.keptRows('SELECT * FROM changing'));
    expect(seen).toEqual([[{ a: 1 }], [{ a: 1 }], [{ a: 1, b: null }]]);
    await one.close();
  });

  test('a statement has 30 seconds, also one that waits for a lock; then it is a 503, and the next ones are made', async () => {
    expect(await postgres.one('SHOW statement_timeout')).toEqual({ statement_timeout: '30s' });
    const impatient = await Postgres.open(url, { connectionsMax: 1 });
    await impatient.rows('SET statement_timeout = 50');
    await observer.rows('BEGIN');
    await observer.rows('LOCK TABLE users');
    await expect(impatient.rows('SELECT FROM users FOR UPDATE')).rejects.toMatchObject({ status: 503 });
    await observer.rows('COMMIT');
    expect(await impatient.answers()).toBe(true);
    await impatient.close();
  });

  test('a database that is gone without a word is a 503 after a time, for new connections and old ones', async () => {
    const carried = await DatabaseProxy.start(url);
    const silenced = await Postgres.open(carried.url, { connectionsMax: 1, answerMsMax: 100, connectMsMax: 5000 });
    expect(await silenced.answers()).toBe(true);
    carried.proxy.isSilent = true;
    await expect(silenced.rows('SELECT 1')).rejects.toMatchObject({ status: 503 });
    const unconnected = await Postgres.open(carried.url, { connectionsMax: 1, connectMsMax: 100 });
    await expect(unconnected.rows('SELECT 1')).rejects.toMatchObject({ status: 503 });
    carried.proxy.isSilent = false;
    await until(() => silenced.answers());
    await Promise.all([silenced.close(), unconnected.close()]);
    await carried.proxy.close();
  });

  describe('a deletion that waits for its first blob', () => {
    const names = ['e', 'd', 'c', 'b', 'a'];
    let uids = 0;

    /** A file with a version for each of `blobs`, in that order. */
    async function newFile(uid: string, blobs: readonly string[]): Promise<string> {
      const { local } = await postgres.one<{ local: string }>(
        `SELECT local FROM add_entry($1, $1, 'folders', true, 'file', 'hash', 'text/plain', NULL, NULL, '1', 'any', 0)`,
        uid,
      );
      for (const blob of blobs) {
        const { seq } = await postgres.one<{ seq: number }>("SELECT nextval('numbers') AS seq");
        await postgres.rows(
          `SELECT replace_data($1, NULL, 0, $1, $2, $3, '1', $4, 0, NULL, NULL, 0, 'x', 'hash', NULL, 0, '${LIMITS}')`,
          ...[uid, local, seq, `${uid}${blob}`],
        );
      }
      return local;
    }

    async function newUser(): Promise<string> {
      uids += 1;
      const { uid } = await postgres.one<{ uid: string }>(
        `INSERT INTO users (email, nickname, salt, hash, cost, quota_bytes, created_ms)
        VALUES ($1, '', '', '', 1, 1000000, 0) RETURNING uid`,
        `${uids}@example.com`,
      );
      return uid;
    }

    /** Blobs that `deletion` has locked when it waits for the one that is first by name. */
    async function lockedBy(uid: string, deletion: () => Promise<unknown>): Promise<string[]> {
      await observer.rows('BEGIN');
      await observer.rows('SELECT FROM blobs WHERE name = $1 FOR UPDATE', `${uid}a`);
      const waiting = deletion();
      await until(async () => (await postgres.row('SELECT FROM pg_locks WHERE NOT granted')) !== undefined);
      const free = await postgres.rows<{ name: string }>(
        'SELECT name FROM blobs WHERE name LIKE $1 FOR UPDATE SKIP LOCKED',
        `${uid}%`,
      );
      await observer.rows('COMMIT');
      await waiting;
      return names.slice(0, -1).filter((name) => free.every((blob) => blob.name !== `${uid}${name}`));
    }

    test('holds no other one, as every change: so two deletions never wait for each other', async () => {
      const uid = await newUser();
      const file = await newFile(uid, names);
      expect(await lockedBy(uid, () => postgres.rows('SELECT delete_file($1, $1, $2)', uid, file))).toEqual([]);
    });

    test('holds no other one when an account is removed', async () => {
      const uid = await newUser();
      for (const name of names) await newFile(uid, [name]);
      expect(await lockedBy(uid, () => postgres.rows('SELECT delete_some($1, 100)', uid))).toEqual([]);
    });
  });

  describe('the collector', () => {
    let serving: ReferenceServer;
    let user: TestUser;
    let housekeeping: PostgresHousekeeping;

    beforeAll(async () => {
      const store = new DirectoryStore(objects);
      serving = await ReferenceServer.open({
        dataDirectory: join(directory, 'data'),
        publicOrigin: ORIGIN,
        objects: store,
        database: { url, partBytes: 32 * 1024 },
      });
      user = await signUp(
        { origin: `http://127.0.0.1:${serving.port}`, administration: serving.administration } as ReferenceServer,
        'a@example.com',
      );
      housekeeping = new PostgresHousekeeping({
        ...{ postgres, store, clock: systemClock, log: silentLogger, uploadKeptMs: 0 },
        blobs: new PostgresBlobs({ postgres, store }),
      });
    });
    afterAll(async () => {
      await housekeeping.close();
      await serving.close();
    });

    const stored = (): string[] =>
      readdirSync(objects, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile() && entry.name !== 'cfs-serve-installation')
        .map(({ name }) => name);
    const pass = (time: string): Promise<unknown> =>
      postgres.rows(`UPDATE objects SET since = since - interval '${time}'`);

    test('leaves the objects of a deleted file for an hour, so that a download goes on', async () => {
      const client = new RawClient(`http://127.0.0.1:${serving.port}`, user.client.token);
      const file = new URL(await client.createFile(`/folder/:sc:${user.uid}:2`, 'file')).pathname;
      await client.send('PUT', `${file}/data`, { body: Buffer.alloc(100_000) });
      expect(stored()).toHaveLength(4);
      await client.send('DELETE', file);
      await pass('58 minutes');
      expect([await housekeeping.collectObjects(), stored().length]).toEqual([0, 4]);
      await pass('3 minutes');
      expect([await housekeeping.collectObjects(), stored().length]).toEqual([4, 0]);
    });

    test('leaves an object that arrives for two hours, and never touches one that a version has', async () => {
      for (const state of ['arriving', 'live']) {
        await new DirectoryStore(objects).writeText(`aa/${state}`, 'x');
        await postgres.rows('INSERT INTO objects VALUES ($1, $2)', `aa/${state}`, state);
      }
      await pass('118 minutes');
      expect(await housekeeping.collectObjects()).toBe(0);
      await pass('3 minutes');
      expect(await housekeeping.collectObjects()).toBe(1);
      await pass('1000 days');
      expect(await housekeeping.collectObjects()).toBe(0);
      expect([existsSync(join(objects, 'aa/arriving')), existsSync(join(objects, 'aa/live'))]).toEqual([false, true]);
    });

    test('an object that the collector has taken becomes no part of an upload', async () => {
      const client = new RawClient(`http://127.0.0.1:${serving.port}`, user.client.token);
      const file = new URL(await client.createFile(`/folder/:sc:${user.uid}:2`, 'late')).pathname;
      const local = file.split(':').at(-1) as string;
      await client.send('POST', `${file}/version`);
      const { seq } = await postgres.one<{ seq: number }>('SELECT seq FROM versions WHERE file = $1', local);
      const taken = [user.uid, user.uid, local, seq] as const;
      await postgres.rows(`SELECT take_upload($1, $2, $3, $4, 0, 10, '1 minute', 0, '${LIMITS}')`, ...taken);
      await postgres.rows("INSERT INTO objects VALUES ('cc/late', 'dying')");
      const added = postgres.rows(
        `SELECT add_part($1, $2, $3, $4, 1, 'cc/late', 'etag', 10, false, '1 minute', 0, '${LIMITS}')`,
        ...taken,
      );
      await expect(added).rejects.toMatchObject({ status: 416 });
    });

    test('a complete version takes no part and no second completion, also of the sender that completed it', async () => {
      const client = new RawClient(`http://127.0.0.1:${serving.port}`, user.client.token);
      const file = new URL(await client.createFile(`/folder/:sc:${user.uid}:2`, 'complete')).pathname;
      const local = file.split(':').at(-1) as string;
      await client.send('POST', `${file}/version`);
      const { seq } = await postgres.one<{ seq: number }>('SELECT seq FROM versions WHERE file = $1', local);
      const ids = [user.uid, user.uid, local, seq] as const;
      await postgres.rows(`SELECT take_upload($1, $2, $3, $4, 0, 10, '1 minute', 0, '${LIMITS}')`, ...ids);
      const finish = () =>
        postgres.rows(
          `SELECT finish_upload($1, NULL, 0, $2, $3, $4, 1, NULL, NULL, 0, 'data', 'hash', NULL, 1, '${LIMITS}')`,
          ...ids,
        );
      const add = (key: string | null) =>
        postgres.rows(
          `SELECT add_part($1, $2, $3, $4, 1, $5, 'etag', 10, true, '1 minute', 2, '${LIMITS}')`,
          ...[...ids, key],
        );
      const seen = () => postgres.rows('SELECT * FROM versions WHERE file = $1', local);
      await finish();
      const complete = await seen();
      await postgres.rows("INSERT INTO objects VALUES ('dd/more', 'arriving')");
      for (const again of [finish, () => add('dd/more'), () => add(null)])
        await expect(again()).rejects.toMatchObject({ status: 416 });
      expect(await seen()).toEqual(complete);
      expect(await postgres.one("SELECT state FROM objects WHERE key = 'dd/more'")).toEqual({ state: 'arriving' });
    });

    test('two collectors at once delete different objects, and neither waits for the other', async () => {
      await postgres.rows(`INSERT INTO objects SELECT 'bb/' || n, 'dying', '-infinity' FROM generate_series(1, 250) n`);
      await observer.rows('BEGIN');
      const taken = await observer.rows("SELECT take_dying('1 hour', '2 hours', 100)");
      const others = await housekeeping.collectObjects();
      await observer.rows('ROLLBACK');
      expect([taken.length, others, await housekeeping.collectObjects()]).toEqual([100, 150, 100]);
    });
  });
});

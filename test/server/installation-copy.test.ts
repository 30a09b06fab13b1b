import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { StorageError, UsageError } from '../../src/base/errors.ts';
import { DirectoryStore } from '../../src/server/directory-store.ts';
import type { CopyTarget } from '../../src/server/installation.ts';
import { compareInstallations } from '../../src/server/installation-comparison.ts';
import { copyInstallation } from '../../src/server/installation-copy.ts';
import { openParts } from '../../src/server/local-back-end.ts';
import { LocalInstallation } from '../../src/server/local-installation.ts';
import { type ObjectStore, StoreError } from '../../src/server/object-store.ts';
import { Postgres } from '../../src/server/postgres/postgres.ts';
import { openPostgresAdministration } from '../../src/server/postgres/postgres-back-end.ts';
import { PostgresInstallation } from '../../src/server/postgres/postgres-installation.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import type { VersionRow } from '../../src/server/rows.ts';
import { PortClaim } from '../harness/port-claim.ts';
import { titled } from '../harness/requirement.ts';
import { crawledDocuments } from './crawled-documents.ts';
import { type FilledInstallation, fillInstallation } from './filled-installation.ts';
import { miscounts } from './postgres/miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres/postgres-server.ts';
import { type TestUser, texts } from './raw-client.ts';
import { StandInS3 } from './s3/stand-in-s3.ts';
import { until } from './until.ts';

/** `cfs serve copy` and its `--check`, between every two back ends. */

const PART_BYTES = 16 * 1024 * 1024;
const missing = missingPostgres();
const directory = mkdtempSync(join(tmpdir(), 'cfs-copy-'));
const newPath = (
  (count) => () =>
    join(directory, `${++count}`)
)(0);
let claim: PortClaim;
let filled: FilledInstallation;
/** Of a data directory, and what its server answered. */
let original: string;
let documents: ReadonlyMap<string, string>;

beforeAll(async () => {
  claim = await PortClaim.make();
  original = newPath();
  const server = await serve({ dataDirectory: original });
  filled = await fillInstallation(server, PART_BYTES + 100_000);
  documents = await allDocuments();
  await server.close();
}, 60_000);

afterAll(async () => {
  await claim.release();
  rmSync(directory, { recursive: true });
});

type Options = Parameters<typeof ReferenceServer.open>[0];
const origin = () => `http://127.0.0.1:${claim.port}`;
const serve = (options: Options) =>
  ReferenceServer.open({ publicOrigin: origin(), listen: { port: claim.port }, ...options });

/** What all accounts see. */
async function allDocuments(): Promise<ReadonlyMap<string, string>> {
  const crawls = filled.users.map(({ client, uid }, at) =>
    crawledDocuments(client, { uid, more: at === 0 ? filled.orphans : [] }),
  );
  const each = await Promise.all(crawls);
  return new Map(each.flatMap((found, at) => [...found].map(([path, text]) => [`${at} ${path}`, text] as const)));
}

async function copied(source: CopyTarget, target: CopyTarget, report = (): void => {}): Promise<void> {
  try {
    await copyInstallation({ source, target, origin: origin(), report });
  } finally {
    await Promise.all([source.close(), target.close()]);
  }
}

async function differences(left: CopyTarget, right: CopyTarget): Promise<string[]> {
  const found: string[] = [];
  try {
    const totals = await compareInstallations(left, right, (difference) => found.push(difference));
    expect(totals.entries).toBeGreaterThan(90);
    expect(totals.versions).toBeGreaterThan(90);
    return found;
  } finally {
    await Promise.all([left.close(), right.close()]);
  }
}

/** The server of a copy answers as the original, to the same tokens; its new entries follow the old ones. */
async function expectOriginal(options: Options): Promise<void> {
  const server = await serve(options);
  try {
    const found = await allDocuments();
    expect([...found.keys()].sort()).toEqual([...documents.keys()].sort());
    for (const [path, text] of found) expect(text, path).toBe(documents.get(path));
    const { client, folder } = filled.users[0] as TestUser;
    const { version, bytes } = filled.unfinished;
    const stored = Number(texts((await client.get(version)).text, 'storedSize')[0]);
    expect(stored).toBeGreaterThan(0);
    const rest = { body: bytes.subarray(stored), headers: { Range: `bytes=${stored}-` } };
    expect((await client.send('PUT', `${version}/data`, rest)).status).toBe(200);
    expect((await client.get(`${version}/data`)).bytes.equals(bytes)).toBe(true);
    const numbers = [...documents.keys()].map((path) => Number(/:(\d+)_\d+/.exec(path)?.[1] ?? 0));
    const created = await client.createFilled(folder('2'), 'new', 'data');
    expect(Number(/:(\d+)_\d+$/.exec(created)?.[1])).toBeGreaterThan(Math.max(...numbers));
    const { administration } = server;
    const { userId } = await administration.addUser('next@example.com', 'password', { scryptCost: 2 });
    expect(userId).toBe('1005');
  } finally {
    await server.close();
  }
}

test('the data of a directory and a store are copied to a directory', async () => {
  const store = await StandInS3.start();
  const [from, to] = [newPath(), newPath()];
  await copied(await LocalInstallation.open(original), await LocalInstallation.open(from, { isNew: true }));
  const moving = await serve({ dataDirectory: from, objects: store.open() });
  const blobs = join(from, 'blobs');
  const onDisk = () => readdirSync(blobs).flatMap((name) => readdirSync(join(blobs, name)));
  // The unfinished upload stays.
  await until(() => onDisk().length === 1 && moving.versionsToMove === 0, 20_000);
  await moving.close();
  expect(store.keys.length).toBeGreaterThan(3);

  const source = () => LocalInstallation.open(from, { objects: store.open() });
  await copied(await source(), await LocalInstallation.open(to, { isNew: true }));

  expect(await differences(await source(), await LocalInstallation.open(to))).toEqual([]);
  expect(await differences(await LocalInstallation.open(original), await LocalInstallation.open(to))).toEqual([]);
  await expectOriginal({ dataDirectory: to });
  await store.close();
});

test('a directory that a server uses, one without data, and a target with data are refused', async () => {
  const used = newPath();
  const server = await serve({ dataDirectory: used });
  await expect(LocalInstallation.open(used)).rejects.toThrow(UsageError);
  await server.close();
  await expect(LocalInstallation.open(newPath())).rejects.toThrow(UsageError);
  const [source, target] = [
    await LocalInstallation.open(original),
    await LocalInstallation.open(used, { isNew: true }),
  ];
  await expect(copied(source, target)).rejects.toThrow('has data already');
});

test('a target of an interrupted copy has no server and no administration, and takes no other copy', async () => {
  const to = newPath();
  const [source, target] = [await LocalInstallation.open(original), await LocalInstallation.open(to, { isNew: true })];
  const interrupted = copied(source, target, () => {
    throw new Error('interrupted');
  });
  await expect(interrupted).rejects.toThrow('interrupted');

  await expect(serve({ dataDirectory: to })).rejects.toThrow(StorageError);
  const other = newPath();
  await (await serve({ dataDirectory: other })).close();
  await expect(
    copied(await LocalInstallation.open(other), await LocalInstallation.open(to, { isNew: true })),
  ).rejects.toThrow('has data already');
  await copied(await LocalInstallation.open(original), await LocalInstallation.open(to, { isNew: true }));
  await (await serve({ dataDirectory: to })).close();
});

test('a version whose data were damaged ends the copy with its name', async () => {
  const from = newPath();
  await copied(await LocalInstallation.open(original), await LocalInstallation.open(from, { isNew: true }));
  const parts = openParts({ dataDirectory: from });
  const row = [...parts.histories.all()].find(({ sizeBytes }) => sizeBytes === 16_385) as VersionRow;
  const path = parts.blobs.pathOf(row.blob);
  await parts.database.close();
  writeFileSync(path, readFileSync(path).fill('x', 100, 101));

  const damaged = copied(await LocalInstallation.open(from), await LocalInstallation.open(newPath(), { isNew: true }));

  await expect(damaged).rejects.toThrow(`version ${row.version}: its data are not those that were sent`);
});

describe.skipIf(missing !== null)(titled('over PostgreSQL', missing), () => {
  let postgres: PostgresServer;
  let url: string;
  let objects: string;
  beforeAll(async () => {
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
    objects = newPath();
    mkdirSync(objects);
    await copied(await LocalInstallation.open(original), await open(url, objects, true));
  }, 60_000);
  afterAll(() => postgres.close());

  const open = (at: string, to: string | ObjectStore, isNew = false) =>
    PostgresInstallation.open(at, typeof to === 'string' ? new DirectoryStore(to) : to, { isNew });

  test('a copy from a directory to a database and back again answers as the original', async () => {
    expect(await miscounts(url)).toEqual([]);
    expect(await differences(await LocalInstallation.open(original), await open(url, objects))).toEqual([]);
    const back = newPath();
    await copied(await open(url, objects), await LocalInstallation.open(back, { isNew: true }));
    expect(await differences(await open(url, objects), await LocalInstallation.open(back))).toEqual([]);
    await expectOriginal({ dataDirectory: back });
  });

  test('a copy between databases, with objects in S3, answers as the original', async () => {
    const [store, other] = [await StandInS3.start(), await postgres.newDatabase()];
    await copied(await open(url, objects), await open(other, store.open(), true));
    expect(await differences(await open(url, objects), await open(other, store.open()))).toEqual([]);
    await expectOriginal({ dataDirectory: newPath(), database: { url: other }, objects: store.open() });
    expect(await miscounts(other)).toEqual([]);
    await store.close();
  });

  test('a copy that is interrupted after every piece and by every failure of the store continues', async () => {
    const [to, other] = [newPath(), await postgres.newDatabase()];
    let attempts = 0;
    for (let isDone = false; !isDone; attempts += 1) {
      // In turn the store fails, and the copy ends between two pieces; each time later.
      const allowed = [Math.floor(attempts / 2), Number.POSITIVE_INFINITY];
      const [puts, pieces] = attempts % 2 === 0 ? allowed : allowed.reverse();
      let counted = 0;
      const store = new DirectoryStore(to);
      const put = store.put.bind(store);
      store.put = async (key, file) => {
        if (counted >= (puts as number)) throw new StoreError('interrupted', { isPassing: true });
        counted += 1;
        return put(key, file);
      };
      const report = (): void => {
        if (counted >= (pieces as number)) throw new Error('interrupted');
        counted += 1;
      };
      try {
        await copied(await LocalInstallation.open(original), await open(other, store, true), report);
        isDone = true;
      } catch (error) {
        expect((error as Error).message).toBe('interrupted');
        await expect(openPostgresAdministration(other)).rejects.toThrow('a copy into this database was interrupted');
      }
    }
    expect(attempts).toBeGreaterThan(10);
    expect(await differences(await LocalInstallation.open(original), await open(other, to))).toEqual([]);
    expect(await miscounts(other)).toEqual([]);
  });

  test('every kind of row, and every byte, that differs is found', async () => {
    const [to, other] = [newPath(), await postgres.newDatabase()];
    await copied(await LocalInstallation.open(original), await open(other, to, true));
    const changes: readonly (readonly [found: RegExp, statement: string])[] = [
      [/^the origin is/, "UPDATE installation SET origin = 'http://other.example.com'"],
      [/^users 1001: the rows differ/, "UPDATE users SET networks = '{}' WHERE uid = '1001'"],
      [/^users 1002: the rows differ/, "UPDATE users SET salt = '\\x00' WHERE uid = '1002'"],
      [/^users 1003: missing in postgres/, "DELETE FROM users WHERE uid = '1003'"],
      [/^applications .*: the rows differ/, 'UPDATE applications SET enabled = NOT enabled'],
      [/^keyPairs .*: the rows differ/, "UPDATE key_pairs SET uid = '1002' WHERE uid = '1001'"],
      [/^refreshTokens .*: the rows differ/, 'UPDATE refresh_tokens SET used_ms = used_ms + 1'],
      [/^accessTokens .*: missing/, 'DELETE FROM access_tokens'],
      [/^resources 1001 \d+_\d+: the rows differ/, "UPDATE resources SET name = name || ' ' WHERE name = 'file 7'"],
      [
        /^resources 1001 \d+_\d+: the rows differ/,
        'UPDATE resources SET newest_size = newest_size + 1 WHERE newest_size = 16385',
      ],
      [/^workspaces 1001 .*: the rows differ/, "UPDATE workspaces SET icon_id = '2'"],
      [/^shares 1001 1002 2: the rows differ/, 'UPDATE shares SET write_allowed = true'],
      [/^versions 1001 .*: missing/, 'DELETE FROM versions WHERE size_bytes = 20003'],
      [
        /^versions 1001 .*: the rows differ/,
        "UPDATE versions SET media_type = 'text/html' WHERE media_type = 'video/mp4'",
      ],
      [
        /^versions 1001 .*: the data differ/,
        'UPDATE blobs SET bytes = set_byte(bytes, 9, 1) WHERE octet_length(bytes) = 16384',
      ],
      [/^versions 1001 .*: the data in postgres.* cannot be read/, 'UPDATE parts SET size = 29999 WHERE size = 30000'],
      [/^versions 1001 .*: 20006 and 0 bytes/, 'DELETE FROM parts WHERE size = 20006'],
    ];
    const database = await Postgres.open(other, { connectionsMax: 1 });
    for (const [, statement] of changes) await database.rows(statement);
    await database.rows("UPDATE installation SET origin = 'http://other.example.com'");
    await database.close();

    const found = await differences(await LocalInstallation.open(original), await open(other, to));

    for (const [pattern] of changes)
      expect(
        found.filter((each) => pattern.test(each)),
        String(pattern),
      ).not.toEqual([]);
  });

  test('a database that others use, one without data, and a target with data are refused', async () => {
    const user = await Postgres.open(url, { connectionsMax: 1 });
    await user.rows('SELECT 1');
    await expect(open(url, objects)).rejects.toThrow('other connections use the database');
    await user.close();
    await expect(open(await postgres.newDatabase(), objects)).rejects.toThrow('has no data');
    await expect(copied(await LocalInstallation.open(original), await open(url, objects, true))).rejects.toThrow(
      'has data already',
    );
  });
});

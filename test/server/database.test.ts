import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Database } from '../../src/server/database.ts';

/** Changes of several requests in one commit: each is still all or nothing, and on its own. */

let directory: string;
let database: Database;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-database-'));
  database = Database.open(directory);
});

afterEach(async () => {
  await database.close();
  rmSync(directory, { recursive: true });
});

const add = (uid: string, bytes: number) => () => {
  database.change(() => void database.usage.put(uid, (database.usage.get(uid) ?? 0) + bytes));
  return database.usage.get(uid);
};

/** Numbers the commits. */
const commits = (): number => (database.meta.getStats() as { lastTxnId: number }).lastTxnId;

test('changes of one turn run one after another and share one commit', async () => {
  const before = commits();

  const seen = await Promise.all([1, 2, 3, 4].map((bytes) => database.changeTogether(add('a', bytes))));

  expect(seen).toEqual([1, 3, 6, 10]);
  expect(database.usage.get('a')).toBe(10);
  expect(commits() - before).toBe(1);
});

test('what one throws undoes that one alone', async () => {
  const trouble = new Error('not allowed');
  const fails = () => {
    add('b', 100)();
    throw trouble;
  };

  const outcomes = await Promise.allSettled([
    database.changeTogether(add('b', 1)),
    database.changeTogether(fails),
    database.changeTogether(add('b', 2)),
  ]);

  expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
  expect(outcomes[1]).toMatchObject({ reason: trouble });
  expect(database.usage.get('b')).toBe(3);
  await expect(database.changeTogether(fails)).rejects.toBe(trouble);
  expect(database.usage.get('b')).toBe(3);
});

test('what waits when the database closes is committed; a commit that fails is told to everyone in it', async () => {
  const waiting = [1, 2].map((bytes) => database.changeTogether(add('c', bytes)));

  // Before their turn: they are committed first.
  await database.close();
  const late = await Promise.allSettled([1, 2].map((bytes) => database.changeTogether(add('c', bytes))));

  expect(await Promise.all(waiting)).toEqual([1, 3]);
  expect(late.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  database = Database.open(directory);
  expect(database.usage.get('c')).toBe(3);
});

test('on a disk without room a change is refused before LMDB writes a page, and works again when there is some', async () => {
  await database.close();
  let freeBytes: number | null = null;
  database = Database.open(directory, {
    disk: { totalBytes: Number.POSITIVE_INFINITY, freeBytes: () => freeBytes ?? Number.POSITIVE_INFINITY },
  });
  const before = commits();
  freeBytes = 100_000;

  expect(add('d', 1)).toThrow(expect.objectContaining({ name: 'StorageError', full: true }));
  const together = await Promise.allSettled([1, 2].map((bytes) => database.changeTogether(add('d', bytes))));
  expect(together.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(commits()).toBe(before);

  freeBytes = null;
  expect(add('d', 1)()).toBe(1);
});

test('a new file is made beside its place, and of others that were begun there nothing stays', async () => {
  const fresh = join(directory, 'fresh');
  mkdirSync(fresh);
  // As SIGKILL leaves it: what a later start takes for the file, it cannot open.
  for (const name of ['service.mdb.0123.new', 'service.mdb.0123.new-lock']) {
    writeFileSync(join(fresh, name), Buffer.alloc(8192));
  }

  const made = Database.open(fresh);
  made.change(() => void made.usage.put('a', 1));
  await made.close();

  expect(readdirSync(fresh).sort()).toEqual(['service.mdb', 'service.mdb-lock']);
  const again = Database.open(fresh);
  expect(again.usage.get('a')).toBe(1);
  await again.close();
});

test('a file that does not begin as one of LMDB is refused in words', () => {
  const damaged = join(directory, 'damaged');
  mkdirSync(damaged);
  writeFileSync(join(damaged, 'service.mdb'), Buffer.alloc(8192));

  expect(() => Database.open(damaged)).toThrow(
    expect.objectContaining({ name: 'StorageError', message: expect.stringContaining('is damaged') }),
  );
});

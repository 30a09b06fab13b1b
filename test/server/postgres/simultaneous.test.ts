import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ResourceId } from '../../../src/protocol/endpoints.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { titled } from '../../harness/requirement.ts';
import { type Account, type BackEnd, from, newAccount, newCredentials, outcome } from '../rules/back-end.ts';
import { openPostgresBackEnd } from '../rules/postgres-back-end.ts';
import { until } from '../until.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/**
 * Two changes at the same time: the first runs in an open transaction, the second meets its locks, then the first
 * commits. So each order of events is certain.
 */

const missing = missingPostgres();
const ALL = { type: null, start: null, max: null, order: null };

describe.skipIf(missing !== null)(titled('simultaneous changes in PostgreSQL', missing), () => {
  let server: PostgresServer;
  let backEnd: BackEnd;
  let observer: Postgres;
  let account: Account;
  /** One connection, for the open transaction. */
  let first: Postgres;

  beforeAll(async () => {
    server = await PostgresServer.start();
    const url = await server.newDatabase();
    backEnd = await openPostgresBackEnd(url, { uniqueNames: true });
    observer = await Postgres.open(url);
    first = await Postgres.open(url, { connectionsMax: 1 });
  }, 60_000);
  afterAll(async () => {
    await Promise.all([backEnd.close(), observer.close(), first.close()]);
    await server.close();
  });
  beforeEach(async () => {
    account = await newAccount(backEnd);
    await first.rows('BEGIN');
  });
  afterEach(async () => {
    await first.rows('ROLLBACK');
  });

  const isWaiting = async (): Promise<boolean> =>
    (await observer.row('SELECT FROM pg_locks WHERE NOT granted')) !== undefined;

  /** The outcome of `second`, which waits for the first change, and runs on after its commit. */
  async function afterFirst(second: Promise<unknown>): Promise<number | 'done'> {
    let isOver = false;
    const ended = outcome(second).finally(() => {
      isOver = true;
    });
    await until(async () => isOver || (await isWaiting()));
    expect(isOver, 'the second change ended before the first').toBe(false);
    await first.rows('COMMIT');
    return ended;
  }

  const newFolder = (name: string): Promise<ResourceId> =>
    backEnd.rules.repository.createFolder(account.uid, account.at('2'), name);
  const newFile = (parent: ResourceId, name: string): Promise<ResourceId> =>
    backEnd.rules.repository.createFile(account.uid, parent, name, 'text/plain');
  /** A file named `name`, with the hash that `nameHash` does not give: only equal names meet. */
  const addFirst = (parent: string, name: string, hash: string): Promise<unknown> =>
    first.rows(
      `SELECT add_entry($1, $1, $2, true, $3, $4, 'text/plain', NULL, NULL, '1', 'unique', 0)`,
      account.uid,
      parent,
      name,
      hash,
    );
  const moveFirst = (entry: ResourceId, isFile: boolean, parent: ResourceId): Promise<unknown> =>
    first.rows(
      `SELECT change_entry($1, $1, $2, $3, NULL, NULL, $1, $4, NULL, NULL, 'any')`,
      account.uid,
      entry.local,
      isFile,
      parent.local,
    );

  test('a second creation in one folder waits for the first, so that a page skips no number', async () => {
    const parent = await newFolder('p');
    await addFirst(parent.local, 'one', 'hash');
    expect(await afterFirst(newFile(parent, 'two'))).toBe('done');
    const { entries } = await backEnd.rules.repository.list(account.uid, parent, ALL);
    expect(entries.map(({ name }) => name)).toEqual(['one', 'two']);
  });

  test('creations that wait in one folder end each with its own outcome', async () => {
    const parent = await newFolder('p');
    const { nameHash } = await import('../../../src/server/repository.ts');
    await addFirst(parent.local, 'taken', nameHash('taken'));
    const names = ['a', 'taken', 'b', 'a'];
    const outcomes = Promise.all(names.map((name) => outcome(newFile(parent, name))));
    await until(isWaiting);
    await first.rows('COMMIT');
    expect(await outcomes).toEqual(['done', 409, 'done', 409]);
    const { entries } = await backEnd.rules.repository.list(account.uid, parent, ALL);
    expect(entries.map(({ name }) => name)).toEqual(['taken', 'a', 'b']);
  });

  test('creations that arrive while another server has the turn of their account share the next commit', async () => {
    const parent = await newFolder('p');
    await first.rows("SELECT take_turn($1, 'own')", account.uid);
    const early = newFile(parent, 'early');
    await until(isWaiting);
    // A group has one time.
    backEnd.clock.advance(1);
    const late = ['one', 'two', 'three'].map((name) => newFile(parent, name));
    await first.rows('COMMIT');
    await Promise.all([early, ...late]);
    const { entries } = await backEnd.rules.repository.list(account.uid, parent, ALL);
    expect(entries.map(({ name }) => name)).toEqual(['early', 'one', 'two', 'three']);
    expect(new Set(entries.map(({ createdMs }) => createdMs)).size).toBe(1);
  });

  test('a creation is held back for the callers of a group that waited for another server, and shares their commit', async () => {
    const parent = await newFolder('p');
    await first.rows('SELECT lock_account($1)', account.uid);
    await first.rows('SAVEPOINT before_turn');
    await first.rows("SELECT take_turn($1, 'own')", account.uid);
    const early = newFile(parent, 'early');
    await until(isWaiting);
    await first.rows('ROLLBACK TO before_turn');
    // The group is sent again, and has the turn.
    const isLocked = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
    await until(async () => (await observer.row(isLocked)) !== undefined);
    const late = newFile(parent, 'late');
    await first.rows('COMMIT');
    await early;
    // A group has one time.
    backEnd.clock.advance(1);
    await Promise.all([late, newFile(parent, 'again')]);
    const { entries } = await backEnd.rules.repository.list(account.uid, parent, ALL);
    const [ofEarly, ofLate, ofAgain] = entries.map(({ createdMs }) => createdMs);
    expect([ofLate, ofAgain]).toEqual([Number(ofEarly) + 1, Number(ofEarly) + 1]);
  });

  test('a group reports whether it waited for the turn of its account', async () => {
    const addOne = (postgres: Postgres, name: string): Promise<{ has_waited: boolean }> =>
      postgres.one(
        `SELECT has_waited FROM add_entries(ARRAY[$1], ARRAY[NULL], ARRAY[$1], ARRAY['2'], ARRAY[true], ARRAY[$2], ARRAY[$2],
          ARRAY['text/plain'], ARRAY[NULL], ARRAY['1'], 'any', 0, '{1000000,1000,10,16777216}', 'own', true)`,
        account.uid,
        name,
      );
    expect(await addOne(first, 'one')).toEqual({ has_waited: false });
    const second = addOne(observer, 'two');
    await until(isWaiting);
    await first.rows('COMMIT');
    expect(await second).toEqual({ has_waited: true });
  });

  const createIn = (owner: Account, name: string): Promise<unknown> =>
    backEnd.rules.repository.createFile(owner.uid, owner.at('2'), name, 'text/plain');
  /** The number of commits that created the files with this name. */
  const commitsOf = async (name: string): Promise<number> => {
    const text = 'SELECT count(DISTINCT xmin::text) AS count FROM resources WHERE name = $1';
    return (await observer.one<{ count: number }>(text, name)).count;
  };

  test('creations of several accounts at the same time share a commit', async () => {
    const others = [await newAccount(backEnd), await newAccount(backEnd)];
    await Promise.all([account, ...others].map((owner) => createIn(owner, 'joined')));
    expect(await commitsOf('joined')).toBe(1);
  });

  test('a creation in an account that is locked does not hold up those of other accounts', async () => {
    const others = [await newAccount(backEnd), await newAccount(backEnd)];
    await first.rows('SELECT lock_account($1)', account.uid);
    const waiting = createIn(account, 'beside a locked one');
    await Promise.all(others.map((owner) => createIn(owner, 'beside a locked one')));
    expect(await commitsOf('beside a locked one')).toBe(1);
    expect(await afterFirst(waiting)).toBe('done');
    expect(await commitsOf('beside a locked one')).toBe(2);
  });

  test('a refused creation does not affect those of other accounts', async () => {
    const others = [await newAccount(backEnd), await newAccount(backEnd)];
    await createIn(account, 'once');
    const outcomes = [account, ...others].map((owner) => outcome(createIn(owner, 'once')));
    expect(await Promise.all(outcomes)).toEqual([409, 'done', 'done']);
  });

  test('a statement for several accounts drops no old versions, and refuses what needs their room', async () => {
    const other = await newAccount(backEnd);
    const limits = '{1000000,1000,0,4000}';
    const file = await newFile(account.at('2'), 'file');
    const versions = 'SELECT count(*) FROM versions WHERE uid = $1';
    for (const place of [1, 2])
      await observer.rows(
        `SELECT save($1, NULL, 0, $1, $2, $3, 'x', gen_random_uuid()::text, 0, '', '', NULL, 0, '{1000000,1000,10,16777216}')`,
        account.uid,
        file.local,
        place,
      );
    const add = (turn: string): Promise<unknown> =>
      observer.rows(
        `SELECT * FROM add_entries(ARRAY[$1, $2], ARRAY[NULL, NULL], ARRAY[$1, $2], ARRAY['2', '2'], ARRAY[true, true], ARRAY['a', 'a'],
          ARRAY['a', 'a'], ARRAY['text/plain', 'text/plain'], ARRAY[NULL, NULL], ARRAY['1', '1'], 'any', 0, '${limits}', $3, false)`,
        ...[account.uid, other.uid].sort(),
        turn,
      );
    expect(await outcome(add('joined'))).toBe(413);
    expect(await observer.one(versions, account.uid)).toEqual({ count: 2 });
    expect(await outcome(add('own'))).toBe('done');
    expect(await observer.one(versions, account.uid)).toEqual({ count: 1 });
  });

  test('a second creation at the top level waits for the first', async () => {
    await first.rows(
      `SELECT add_entry($1, $1, 'folders', false, 'one', 'hash', NULL, 'sync', NULL, '1', 'any', 0)`,
      account.uid,
    );
    expect(await afterFirst(backEnd.rules.repository.createSyncFolder(account.uid, 'two'))).toBe('done');
  });

  test('a second move of folders sees the first one, and makes no loop', async () => {
    const [a, b] = [await newFolder('a'), await newFolder('b')];
    // Below them, so that the two moves lock different rows.
    const { repository } = backEnd.rules;
    const belowA = await repository.createFolder(account.uid, a, 'below a');
    const belowB = await repository.createFolder(account.uid, b, 'below b');
    await moveFirst(a, false, belowB);
    expect(await afterFirst(repository.updateFolder(account.uid, b, { parent: belowA }))).toBe(403);
  });

  test('a new name of a file that moves meanwhile leaves it where it moved', async () => {
    const [from, to] = [await newFolder('from'), await newFolder('to')];
    const file = await newFile(from, 'f');
    await moveFirst(file, true, to);
    expect(await afterFirst(backEnd.rules.repository.updateFile(account.uid, file, { name: 'g' }))).toBe('done');
    expect(await backEnd.rules.repository.file(account.uid, file)).toMatchObject({ name: 'g', parent: to.local });
  });

  test('a new name of a file that gets a link meanwhile keeps the link', async () => {
    const file = await newFile(account.at('2'), 'f');
    await first.rows(
      `SELECT change_entry($1, $1, $2, true, NULL, NULL, NULL, NULL, 'image/png', 'link', 'any')`,
      account.uid,
      file.local,
    );
    expect(await afterFirst(backEnd.rules.repository.updateFile(account.uid, file, { name: 'g' }))).toBe('done');
    const changed = { name: 'g', publicLink: 'link', mediaType: 'image/png' };
    expect(await backEnd.rules.repository.file(account.uid, file)).toMatchObject(changed);
  });

  test('a rename into a name that is taken meanwhile is refused', async () => {
    const parent = await newFolder('p');
    const file = await newFile(parent, 'old');
    const { nameHash } = await import('../../../src/server/repository.ts');
    await addFirst(parent.local, 'new', nameHash('new'));
    expect(await afterFirst(backEnd.rules.repository.updateFile(account.uid, file, { name: 'new' }))).toBe(409);
  });

  test('a creation in a folder that is deleted meanwhile is refused', async () => {
    const parent = await newFolder('p');
    await first.rows('SELECT delete_folder($1, $1, $2)', account.uid, parent.local);
    expect(await afterFirst(newFile(parent, 'f'))).toBe(404);
  });

  test('a move into a folder that is deleted meanwhile is refused', async () => {
    const parent = await newFolder('p');
    const file = await newFile(account.at('2'), 'f');
    await first.rows('SELECT delete_folder($1, $1, $2)', account.uid, parent.local);
    expect(await afterFirst(backEnd.rules.repository.updateFile(account.uid, file, { parent }))).toBe(404);
  });

  test('a version of a file that is deleted meanwhile is refused', async () => {
    const file = await newFile(account.at('2'), 'f');
    await first.rows('SELECT delete_file($1, $1, $2)', account.uid, file.local);
    expect(await afterFirst(backEnd.rules.histories.create(account.uid, file))).toBe(404);
  });

  test('a copy of a shared file that is deleted meanwhile is refused: its bytes are gone', async () => {
    const folder = await newFolder('shared');
    const file = await newFile(folder, 'f');
    await observer.rows(
      `SELECT replace_data($1, NULL, 0, $1, $2, nextval('numbers'), '1', 'blob of ' || $2, 0, NULL, NULL, 0, 'x', 'hash', NULL, 0,
        '{1000000,1000,10,16777216}')`,
      account.uid,
      file.local,
    );
    const receiver = await newAccount(backEnd);
    await backEnd.administration.share(account.email, folder.local, receiver.email, { writeAllowed: false });
    await first.rows('SELECT delete_file($1, $1, $2)', account.uid, file.local);
    const copying = backEnd.rules.repository.copyFile(receiver.uid, receiver.at('2'), file, 'copy');
    expect(await afterFirst(copying)).toBe(404);
  });

  test('a second tenth key pair is refused', async () => {
    for (let count = 0; count < 9; count += 1) await backEnd.administration.addKeyPair(account.email);
    await first.rows(`SELECT add_key_pair($1, 'tenth ' || $1, '\\x00', 10, 0)`, account.uid);
    const second = backEnd.administration.addKeyPair(account.email).then(
      () => 'added',
      () => 'refused',
    );
    await until(isWaiting);
    await first.rows('COMMIT');
    expect(await second).toBe('refused');
  });

  test('a sign-in that is under way while the user is signed out everywhere gives no token', async () => {
    const credentials = await newCredentials(backEnd, account);
    await first.rows('SELECT sign_out($1)', account.uid);
    expect(await afterFirst(backEnd.rules.accounts.createRefreshToken(credentials, from('192.0.2.1')))).toBe(401);
  });

  test('an access token for a refresh token that is ended meanwhile is refused', async () => {
    const credentials = await newCredentials(backEnd, account);
    const { secret } = await backEnd.rules.accounts.createRefreshToken(credentials, from('192.0.2.1'));
    await first.rows('SELECT sign_out($1)', account.uid);
    const asked = { ...credentials, refreshToken: '' };
    expect(await afterFirst(backEnd.rules.accounts.createAccessToken(asked, secret))).toBe(401);
  });
});

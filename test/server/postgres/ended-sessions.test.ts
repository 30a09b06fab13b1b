import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { titled } from '../../harness/requirement.ts';
import { RawClient, type RawRequest, signUp, TEST_PASSWORD, type TestUser } from '../raw-client.ts';
import { until } from '../until.ts';
import { miscounts } from './miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** A server remembers the sessions of tokens, and some rules check the token in their own statement (docs/adr/0057). */

const missing = missingPostgres();
const ORIGIN = 'http://cloud.example.com';
const PART_BYTES = 32 * 1024;

describe.skipIf(missing !== null)(titled('sessions that ended at another server', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-ended-'));
  let nowMs = Date.UTC(2026, 0, 1);
  const clock: Clock = { ...systemClock, nowMs: () => nowMs };
  let postgres: PostgresServer;
  let url: string;
  let observer: Postgres;
  /** The first has the sign-ins; the second remembers their sessions. */
  let servers: ReferenceServer[];
  let accounts = 0;
  let user: TestUser;
  let client: RawClient;
  let file: string;
  let other: TestUser;

  const open = (nth: number): Promise<ReferenceServer> =>
    ReferenceServer.open({
      dataDirectory: join(directory, `${nth}`),
      clock,
      publicOrigin: ORIGIN,
      objects: new DirectoryStore(join(directory, 'objects')),
      database: { url, partBytes: PART_BYTES },
    });
  const at = (nth: number): { origin: string; administration: ReferenceServer['administration'] } => ({
    origin: `http://127.0.0.1:${servers[nth]?.port}`,
    administration: (servers[nth] as ReferenceServer).administration,
  });
  const pathOf = (location: string): string => new URL(location).pathname;
  const newAccount = (): Promise<TestUser> => {
    accounts += 1;
    return signUp(at(0) as ReferenceServer, `user${accounts}@example.com`);
  };

  /** A new account, whose session the second server remembers. */
  const useSecond = async (): Promise<void> => {
    user = await newAccount();
    client = new RawClient(at(1).origin, user.client.token);
    file = pathOf(await client.createFile(top(), 'file'));
    expect((await send(save(file, 'data'))).status).toBe(204);
  };

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
    servers = [await open(0), await open(1)];
    observer = await Postgres.open(url, { connectionsMax: 1 });
    other = await newAccount();
  }, 60_000);

  beforeEach(useSecond);

  afterAll(async () => {
    try {
      await Promise.all([observer.close(), ...servers.map((server) => server.close())]);
      expect(await miscounts(url)).toEqual([]);
    } finally {
      await postgres.close();
      rmSync(directory, { recursive: true });
    }
  });

  const ENDS: Readonly<Record<string, () => Promise<unknown>>> = {
    'a sign-out of all devices': () => at(0).administration.revokeTokens(user.email),
    'a new password': () => at(0).administration.setPassword(user.email, `new ${TEST_PASSWORD}`),
    'the removal of the user': () => at(0).administration.removeUser(user.email),
    'its time': async () => {
      nowMs += 61 * 60_000;
    },
  };
  const top = (): string => `/folder/:sc:${user.uid}:2`;
  const post = (folder: string, body: string): Request => ({ method: 'POST', path: folder, body });
  const save = (path: string, body: string | Uint8Array, headers = {}): Request => ({
    ...{ method: 'PUT', path: `${path}/data`, body, headers },
  });
  const REQUESTS: Readonly<Record<string, () => Request>> = {
    'a new file': () => post(top(), '<file><displayName>new</displayName><mediaType></mediaType></file>'),
    'a new folder': () => post(top(), '<folder><displayName>new</displayName></folder>'),
    'a copy': () => post(top(), `<fileCopy source="${ORIGIN}${file}"><displayName>new</displayName></fileCopy>`),
    'a file in a folder that does not exist': () =>
      post(`/folder/:sc:${user.uid}:77_78`, '<file><displayName>new</displayName><mediaType></mediaType></file>'),
    'a file in a folder of another account': () =>
      post(`/folder/:sc:${other.uid}:2`, '<file><displayName>new</displayName><mediaType></mediaType></file>'),
    'a name that is too long': () => post(top(), `<folder><displayName>${'x'.repeat(100_000)}</displayName></folder>`),
    'a document that is malformed': () => post(top(), '<file'),
    'few bytes': () => save(file, 'new'),
    'no bytes': () => save(file, ''),
    'bytes of one part': () => save(file, Buffer.alloc(PART_BYTES - 1)),
    'bytes of several parts': () => save(file, Buffer.alloc(3 * PART_BYTES)),
    'bytes of unknown length': () => save(file, 'new', { 'Transfer-Encoding': 'chunked' }),
    'more bytes than the quota': () => save(file, 'new', { 'Content-Length': `${2 ** 50}` }),
    'the rest of a file': () => save(file, 'new', { Range: 'bytes=1-' }),
    'a file that does not exist': () => save(`/file/:sc:${user.uid}:77_78`, 'new'),
    'a file of another account': () => save(`/file/:sc:${other.uid}:77_78`, 'new'),
  };
  const send = ({ method, path, ...options }: Request) => client.send(method, path, options);
  const counts = () =>
    observer.one(
      `SELECT (SELECT count(*) FROM resources WHERE uid = $1) AS entries, (SELECT count(*) FROM objects) AS objects,
        (SELECT array_agg(version ORDER BY version) FROM versions WHERE uid = $1) AS versions`,
      user.uid,
    );
  const stored = (): number => readdirSync(join(directory, 'objects'), { recursive: true }).length;

  test.each(Object.keys(REQUESTS))(
    '%s with a session that the server remembers is refused without effect',
    async (name) => {
      for (const [way, end] of Object.entries(ENDS)) {
        const request = (REQUESTS[name] as () => Request)();
        await end();
        const before = [await counts(), stored()];
        const answer = await send(request);
        expect([way, answer.status]).toEqual([way, 401]);
        expect(answer.text).toContain('Authorization required');
        expect([await counts(), stored()]).toEqual(before);
        // The next one is checked before its rule.
        expect((await send(request)).status).toBe(401);
        await useSecond();
      }
    },
  );

  test.each([
    ['POST', top],
    ['PUT', () => `${file}/data`],
  ])(
    'a sender that waits for a 100 before the body of its %s gets the 401 of an ended session instead',
    async (method, path) => {
      const { port } = servers[1] as ReferenceServer;
      const answer = async (): Promise<string> => {
        const socket = connect(port, '127.0.0.1');
        let text = '';
        socket.on('data', (data) => {
          text += data.toString();
        });
        const head = `${method} ${path()} HTTP/1.1\r\nHost: x\r\nAuthorization: ${client.token}\r\nContent-Length: 4\r\n`;
        socket.write(`${head}Expect: 100-continue\r\n\r\n`);
        await until(() => text !== '');
        socket.destroy();
        return text.slice(0, 'HTTP/1.1 100'.length);
      };
      expect(await answer()).toBe('HTTP/1.1 100');
      await at(0).administration.revokeTokens(user.email);
      expect(await answer()).toBe('HTTP/1.1 401');
    },
  );

  test.each(['a new file', 'a copy'])(
    '%s that waits for its account while the session ends is refused',
    async (name) => {
      const before = await counts();
      await observer.rows('BEGIN');
      await observer.rows('SELECT lock_account($1)', user.uid);
      const answer = send((REQUESTS[name] as () => Request)());
      const isWaiting = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
      await until(async () => (await observer.row(isWaiting)) !== undefined);
      await observer.rows('SELECT sign_out($1)', user.uid);
      await observer.rows('COMMIT');
      expect((await answer).status).toBe(401);
      expect(await counts()).toEqual(before);
    },
  );
});

interface Request extends RawRequest {
  readonly method: string;
  readonly path: string;
}

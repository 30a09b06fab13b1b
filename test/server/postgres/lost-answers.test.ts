import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { titled } from '../../harness/requirement.ts';
import { type RawAnswer, type RawClient, signUp, type TestUser, texts } from '../raw-client.ts';
import { until } from '../until.ts';
import { DatabaseProxy } from './database-proxy.ts';
import { miscounts } from './miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/**
 * The connection to the database ends before a change is made, or after its commit. The server answers 503 in both cases. A
 * client that looks, and repeats what is missing, gets every change once.
 */

const missing = missingPostgres();
const ORIGIN = 'http://cloud.example.com';
const PART_BYTES = 32 * 1024;
const LOSSES = ['request', 'answer'] as const;

describe.skipIf(missing !== null)(titled('lost answers of the database', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-lost-'));
  let postgres: PostgresServer;
  let url: string;
  let proxy: DatabaseProxy;
  let server: ReferenceServer;
  let user: TestUser;
  let accounts = 0;

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
    const carried = await DatabaseProxy.start(url);
    proxy = carried.proxy;
    server = await ReferenceServer.open({
      dataDirectory: directory,
      publicOrigin: ORIGIN,
      objects: new DirectoryStore(join(directory, 'objects')),
      database: { url: carried.url, partBytes: PART_BYTES, leaseMs: 500 },
    });
  }, 60_000);

  afterAll(async () => {
    try {
      await server.close();
      expect(await miscounts(url)).toEqual([]);
    } finally {
      await proxy.close();
      await postgres.close();
      rmSync(directory, { recursive: true });
    }
  });

  beforeEach(async () => {
    accounts += 1;
    const origin = `http://127.0.0.1:${server.port}`;
    user = await signUp(
      { origin, administration: server.administration } as ReferenceServer,
      `user${accounts}@example.com`,
    );
  });

  const client = (): RawClient => user.client;
  const pathOf = (location: string | undefined): string => new URL(location ?? '').pathname;
  const top = (): string => `/folder/:sc:${user.uid}:2`;
  const newFile = async (): Promise<string> => pathOf(await client().createFile(top(), 'file'));
  const names = async (): Promise<string[]> => texts((await client().get(`${top()}/contents`)).text, 'displayName');
  const history = async (file: string): Promise<string[]> =>
    texts((await client().get(`${file}/version`)).text, 'presentOnServer');
  const put = (version: string, data: Uint8Array, offset: number): Promise<RawAnswer> =>
    client().send('PUT', `${version}/data`, { body: data.subarray(offset), headers: { Range: `bytes=${offset}-` } });
  const bytes = (count: number, seed: number): Buffer => Buffer.alloc(count, `bytes ${seed} `);

  /** The status of an action that meets the loss. */
  async function losing(
    what: (typeof LOSSES)[number],
    text: string,
    action: () => Promise<RawAnswer>,
  ): Promise<number> {
    proxy.lose(what, text);
    const { status } = await action();
    expect(proxy.hasLost, `no statement with ${text}`).toBe(true);
    return status;
  }

  describe.each(LOSSES)('the %s is lost:', (what) => {
    const isMade = what === 'answer';

    test('a creation is made once or not at all', async () => {
      const body = '<file><displayName>created</displayName><mediaType></mediaType></file>';
      expect(await losing(what, 'add_entries', () => client().send('POST', top(), { body }))).toBe(503);
      expect(await names()).toEqual(isMade ? ['created'] : []);
    });

    test('a copy is made once or not at all', async () => {
      const file = await newFile();
      await client().send('PUT', `${file}/data`, { body: bytes(2 * PART_BYTES, 1) });
      const body = `<fileCopy source="${ORIGIN}${file}"><displayName>copy</displayName></fileCopy>`;
      expect(await losing(what, 'copy_file', () => client().send('POST', top(), { body }))).toBe(503);
      expect(await names()).toEqual(isMade ? ['file', 'copy'] : ['file']);
    });

    test('a new name is given or not, and can be given again', async () => {
      const file = await newFile();
      const rename = () => client().send('PUT', file, { body: '<file><displayName>renamed</displayName></file>' });
      expect(await losing(what, 'change_entry', rename)).toBe(503);
      expect(await names()).toEqual([isMade ? 'renamed' : 'file']);
      expect((await rename()).status).toBe(200);
      expect(await names()).toEqual(['renamed']);
    });

    test('a deletion is made or not, and its repetition deletes nothing else', async () => {
      const [file, other] = [await newFile(), await newFile()];
      await client().send('PUT', `${other}/data`, { body: bytes(10, 1) });
      expect(await losing(what, 'delete_file', () => client().send('DELETE', file))).toBe(503);
      expect((await client().send('DELETE', file)).status).toBe(isMade ? 404 : 204);
      expect((await client().get(`${other}/data`)).text).toHaveLength(10);
    });

    test('a version is begun once or not at all', async () => {
      const file = await newFile();
      expect(await losing(what, 'begin_version', () => client().send('POST', `${file}/version`))).toBe(503);
      expect(await history(file)).toHaveLength(isMade ? 1 : 0);
    });

    test.each(['take_upload', 'add_part', 'finish_upload'])('an upload goes on after %s', async (rule) => {
      const file = await newFile();
      const version = pathOf((await client().send('POST', `${file}/version`)).headers.location);
      const data = bytes(2 * PART_BYTES + 100, 2);
      expect(await losing(what, rule, () => put(version, data, 0))).toBe(503);

      const seen = async (): Promise<RawAnswer> => client().get(version);
      const isComplete = async (): Promise<boolean> => texts((await seen()).text, 'presentOnServer')[0] === 'true';
      expect(await isComplete()).toBe(isMade && rule === 'finish_upload');
      if (!(await isComplete()))
        await until(
          async () => (await put(version, data, Number(texts((await seen()).text, 'storedSize')[0]))).status === 200,
        );
      expect((await client().get(`${file}/data`)).bytes.equals(data)).toBe(true);
      expect(await history(file)).toEqual(['true']);
    });

    test.each([
      ['few bytes', 100],
      ['a part', PART_BYTES],
      ['several parts', 3 * PART_BYTES],
    ])('an upload of %s in one step is whole or not there, and its repetition is the content', async (_, size) => {
      const file = await newFile();
      const [first, second] = [bytes(size, 3), bytes(size, 4)];
      const rule = size > PART_BYTES ? 'finish_upload' : size < PART_BYTES ? 'save_all' : 'replace_data';
      const send = (body: Buffer) => client().send('PUT', `${file}/data`, { body });
      expect(await losing(what, rule, () => send(first))).toBe(503);
      const seen = await client().get(`${file}/data`);
      expect(isMade ? seen.bytes.equals(first) : seen.status === 404).toBe(true);

      expect((await send(second)).status).toBe(204);
      expect((await client().get(`${file}/data`)).bytes.equals(second)).toBe(true);
      expect(await history(file)).toEqual(isMade ? ['true', 'true'] : ['true']);
    });
  });
});

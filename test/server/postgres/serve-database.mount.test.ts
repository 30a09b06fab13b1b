import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort } from '../../../src/base/free-port.ts';
import { titled } from '../../harness/requirement.ts';
import { appAuthorization, RawClient, texts } from '../raw-client.ts';
import { until } from '../until.ts';
import { miscounts } from './miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** `cfs serve --database` from outside, as the built program: three processes of one installation. */

const PROGRAM = fileURLToPath(new URL('../../../dist/cli/cfs.js', import.meta.url));
const ORIGIN = 'http://cloud.example.com';
const PART_BYTES = 16 * 1024 * 1024;
const missing = missingPostgres();

describe.skipIf(missing !== null)(titled('cfs serve --database', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-database-'));
  let postgres: PostgresServer;
  let url: string;
  const running = new Set<ChildProcess>();

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    url = await postgres.newDatabase();
  }, 60_000);

  afterAll(async () => {
    for (const child of running) child.kill('SIGKILL');
    await postgres.close();
    rmSync(directory, { recursive: true });
  });

  const env = { PATH: process.env.PATH, HOME: directory };
  const run = (args: readonly string[], more: Record<string, string> = {}): Promise<{ out: string; err: string }> =>
    new Promise((resolve) => {
      const options = { timeout: 30_000, env: { ...env, ...more } };
      execFile(process.execPath, [PROGRAM, 'serve', ...args], options, (_, out, err) => resolve({ out, err }));
    });

  async function start(): Promise<{ child: ChildProcess; origin: string }> {
    const port = await freePort();
    const args = ['--database', url, '--objects', `file://${directory}/objects`, '--public-origin', ORIGIN];
    const own = ['--data', join(directory, `server ${port}`), '--listen', `127.0.0.1:${port}`, '--ready-fd', '3'];
    const child = spawn(process.execPath, [PROGRAM, 'serve', ...args, ...own], {
      stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
      env,
    });
    running.add(child);
    child.once('exit', () => running.delete(child));
    await once(createInterface(child.stdio[3] as NodeJS.ReadableStream), 'line');
    return { child, origin: `http://127.0.0.1:${port}` };
  }

  test('a killed server loses at most a part of an upload, and keeps the others away until its lease ends', async () => {
    const servers = await Promise.all([start(), start(), start()]);
    const [first, second, third] = servers as [Running, Running, Running];
    const added = await run(['user', 'add', '--database', url, 'a@example.com'], { CFS_PASSWORD: 'correct horse' });
    const values = Object.fromEntries(added.out.split('\n').map((line) => line.split(/=(.*)/s).slice(0, 2)));
    expect(values.CFS_URL).toBe(ORIGIN);
    const keys = { accessKeyId: values.CFS_ACCESS_KEY_ID, privateAccessKey: values.CFS_PRIVATE_ACCESS_KEY };
    const signIn = { email: 'a@example.com', password: 'correct horse', application: values.CFS_APPLICATION, ...keys };
    const refresh = await new RawClient(first.origin).send('POST', '/app-authorization', {
      body: appAuthorization(signIn as never),
    });
    const access = await new RawClient(second.origin).send('POST', '/authorization', {
      body:
        `<tokenAuthRequest><accessKeyId>${keys.accessKeyId}</accessKeyId>` +
        `<privateAccessKey>${keys.privateAccessKey}</privateAccessKey>` +
        `<refreshToken>${refresh.headers.location}</refreshToken></tokenAuthRequest>`,
    });
    const token = access.headers.location as string;
    const at = ({ origin }: Running): RawClient => new RawClient(origin, token);
    const pathOf = (location: string | undefined): string => new URL(location ?? '').pathname;
    const [, uid] = /\/user\/(\d+)/.exec((await at(third).get('/user')).text) ?? [];
    const file = pathOf(await at(second).createFile(`/folder/:sc:${uid}:2`, 'file'));
    const version = pathOf((await at(third).send('POST', `${file}/version`)).headers.location);
    const data = Buffer.alloc(2 * PART_BYTES + 1000, 'abcdefg');
    const stored = async (): Promise<number> => Number(texts((await at(third).get(version)).text, 'storedSize')[0]);

    const sending = at(first)
      .send('PUT', `${version}/data`, {
        body: data.subarray(0, data.byteLength - 1),
        headers: { 'Content-Length': String(data.byteLength) },
      })
      .catch((error: unknown) => error);
    await until(async () => (await stored()) === PART_BYTES, 60_000);
    first.child.kill('SIGKILL');
    await sending;
    const taken = await at(second).send('PUT', `${version}/data`, {
      body: data.subarray(PART_BYTES),
      headers: { Range: `bytes=${PART_BYTES}-` },
    });
    expect([taken.status, await stored()]).toEqual([416, PART_BYTES]);
    expect((await at(second).send('PUT', `${file}/data`, { body: data })).status).toBe(204);
    expect((await at(third).get(`${file}/data`)).bytes.equals(data)).toBe(true);
    expect(await miscounts(url)).toEqual([]);
  }, 60_000);

  test('a password on the command line, and a server without objects or a public origin, are refused', async () => {
    const withPassword = await run(['--database', 'postgres://cfs:secret@127.0.0.1/cfs']);
    expect(withPassword.err).toContain('PGPASSWORD');
    expect(withPassword.err).not.toContain('secret');
    expect((await run(['--database', url])).err).toContain('--objects');
    expect((await run(['--database', url, '--objects', `file://${directory}/objects`])).err).toContain(
      '--public-origin',
    );
    expect((await run(['--objects', `file://${directory}/objects`])).err).toContain('--database');
  });
});

interface Running {
  readonly child: ChildProcess;
  readonly origin: string;
}

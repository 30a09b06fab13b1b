import { request } from 'node:http';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { pathsOf } from '../../src/config/paths.ts';
import type { BytesActions, PageActions } from '../../src/web/page-call.ts';
import { IDLE_MS_MAX, PageServer } from '../../src/web/page-server.ts';
import { CommandHome } from '../cli/cli-harness.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

/** The server of the page, for requests of a browser, of a foreign page and of another user of the machine. */

const POLICY_PARTS = [
  "default-src 'none'",
  "script-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
];

let home: CommandHome;
let server: PageServer;
let clock: ManualClock;
const called: unknown[] = [];

beforeEach(async () => {
  called.length = 0;
  home = new CommandHome();
  clock = new ManualClock();
  const actions = {
    pause: async (params: unknown) => {
      called.push(params);
      return { said: 'paused', isDone: true };
    },
    resume: async () => {
      throw new UsageError('no mount is running');
    },
  } as unknown as PageActions;
  const bytes = {
    content: async (_params: unknown, send: (type: string, chunks: AsyncIterable<Uint8Array>) => Promise<void>) =>
      send('application/octet-stream', chunksOf('<script>alert(1)</script>')),
    version: async (_params: unknown, send: (type: string, chunks: AsyncIterable<Uint8Array>) => Promise<void>) =>
      send('application/octet-stream', failing()),
  } as unknown as BytesActions;
  const files = new Map([['/', { type: 'text/html; charset=utf-8', bytes: Buffer.from('<p>the page') }]]);
  const deps = { paths: pathsOf(home.env), clock, actions, bytes, files };
  server = await PageServer.listen(deps, { port: 0, hosts: ['Desk.example:81'] });
});

afterEach(async () => {
  await server.close();
  home.dispose();
});

async function* chunksOf(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

async function* failing(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('half');
  throw new Error('the connection broke');
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

function ask(
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body?: string,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request({ host: '127.0.0.1', port: server.port, method, path, headers }, (response) => {
      let text = '';
      response.on('data', (chunk) => {
        text += chunk;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
      response.on('error', reject);
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

const own = (): Record<string, string> => ({ host: `127.0.0.1:${server.port}`, origin: server.origin });

async function signedIn(): Promise<Record<string, string>> {
  const code = server.newCode(() => {});
  const { text } = await ask('POST', '/session', own(), JSON.stringify({ code }));
  return { ...own(), authorization: `Bearer ${(JSON.parse(text) as { token: string }).token}` };
}

/** [S-web-2] */
test('every answer has the policy, and files come from a fixed map', async () => {
  const page = await ask('GET', '/', own());
  expect(page).toMatchObject({ status: 200, text: '<p>the page' });
  for (const part of POLICY_PARTS) expect(page.headers['content-security-policy']).toContain(part);
  expect(page.headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' });
  for (const path of [
    '/../package.json',
    '/page/../../cli/cfs.js',
    '/%2e%2e/package.json',
    '//etc/passwd',
    '/index.html',
  ])
    expect(await ask('GET', path, own()), path).toMatchObject({ status: 404 });
});

/** [S-web-2] */
test.each(['evil.example', 'evil.example:80', '127.0.0.1', '127.0.0.1:1'])(
  'a request under the name "%s" is refused with the remedy',
  async (host) => {
    const { status, text } = await ask('GET', '/', { host });
    expect(status).toBe(421);
    expect(text).toContain(`cfs web --port ${server.port} --host NAME`);
  },
);

test('the names localhost and those of --host are served', async () => {
  for (const host of [`localhost:${server.port}`, 'desk.EXAMPLE:81'])
    expect((await ask('GET', '/', { host })).status).toBe(200);
});

/** [S-web-2] */
test.each(['https://evil.example', 'null', 'http://127.0.0.1:1', 'http://localhost'])(
  'a request from the origin %s is refused, also with the token',
  async (origin) => {
    const headers = { ...(await signedIn()), origin };
    const { status, text } = await ask('POST', '/call/pause', headers, JSON.stringify({ account: 'a', forMs: null }));
    expect(status).toBe(403);
    expect(text).toContain('are refused');
    expect(called).toEqual([]);
  },
);

/** [S-web-2] */
test('nothing is done without the token, and a code gives it to one browser only', async () => {
  const body = JSON.stringify({ account: 'a', forMs: null });
  const used: string[] = [];
  const code = server.newCode(() => used.push('used'));
  for (const authorization of ['', 'Bearer ', 'Bearer wrong', `Bearer ${code}`, `Basic ${code}`])
    for (const path of ['/call/pause', '/bytes/content', '/live'])
      expect(await ask('POST', path, { ...own(), authorization }, body)).toMatchObject({ status: 401 });
  expect(called).toEqual([]);
  expect(await ask('POST', '/session', own(), JSON.stringify({ code: `${code}x` }))).toMatchObject({ status: 401 });
  const first = await ask('POST', '/session', own(), JSON.stringify({ code }));
  expect(first.status).toBe(200);
  expect(used).toEqual(['used']);
  const second = await ask('POST', '/session', own(), JSON.stringify({ code }));
  expect(second).toMatchObject({ status: 401, text: expect.stringContaining('cfs web --open') });
  const { token } = JSON.parse(first.text) as { token: string };
  expect(Buffer.from(token, 'base64url')).toHaveLength(24);
  await ask('POST', '/call/pause', { ...own(), authorization: `Bearer ${token}` }, body);
  expect(called).toEqual([{ account: 'a', forMs: null }]);
});

test('a request without Origin does nothing, even with the token', async () => {
  const { origin: _, ...headers } = await signedIn();
  const answer = await ask('POST', '/call/pause', headers as Record<string, string>, '{"account":"a"}');
  expect(answer.status).toBe(403);
  expect(called).toEqual([]);
});

test('a failure is a sentence, and wrong calls are refused', async () => {
  const headers = await signedIn();
  const failed = await ask('POST', '/call/resume', headers, '{"account":"a"}');
  expect(failed).toMatchObject({ status: 422, text: JSON.stringify({ error: 'no mount is running' }) });
  for (const body of [
    '{}',
    '{"account":1}',
    '{"account":"a\\u0000b","forMs":null}',
    '{"account":"a","forMs":"1"}',
    'null',
  ])
    expect(await ask('POST', '/call/pause', headers, body), body).toMatchObject({ status: 400 });
  for (const [path, body] of [
    ['/call/pause', 'no JSON'],
    ['/call/pause', `"${'x'.repeat(70_000)}"`],
  ] as const)
    expect(await ask('POST', path, headers, body)).toMatchObject({ status: 422 });
  for (const path of ['/call/constructor', '/call/toString', '/bytes/pause', '/call/', '/nothing'])
    expect(await ask('POST', path, headers, '{}'), path).toMatchObject({ status: 404 });
  expect(called).toEqual([]);
});

/** [S-web-2] */
test('bytes of a file are an attachment of a type that no browser interprets', async () => {
  const answer = await ask('POST', '/bytes/content', await signedIn(), '{"account":"a","path":"x.html"}');
  expect(answer.headers).toMatchObject({
    'content-type': 'application/octet-stream',
    'content-disposition': 'attachment',
    'x-content-type-options': 'nosniff',
  });
});

test('bytes that break off are no complete answer', async () => {
  const body = '{"account":"a","path":"x","version":"v"}';
  await expect(ask('POST', '/bytes/version', await signedIn(), body)).rejects.toThrow();
});

/** [S-web-2] */
test('the page ends when no browser has shown it for 15 minutes', async () => {
  clock.advance(IDLE_MS_MAX - 1);
  expect(server.idle.aborted).toBe(false);
  clock.advance(2);
  expect(server.idle.aborted).toBe(true);
});

test('a taken port is named', async () => {
  const deps = {
    paths: pathsOf(home.env),
    clock,
    actions: {} as PageActions,
    bytes: {} as BytesActions,
    files: new Map(),
  };
  await expect(PageServer.listen(deps, { port: server.port, hosts: [] })).rejects.toThrow('choose another --port');
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { FaultPlan, type FaultRule } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { accessToken, RawClient, signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** Trouble that is ordered has to come exactly as ordered: tests of the client stand on it (docs/service.md 11). */

const directory = mkdtempSync(join(tmpdir(), 'cfs-faults-'));
let server: ReferenceServer;
let user: TestUser;
let file: string;

/** What the server waited for, in milliseconds. */
const waited: number[] = [];
const clock: Clock = {
  ...systemClock,
  sleep: (ms, signal) => {
    waited.push(ms);
    return systemClock.sleep(ms, signal);
  },
};

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory, clock });
  user = await signUp(server, 'a@example.com');
  file = await user.client.createFilled(user.folder('2'), 'data', '0123456789');
});

afterEach(() => {
  server.faults = [];
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

test('a rule hits the requests it names, counted from when it was set', () => {
  const plan = new FaultPlan([
    { on: 'PUT', nth: 2, times: 2, then: { status: 503 } },
    { on: '*', path: 'folderContents', times: 'always', then: { delayMs: 5 } },
    { on: 'GET', path: '^/file/.*7/data', then: { hang: true } },
  ]);

  const puts = [1, 2, 3, 4].map(() => plan.next('PUT', '/file/x', 'file'));

  expect(puts).toEqual([{}, { status: 503 }, { status: 503 }, {}]);
  expect(plan.next('GET', '/folder/:sc:1:2/contents', 'folderContents')).toEqual({ delayMs: 5 });
  expect(plan.next('GET', '/file/:sc:1:6/data', 'fileData')).toEqual({});
  expect(plan.next('GET', '/file/:sc:1:7/data', 'fileData')).toEqual({ hang: true });
});

test('a rule that says nothing known is refused', () => {
  expect(() => new FaultPlan([{ on: 'GET', then: { delay: 5 } } as unknown as FaultRule])).toThrow(
    /unknown fault delay/,
  );
  expect(() => new FaultPlan([{ on: 'GET', nht: 5, then: {} } as unknown as FaultRule])).toThrow(/unknown key nht/);
  expect(() => new FaultPlan([{ on: 'GET', then: { status: '503' } } as unknown as FaultRule])).toThrow(/status/);
  expect(() => new FaultPlan([{ on: 'PUT', then: { actButNeverAnswer: 'hng' } } as unknown as FaultRule])).toThrow(
    /boolean or hang/,
  );
  expect(() => new FaultPlan([{ on: 'GET', path: 'fileDatas', then: {} }])).toThrow(/no kind of endpoint fileDatas/);
  expect(() => new FaultPlan([{ on: 'GET', nth: 0, then: {} }])).toThrow(/nth/);
  expect(() => new FaultPlan([{ on: 'GET', times: 'ever', then: {} } as unknown as FaultRule])).toThrow(/times/);
});

test('a status comes with its page and Retry-After, and nothing is done', async () => {
  server.faults = [{ on: 'DELETE', then: { status: 503, retryAfterSeconds: 7 } }];

  const { status, headers, text } = await user.client.send('DELETE', file);

  expect([status, headers['retry-after']]).toEqual([503, '7']);
  expect(text).toContain('<h3>');
  expect((await user.client.get(file)).status).toBe(200);
});

test('lost before: the line ends and nothing was done; lost after: it was done', async () => {
  const folder = await user.client.createFolder(user.folder('2'), 'lost');
  server.faults = [
    { on: 'POST', then: { hangUpBefore: true } },
    { on: 'POST', nth: 2, then: { actButNeverAnswer: true } },
  ];

  await expect(user.client.createFile(folder, 'before')).rejects.toThrow();
  await expect(user.client.createFile(folder, 'after')).rejects.toThrow();

  expect(texts((await user.client.get(`${folder}/contents`)).text, 'displayName')).toEqual(['after']);
});

test('a download is cut after exactly so many bytes', async () => {
  server.faults = [{ on: 'GET', path: 'fileData', then: { hangUpAfterBytes: 4 } }];
  const before = server.requests.bytesOut;

  await expect(user.client.get(`${file}/data`)).rejects.toThrow();

  await until(() => server.requests.bytesOut === before + 4);
});

test('a body is cut in its middle, or before its last byte; one that is empty is not', async () => {
  server.faults = [
    { on: 'GET', path: 'fileData', then: { hangUpAfterBytes: 'half' } },
    { on: 'GET', path: 'fileData', nth: 2, then: { hangUpAfterBytes: 'allButOne' } },
    { on: 'POST', path: 'fileVersions', times: 'always', then: { hangUpAfterBytes: 'allButOne' } },
  ];
  const before = server.requests.bytesOut;

  await expect(user.client.get(`${file}/data`)).rejects.toThrow();
  await until(() => server.requests.bytesOut === before + 5);
  await expect(user.client.get(`${file}/data`)).rejects.toThrow();
  await until(() => server.requests.bytesOut === before + 5 + 9);
  expect((await user.client.send('POST', `${file}/version`)).status).toBe(201);
});

test('an answer that is cut in its head was done, and says nothing', async () => {
  const folder = await user.client.createFolder(user.folder('2'), 'cut in the head');
  server.faults = [{ on: 'POST', then: { hangUpInHead: true } }];

  await expect(user.client.createFile(folder, 'done')).rejects.toThrow();

  expect(texts((await user.client.get(`${folder}/contents`)).text, 'displayName')).toEqual(['done']);
});

test('an upload is cut after exactly so many bytes', async () => {
  const target = await user.client.createFile(user.folder('2'), 'cut');
  const version = (await user.client.send('POST', `${target}/version`)).headers.location as string;
  server.faults = [{ on: 'PUT', path: 'fileVersionData', then: { hangUpAfterBytes: 4 } }];

  await expect(user.client.send('PUT', `${version}/data`, { body: '0123456789' })).rejects.toThrow();

  await until(async () => texts((await user.client.get(version)).text, 'storedSize')[0] === '4');
});

test('a plain upload that is stopped leaves the file as it was', async () => {
  server.faults = [{ on: 'PUT', path: 'fileData', then: { acceptBytes: 4 } }];

  const { status } = await user.client.send('PUT', `${file}/data`, { body: 'something else' });

  expect(status).toBe(500);
  expect((await user.client.get(`${file}/data`)).text).toBe('0123456789');
});

test('a status in the middle of a body: what came of a version is kept, of a plain upload nothing', async () => {
  const target = await user.client.createFile(user.folder('2'), 'refused');
  const version = (await user.client.send('POST', `${target}/version`)).headers.location as string;
  server.faults = [{ on: 'PUT', times: 2, then: { acceptBytes: 4, status: 503, retryAfterSeconds: 7 } }];

  const { status, headers } = await user.client.send('PUT', `${version}/data`, { body: '0123456789' });
  const plain = await user.client.send('PUT', `${file}/data`, { body: 'something else' });

  expect([status, headers['retry-after'], plain.status]).toEqual([503, '7', 503]);
  expect(texts((await user.client.get(version)).text, 'storedSize')).toEqual(['4']);
  expect((await user.client.get(`${file}/data`)).text).toBe('0123456789');
});

test('ranges can be ignored or lied about', async () => {
  const range = { Range: 'bytes=2-4' };
  server.faults = [
    { on: 'GET', path: 'fileData', then: { ignoreRange: true } },
    { on: 'GET', path: 'fileData', nth: 2, then: { wrongContentRange: true } },
  ];

  const ignored = await user.client.get(`${file}/data`, range);
  const wrong = await user.client.get(`${file}/data`, range);

  expect([ignored.status, ignored.text]).toEqual([200, '0123456789']);
  expect([wrong.status, wrong.text, wrong.headers['content-range']]).toEqual([206, '234', 'bytes 3-5/10']);
});

test('a stale listing is the one that was told before', async () => {
  const folder = await user.client.createFolder(user.folder('2'), 'stale');
  server.faults = [{ on: 'GET', path: 'folderContents', nth: 2, then: { staleListing: true } }];
  const names = async () => texts((await user.client.get(`${folder}/contents`)).text, 'displayName');

  const before = await names();
  await user.client.createFile(folder, 'new');
  const stale = await names();
  const after = await names();

  expect([before, stale, after]).toEqual([[], [], ['new']]);
});

test('an expired token stays expired, another one of the same refresh token is good', async () => {
  const other = await signUp(server, 'expired@example.com');
  server.faults = [{ on: 'GET', path: 'user', then: { expireToken: true } }];

  const first = await other.client.get('/user');
  const second = await other.client.get('/user');
  other.client.token = await accessToken(server.origin, other, other.refreshToken);
  const third = await other.client.get('/user');

  expect([first.status, second.status, third.status]).toEqual([401, 401, 200]);
});

test('a delay is waited for first, and a slow line in both directions', async () => {
  const target = await user.client.createFile(user.folder('2'), 'slow');
  waited.length = 0;
  server.faults = [
    { on: 'GET', path: 'file', then: { delayMs: 7 } },
    { on: '*', path: 'fileData', times: 'always', then: { bandwidthBytesPerSecond: 1000 } },
  ];

  await user.client.get(target);
  const afterDelay = [...waited];
  await user.client.send('PUT', `${target}/data`, { body: '0123456789' });
  const afterUpload = waited.slice(afterDelay.length);
  const { text } = await user.client.get(`${target}/data`);

  expect(afterDelay).toEqual([7]);
  expect(afterUpload).toEqual([10]);
  expect(waited.slice(2)).toEqual([10]);
  expect(text).toBe('0123456789');
});

test('silence: with nothing done, or with everything done', async () => {
  const own = mkdtempSync(join(tmpdir(), 'cfs-silent-'));
  const silent = await ReferenceServer.open({ dataDirectory: own });
  const other = await signUp(silent, 'a@example.com');
  const [one, two] = [
    await other.client.createFilled(other.folder('2'), 'one', 'before'),
    await other.client.createFilled(other.folder('2'), 'two', 'before'),
  ];
  silent.faults = [
    { on: 'PUT', path: `${one.split(':').at(-1)}/data`, then: { hang: true } },
    { on: 'PUT', path: `${two.split(':').at(-1)}/data`, then: { actButNeverAnswer: 'hang' } },
  ];
  const ended: string[] = [];
  const puts = [one, two].map((file) =>
    new RawClient(silent.origin, other.client.token).send('PUT', `${file}/data`, { body: 'after' }).then(
      () => ended.push('answered'),
      () => ended.push('cut'),
    ),
  );

  await until(async () => (await other.client.get(`${two}/data`)).text === 'after');

  expect((await other.client.get(`${one}/data`)).text).toBe('before');
  expect(ended).toEqual([]);
  await silent.close({ graceMs: 1 });
  await Promise.all(puts);
  expect(ended).toEqual(['cut', 'cut']);
  rmSync(own, { recursive: true });
});

test('garbage is a page with status 200', async () => {
  server.faults = [{ on: 'GET', then: { garbage: true } }];

  const { status, headers, text } = await user.client.get(`${user.folder('2')}/contents`);

  expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=UTF-8']);
  expect(text).not.toContain('collectionContents');
});

test('requests are counted with their bytes', async () => {
  server.requests.clear();

  await user.client.send('PUT', `${file}/data`, { body: '0123456789' });
  await user.client.get(`${file}/data`, { Range: 'bytes=0-3' });

  await until(() => server.requests.total === 2);
  expect(server.requests.count({ method: 'PUT', kind: 'fileData', status: 204 })).toBe(1);
  expect(server.requests.filter({ method: 'GET' }).map(({ bytesOut }) => bytesOut)).toEqual([4]);
  expect([server.requests.bytesIn, server.requests.bytesOut]).toEqual([10, 4]);
});

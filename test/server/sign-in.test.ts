import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Clock } from '../../src/base/clock.ts';
import { systemClock } from '../../src/base/clock.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import {
  appAuthorization,
  RawClient,
  signUp,
  TEST_PASSWORD,
  type TestUser,
  texts,
  tokenAuthRequest,
} from './raw-client.ts';
import { until } from './until.ts';

/** The two token endpoints (docs/service.md 3). */

const directory = mkdtempSync(join(tmpdir(), 'cfs-sign-in-'));
let elapsedMs = 1;
const clock: Clock = { ...systemClock, elapsedMs: () => elapsedMs };
let server: ReferenceServer;
let user: TestUser;
let anonymous: RawClient;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory, clock });
  user = await signUp(server, 'a@example.com');
  anonymous = new RawClient(server.origin);
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const request = (
  fields: Partial<{
    email: string;
    password: string;
    application: string;
    accessKeyId: string;
    privateAccessKey: string;
  }>,
) =>
  anonymous.send('POST', '/app-authorization', {
    body: appAuthorization({ ...user, password: TEST_PASSWORD, ...fields }),
  });

test('the answer to a sign-in is a location and nothing else', async () => {
  const { status, headers, bytes } = await request({});

  expect(status).toBe(201);
  expect(headers.location).toMatch(new RegExp(`^${server.origin}/app-authorization/[\\w-]{43}$`));
  expect(bytes.byteLength).toBe(0);
});

test('an access token comes with its expiration and its user', async () => {
  const { status, headers, text } = await anonymous.send('POST', '/authorization', {
    body: tokenAuthRequest(user, user.refreshToken),
    headers: { 'Content-Type': 'text/xml' },
  });

  expect(status).toBe(201);
  expect(headers.location).toMatch(new RegExp(`^${server.origin}/authorization/`));
  expect(texts(text, 'user')).toEqual([`${server.origin}/user/${user.uid}`]);
  expect(texts(text, 'expiration')[0]).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d$/);
});

test('the older form with a password gives a token, too', async () => {
  const body =
    `<authRequest><username>a@example.com</username><password>${TEST_PASSWORD}</password>` +
    `<accessKeyId>${user.accessKeyId}</accessKeyId><privateAccessKey>${user.privateAccessKey}</privateAccessKey></authRequest>`;
  const { status, headers } = await anonymous.send('POST', '/authorization', { body });

  expect(status).toBe(201);
  expect((await new RawClient(server.origin, headers.location as string).get('/user')).status).toBe(200);
});

test('whatever is wrong, the answer is the same 401', async () => {
  const wrong = [
    await request({ email: 'nobody@example.com' }),
    await request({ application: '/sc/1/2_3' }),
    await request({ accessKeyId: 'X' }),
    await request({ privateAccessKey: 'X' }),
    await request({ application: 'x'.repeat(5000) }),
    await anonymous.send('POST', '/authorization', { body: tokenAuthRequest(user, `${user.refreshToken}x`) }),
    await anonymous.send('POST', '/authorization', {
      body: tokenAuthRequest(user, 'http://elsewhere.example/app-authorization/x'),
    }),
    await request({ password: 'wrong' }),
  ];

  expect(wrong.map(({ status }) => status)).toEqual(wrong.map(() => 401));
  expect(new Set(wrong.map(({ text }) => text)).size).toBe(1);
});

test('what is missing is 400', async () => {
  const { status, text } = await anonymous.send('POST', '/app-authorization', {
    body: '<appAuthorization><password>x</password></appAuthorization>',
  });

  expect(status).toBe(400);
  expect(text).toContain('<h3>Missing mandatory element</h3>');
});

test('wrong passwords cost longer and longer pauses, for the right one as well, and only for that user', async () => {
  const other = await signUp(server, 'calm@example.com');
  for (let round = 0; round < 5; round++) await request({ email: 'pressed@example.com', password: 'wrong' });
  const pressed = await request({ email: 'pressed@example.com', password: TEST_PASSWORD });
  const calm = await request({ email: other.email });
  elapsedMs += 1001;
  const again = await request({ email: 'pressed@example.com', password: 'wrong' });
  const longer = await request({ email: 'pressed@example.com', password: 'wrong' });

  expect([pressed.status, calm.status, again.status, longer.status]).toEqual([503, 201, 401, 503]);
  expect(pressed.headers['retry-after']).toBe('1');
  expect(longer.headers['retry-after']).toBe('2');
});

test('wrong passwords that come together are no more free than one after the other', async () => {
  const { email } = await signUp(server, 'hurried@example.com');

  const together = await Promise.all(Array.from({ length: 50 }, () => request({ email, password: 'wrong' })));
  const right = await request({ email });
  elapsedMs += 1001;
  const later = await request({ email });

  expect(together.filter(({ status }) => status === 401)).toHaveLength(5);
  expect(together.filter(({ status }) => status === 503)).toHaveLength(45);
  expect([right.status, later.status]).toEqual([503, 201]);
});

test('right passwords that come together do not wait for a pause', async () => {
  const { email } = await signUp(server, 'busy@example.com');

  const together = await Promise.all(Array.from({ length: 20 }, () => request({ email })));

  expect(new Set(together.map(({ status }) => status))).toEqual(new Set([201]));
});

test('password guessing for many users does not delay data requests', async () => {
  const { client, folder } = await signUp(server, 'reader@example.com');
  const data = Buffer.alloc(100_000, 'x');
  const file = await client.createFilled(folder('2'), 'f', data);
  const before = server.bytesArrived;
  let answered = 0;
  const guesses = Array.from({ length: 24 }, async (_, nth) => {
    await request({ email: `${nth}@example.com`, password: 'wrong' });
    answered++;
  });
  await until(() => server.bytesArrived - before > guesses.length * 300);

  const { bytes } = await client.get(`${file}/data`);
  const answeredMeanwhile = answered;
  await Promise.all(guesses);

  expect(bytes.equals(data)).toBe(true);
  // Each takes a processor's while: all of them are not waited for by whoever reads a file.
  expect(answeredMeanwhile).toBeLessThan(guesses.length / 2);
});

test('a developer account has at most ten key pairs', async () => {
  const { administration } = server;
  for (let count = 1; count < 10; count++) await administration.addKeyPair('a@example.com');

  await expect(administration.addKeyPair('a@example.com')).rejects.toThrow(/10 key pairs/);
});

test('no secret stands in the data', () => {
  const data = readdirSync(directory).filter((name) => name.startsWith('service.mdb'));
  const secrets = [
    TEST_PASSWORD,
    user.privateAccessKey,
    user.refreshToken.split('/').at(-1),
    user.client.token?.split('/').at(-1),
  ];

  expect(data.length).toBeGreaterThan(0);
  for (const name of data) {
    const bytes = readFileSync(join(directory, name));
    expect(bytes.includes(user.accessKeyId)).toBe(name === 'service.mdb');
    for (const secret of secrets) expect(bytes.includes(secret as string)).toBe(false);
  }
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { networkOf, TrustedProxies } from '../../src/server/remote-address.ts';
import { Turns } from '../../src/server/turns.ts';
import { appAuthorization, RawClient, signUp, TEST_PASSWORD, type TestUser } from './raw-client.ts';

/** Guessing passwords from many networks, and signing in beside it. */

const directory = mkdtempSync(join(tmpdir(), 'cfs-guessing-'));
const elapsedMs = 1;
const clock: Clock = { ...systemClock, elapsedMs: () => elapsedMs };
let server: ReferenceServer;
let user: TestUser;
let other: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory, clock, trustedProxies: ['127.0.0.0/8'] });
  user = await signUp(server, 'a@example.com');
  other = await signUp(server, 'b@example.com');
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** A sign-in from a network, through the proxy. @returns the status */
async function signIn(from: string, fields: Partial<TestUser & { password: string }>): Promise<number> {
  const { status } = await new RawClient(server.origin).send('POST', '/app-authorization', {
    body: appAuthorization({ ...user, password: TEST_PASSWORD, ...fields }),
    headers: { 'X-Forwarded-For': `203.0.113.99, ${from}` },
  });
  return status;
}

const statuses = (count: number, attempt: (nth: number) => Promise<number>) =>
  Array.from({ length: count }).reduce<Promise<number[]>>(
    async (before, _, nth) => [...(await before), await attempt(nth)],
    Promise.resolve([]),
  );

test('networks are counted apart behind a trusted proxy', async () => {
  const email = 'nobody@example.com';
  const guesses = await statuses(6, () => signIn('198.51.100.1', { email, password: 'wrong' }));

  expect(guesses).toEqual([401, 401, 401, 401, 401, 503]);
  expect(await signIn('198.51.100.2', { email, password: 'wrong' })).toBe(401);
});

test('guesses from many networks count together; the own key pair and a known network are not held up', async () => {
  const foreign = { accessKeyId: other.accessKeyId, privateAccessKey: other.privateAccessKey };
  expect(await signIn('192.0.2.1', foreign)).toBe(201);

  const guesses = await statuses(32, (nth) => signIn(`198.51.100.${10 + nth}`, { ...foreign, password: 'wrong' }));

  expect(guesses.slice(0, 30)).toEqual(Array.from({ length: 30 }, () => 401));
  expect(guesses.slice(30)).toEqual([503, 503]);
  // The right password from a new network, without the own keys: held up.
  expect(await signIn('198.51.100.200', foreign)).toBe(503);
  expect(await signIn('192.0.2.1', foreign)).toBe(201);
  expect(await signIn('198.51.100.201', {})).toBe(201);
});

test('a right password with wrong keys counts as wrong, and resets nothing: both answers are the same', async () => {
  const email = other.email;
  const wrong = () => signIn('198.51.100.3', { email, password: 'wrong' });
  const rightButKeys = () => signIn('198.51.100.3', { email, accessKeyId: 'X' });

  const [before, half] = [await statuses(4, wrong), await rightButKeys()];

  expect([...before, half]).toEqual([401, 401, 401, 401, 401]);
  expect(await wrong()).toBe(503);
});

test('a known network stays known over a restart', async () => {
  await server.close();
  server = await ReferenceServer.open({ dataDirectory: directory, clock, trustedProxies: ['127.0.0.0/8'] });
  const foreign = { accessKeyId: other.accessKeyId, privateAccessKey: other.privateAccessKey };
  await statuses(30, (nth) => signIn(`198.51.100.${10 + nth}`, { ...foreign, password: 'wrong' }));

  expect(await signIn('198.51.100.220', foreign)).toBe(503);
  expect(await signIn('192.0.2.1', foreign)).toBe(201);
});

describe('Turns', () => {
  test('a party with many requests does not delay another, and gone ones are skipped', async () => {
    const turns = new Turns({ atOnceMax: 1, waitingMax: 100 });
    const order: string[] = [];
    let begin = (): void => {};
    const first = turns.inTurn(
      () =>
        new Promise<void>((resolve) => {
          begin = resolve;
        }),
    );
    const add = (party: string, name: string, isGone = () => false) =>
      turns.inTurn(async () => void order.push(name), { party, isGone }).catch(() => {});
    const all = [
      ...Array.from({ length: 20 }, (_, nth) => add('crowd', `crowd ${nth}`)),
      add('gone', 'gone', () => true),
      add('one', 'one'),
    ];
    begin();
    await Promise.all([first, ...all]);

    expect(order.indexOf('one')).toBe(1);
    expect(order).not.toContain('gone');
    expect(order).toHaveLength(21);
  });

  test('a full queue refuses the longest party, and a party has a limit of its own', async () => {
    const turns = new Turns({ atOnceMax: 1, waitingMax: 4, perPartyMax: 3 });
    let begin = (): void => {};
    const first = turns.inTurn(
      () =>
        new Promise<void>((resolve) => {
          begin = resolve;
        }),
    );
    const add = (party: string) =>
      turns
        .inTurn(async () => 'done', { party, isGone: () => false })
        .catch(({ status }: { status: number }) => status);
    const all = [add('a'), add('a'), add('a'), add('a'), add('b'), add('c')];
    begin();

    expect(await Promise.all(all)).toEqual(['done', 'done', 503, 503, 'done', 'done']);
    await first;
  });
});

test.each([
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:0db8:0001:0002::1', '2001:db8:1:2::/64'],
  ['::1', '0:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['', ''],
])('the network of %s is %s', (address, network) => {
  expect(networkOf(address)).toBe(network);
});

test.each([
  ['10.0.0.1', '198.51.100.1', '198.51.100.1'],
  ['10.0.0.1', '1.2.3.4, 198.51.100.1, 10.0.0.2', '198.51.100.1'],
  ['10.0.0.1', '[2001:db8::1]:443', '2001:db8:0:0::/64'],
  ['10.0.0.1', '198.51.100.1:5000', '198.51.100.1'],
  ['10.0.0.1', undefined, '10.0.0.1'],
  ['::ffff:10.0.0.1', '198.51.100.1', '198.51.100.1'],
  ['203.0.113.1', '198.51.100.1', '203.0.113.1'],
])('of %s with X-Forwarded-For %s the client is %s', (remoteAddress, forwarded, network) => {
  const proxies = new TrustedProxies(['10.0.0.0/24', '::1']);
  const request = { socket: { remoteAddress }, headers: { 'x-forwarded-for': forwarded } };

  expect(proxies.clientNetwork(request as never)).toBe(network);
  expect(() => new TrustedProxies(['proxy.example.com'])).toThrow('not an address');
});

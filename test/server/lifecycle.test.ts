import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { checkBlobs, truncatePartialUploads } from '../../src/server/housekeeping.ts';
import { openAdministration, openParts } from '../../src/server/local-back-end.ts';
import { PortTakenError, ReferenceServer } from '../../src/server/reference-server.ts';
import { RawClient, signUp, texts } from './raw-client.ts';
import { until } from './until.ts';

/** Starting, stopping, and what is left behind (docs/service.md 1 and 10). */

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-lifecycle-'));
});

afterEach(() => {
  rmSync(directory, { recursive: true });
});

const open = (options: Partial<Parameters<typeof ReferenceServer.open>[0]> = {}) =>
  ReferenceServer.open({ dataDirectory: directory, ...options });

const blobs = () =>
  readdirSync(join(directory, 'blobs'), { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());

/** Makes any data too long to lie in the database. */
const PAD = '.'.repeat(20_000);

test('a server comes back where it was, with everything it had', async () => {
  const first = await open();
  const user = await signUp(first, 'a@example.com');
  const file = await user.client.createFilled(user.folder('2'), 'kept', 'data');
  await first.close();

  const second = await open();
  expect(second.origin).toBe(first.origin);
  expect((await user.client.get(`${file}/data`)).text).toBe('data');
  await second.close();
});

test('other users of the machine can read no file, whatever the directory that was there lets them', async () => {
  chmodSync(directory, 0o755);
  const modes = () =>
    readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => (statSync(join(parentPath, name)).mode & 0o777).toString(8));
  const server = await open();
  const user = await signUp(server, 'a@example.com');
  await user.client.createFilled(user.folder('2'), 'large', PAD);
  const asMade = modes();
  await server.close();
  // As earlier versions left them.
  for (const name of ['service.mdb', 'service.mdb-lock']) chmodSync(join(directory, name), 0o644);

  const again = await open();

  expect(asMade).toEqual(['600', '600', '600']);
  expect(modes()).toEqual(asMade);
  await again.close();
});

test('a port that another program has is said so, in one sentence and with an exit code of its own', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await until(() => other.listening);
  const { port } = other.address() as AddressInfo;

  const failure = await open({ listen: { port } }).catch((error: unknown) => error);

  expect(failure).toBeInstanceOf(PortTakenError);
  expect(failure).toMatchObject({ exitCode: 12, message: expect.stringContaining(String(port)) });
  other.close();
});

test('two servers do not share a directory, administration does', async () => {
  const server = await open();
  await expect(open({ listen: { port: 0 } })).rejects.toThrow('another server runs on');

  const beside = await openAdministration({ dataDirectory: directory });
  await beside.administration.addUser('beside@example.com', 'pw', { scryptCost: 1024 });
  await beside.close();

  expect((await server.administration.users()).map(({ email }) => email)).toEqual(['beside@example.com']);
  await server.close();
});

test('plain HTTP does not leave the machine by accident', async () => {
  await expect(open({ listen: { host: '0.0.0.0' } })).rejects.toThrow('can be overheard');
});

test('TLS is spoken with a certificate, and URLs say so', async () => {
  const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'];
  const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1'];
  execFileSync('openssl', [...args, '-keyout', key, '-out', cert, ...subject], { stdio: 'ignore' });
  const certificate = readFileSync(cert, 'utf8');
  const server = await open({ tls: { certificate, key: readFileSync(key, 'utf8') } });

  const status = await new Promise((resolve, reject) => {
    httpsRequest(`${server.origin}/user`, { ca: certificate }, (response) => resolve(response.statusCode))
      .on('error', reject)
      .end();
  });

  expect(server.origin).toMatch(/^https:/);
  expect(status).toBe(401);
  await server.close();
});

test('a start collects what a crash left without a row an hour ago or earlier, and keeps the rest', async () => {
  const first = await open({ accessTokenMs: 24 * 3600_000 });
  const user = await signUp(first, 'a@example.com');
  const file = await user.client.createFilled(user.folder('2'), 'kept', `data${PAD}`);
  await first.close();
  mkdirSync(join(directory, 'blobs', 'ff'), { recursive: true });
  writeFileSync(join(directory, 'blobs', 'ff', 'ff00'), 'left behind');

  const later = { ...systemClock, nowMs: () => systemClock.nowMs() + 2 * 3600_000 };
  const second = await open({ clock: later });

  expect(blobs()).toHaveLength(1);
  expect((await user.client.get(`${file}/data`)).text).toBe(`data${PAD}`);
  await second.close();
});

test('an upload that nobody went on with is forgotten after a week', async () => {
  let nowMs = Date.now();
  let round = (): void => {};
  const clock: Clock = {
    ...systemClock,
    nowMs: () => nowMs,
    after: (ms, callback) => {
      if (ms >= 60_000) round = callback;
      return () => {};
    },
  };
  const server = await open({ clock, accessTokenMs: 30 * 24 * 3600_000 });
  const user = await signUp(server, 'a@example.com');
  const file = await user.client.createFilled(user.folder('2'), 'f', 'whole');
  const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
  await expect(user.client.send('PUT', `${version}/data`, { body: '0123456789', cutAfter: 5 })).rejects.toThrow();
  await until(
    async () => (await user.client.get(version)).text.includes('<storedSize>5<') && server.uploadsUnderWay === 0,
  );

  nowMs += 6 * 24 * 3600_000;
  round();
  expect((await user.client.get(version)).status).toBe(200);
  nowMs += 2 * 24 * 3600_000;
  round();

  await until(() => blobs().length === 0);
  expect((await user.client.get(version)).status).toBe(404);
  expect((await user.client.get(`${file}/data`)).text).toBe('whole');
  await server.close();
});

test('after a start of the machine a partial upload is believed as far as it was synced', async () => {
  const server = await open();
  const user = await signUp(server, 'a@example.com');
  const file = await user.client.createFile(user.folder('2'), 'f');
  const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
  await expect(user.client.send('PUT', `${version}/data`, { body: '0123456789', cutAfter: 5 })).rejects.toThrow();
  await until(
    async () => (await user.client.get(version)).text.includes('<storedSize>5<') && server.uploadsUnderWay === 0,
  );
  await server.close();
  const [blob] = blobs();
  // What a power cut may leave: a file that is longer than what was synced, with anything in it.
  appendFileSync(join(blob?.parentPath as string, blob?.name as string), Buffer.alloc(1000));

  const parts = openParts({ dataDirectory: directory });
  await truncatePartialUploads(parts, 'another start of the machine');
  await parts.database.close();

  const again = await open();
  expect(texts((await user.client.get(version)).text, 'storedSize')).toEqual(['5']);
  await again.close();
});

test('the check finds what is missing, too short, or not what was sent', async () => {
  const server = await open();
  const user = await signUp(server, 'a@example.com');
  for (const data of ['good', 'missing!', 'short', 'changed']) {
    await user.client.createFilled(user.folder('2'), data, data + PAD);
  }
  await server.close();
  for (const { parentPath, name } of blobs()) {
    const path = join(parentPath, name);
    const data = readFileSync(path, 'utf8');
    if (data.startsWith('missing')) rmSync(path);
    if (data.startsWith('short')) writeFileSync(path, 'short');
    if (data.startsWith('changed')) writeFileSync(path, data.replace('c', 'C'));
  }

  const parts = openParts({ dataDirectory: directory });
  const { damage, versions } = await checkBlobs(parts);
  await parts.database.close();

  expect(versions).toBe(4);
  expect(damage.map(({ what }) => what).sort()).toEqual([
    'it has 5 bytes instead of 20005',
    'its data are missing',
    'its data are not those that were sent',
  ]);
});

test('damage is an error, never data', async () => {
  const server = await open();
  const user = await signUp(server, 'a@example.com');
  const file = await user.client.createFilled(user.folder('2'), 'f', `whole${PAD}`);
  const [blob] = blobs();
  writeFileSync(join(blob?.parentPath as string, blob?.name as string), 'whole');

  expect((await user.client.get(`${file}/data`)).status).toBe(500);
  await server.close();
});

test('what is too long, or no HTTP at all, is refused', async () => {
  const server = await open();
  const user = await signUp(server, 'a@example.com');

  const long = await user.client.send('POST', user.folder('2'), {
    body: `<folder><displayName>${'x'.repeat(300_000)}</displayName></folder>`,
  });
  const name = await user.client.send('POST', user.folder('2'), {
    body: `<folder><displayName>${'x'.repeat(17_000)}</displayName></folder>`,
  });
  const headers = await new RawClient(server.origin).get('/user', { 'X-Long': 'x'.repeat(40_000) });
  const socket = connect(server.port, '127.0.0.1');
  socket.write('this is not HTTP\r\n\r\n');
  const said = await new Promise<string>((resolve) => void socket.on('data', (data) => resolve(data.toString())));

  expect([long.status, name.status, headers.status]).toEqual([400, 400, 431]);
  expect(said).toMatch(/^HTTP\/1\.1 400 /);
  expect(said).toContain('\r\nAccess-Control-Allow-Origin: *\r\n');
  socket.destroy();
  await server.close();
});

/** Sends a request, and what is no HTTP once the server has it (and `isDue`). @returns all that came until the end of the line */
async function garbageBehind(
  server: ReferenceServer,
  request: string,
  isDue: (came: readonly Buffer[]) => boolean,
): Promise<Buffer> {
  const socket = connect(server.port, '127.0.0.1').on('error', () => {});
  const came: Buffer[] = [];
  // Nobody reads on: an answer that is long enough stays under way.
  socket.on('data', (data: Buffer) => void (came.push(data) === 1 && socket.pause()));
  const ended = new Promise((resolve) => void socket.on('close', resolve));
  const before = server.bytesArrived;
  socket.write(request);
  await until(() => server.bytesArrived >= before + request.length && isDue(came));
  socket.write('this is not HTTP\r\n\r\n');
  await until(() => server.bytesArrived > before + request.length);
  socket.resume();
  await ended;
  return Buffer.concat(came);
}

test('what is said about a bad request is no part of the answer before it', async () => {
  const server = await open();
  const { client, folder } = await signUp(server, 'a@example.com');
  // More than a line holds.
  const data = Buffer.alloc(24 * 1024 * 1024, 'data ');
  const file = await client.createFilled(folder('2'), 'large', data);
  await until(() => server.connections === 0);

  const head = `HTTP/1.1\r\nHost: x\r\nAuthorization: ${client.token}\r\n\r\n`;
  const answer = await garbageBehind(server, `GET ${new URL(file).pathname}/data ${head}`, (came) => came.length > 0);

  const body = answer.subarray(answer.indexOf('\r\n\r\n') + 4);
  expect(answer.subarray(0, 12).toString()).toBe('HTTP/1.1 200');
  expect(body.equals(data.subarray(0, body.byteLength))).toBe(true);
  await server.close();
});

test('what is said about a bad request is no answer to the one before it', async () => {
  const server = await open({ faults: [{ on: 'DELETE', then: { hang: true } }] });

  const answer = await garbageBehind(server, 'DELETE /user HTTP/1.1\r\nHost: x\r\n\r\n', () => true);

  expect(answer.toString()).toBe('');
  await server.close();
});

test('closing ends requests that hang, after the grace they are given', async () => {
  const server = await open({ faults: [{ on: 'GET', then: { hang: true } }] });
  const hanging = new RawClient(server.origin).get('/user').catch((error: Error) => error);
  await until(() => server.connections === 1);

  await server.close({ graceMs: 50 });

  expect(await hanging).toBeInstanceOf(Error);
});

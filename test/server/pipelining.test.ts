import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Line } from '../../src/server/lines.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** Pipelined requests: one connection does not occupy the server. */

let directory: string;
let server: ReferenceServer;
let user: TestUser;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-pipelining-'));
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'a@example.com');
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

const head = (path: string, more = '') =>
  `GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: ${user.client.token}\r\n${more}\r\n`;

test('the requests of one packet are answered in order, and other connections in between', async () => {
  const count = 300;
  const folder = new URL(user.folder('2')).pathname;
  const paths = Array.from({ length: count }, (_, at) => (at % 3 === 2 ? '/nowhere' : `${folder}/contents`));
  const socket = connect(server.port, '127.0.0.1');
  await once(socket, 'connect');
  let said = '';
  socket.on('data', (bytes) => {
    said += bytes.toString();
  });
  const statuses = () => [...said.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));

  socket.write(paths.map((path) => head(path)).join(''));
  await until(() => server.waiting > 0);
  const waiting = server.waiting;
  const meanwhile = await user.client.get('/user');
  const done = server.requests.count({ kind: 'folderContents' }) + server.requests.count({ status: 404 });
  await until(() => statuses().length === count);
  socket.destroy();

  expect(meanwhile.status).toBe(200);
  expect(done).toBeLessThan(count);
  expect(waiting).toBeLessThan(count);
  expect(statuses()).toEqual(paths.map((path) => (path === '/nowhere' ? 404 : 200)));
  expect(server.waiting).toBe(0);
});

test('over TLS, too; an account that opens hundreds of connections one after the other has only the open ones', async () => {
  const [key, certificate] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
  const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  execFileSync('openssl', [...made, '-subj', '/CN=localhost', '-keyout', key, '-out', certificate], {
    stdio: 'ignore',
  });
  const tls = { key: readFileSync(key, 'utf8'), certificate: readFileSync(certificate, 'utf8') };
  const secure = await ReferenceServer.open({ dataDirectory: join(directory, 'tls'), tls, connectionsMax: 8 });
  try {
    const { userId } = await secure.administration.addUser('a@example.com', 'password', { scryptCost: 2 ** 10 });
    const keys = await secure.administration.addKeyPair('a@example.com');
    const body =
      `<authRequest><username>a@example.com</username><password>password</password><accessKeyId>${keys.accessKeyId}` +
      `</accessKeyId><privateAccessKey>${keys.privateAccessKey}</privateAccessKey></authRequest>`;
    const post = `POST /authorization HTTP/1.1\r\nHost: x\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    const [signIn] = await answers(secure.port, post, 1);
    const token = /Location: (\S+)/i.exec(signIn as string)?.[1];
    const get = `GET /user/${userId} HTTP/1.1\r\nHost: x\r\nAuthorization: ${token}\r\n\r\n`;

    for (let nth = 0; nth < 6; nth += 1) {
      expect((await answers(secure.port, get, 1))[0]).toMatch(/^HTTP\/1.1 200 /);
      await until(() => secure.connections === 0);
    }
    const many = answers(secure.port, get.repeat(300), 300, () => secure.waiting);
    expect(await many).toEqual(Array.from({ length: 300 }, () => expect.stringMatching(/^HTTP\/1.1 200 /)));
    expect(mostWaiting).toBeGreaterThan(0);
  } finally {
    await secure.close();
  }
});

let mostWaiting = 0;

/** The answers to `bytes` on a TLS connection of its own. */
async function answers(port: number, bytes: string, count: number, waiting = () => 0): Promise<string[]> {
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
  let said = '';
  socket
    .on('error', () => {})
    .on('data', (data) => {
      said += data.toString();
      mostWaiting = Math.max(mostWaiting, waiting());
    });
  await once(socket, 'secureConnect');
  socket.write(bytes);
  const found = () => said.split(/(?=HTTP\/1\.1 \d{3} )/).filter((text) => text !== '');
  await until(() => found().length === count);
  socket.destroy();
  return found();
}

test('a connection whose answers are not read gets no further: little waits, and the rest is not read', async () => {
  for (let at = 0; at < 20; at += 1) await user.client.createFolder(user.folder('2'), 'n'.repeat(10_000));
  const path = `${new URL(user.folder('2')).pathname}/contents`;
  const socket = connect(server.port, '127.0.0.1');
  await once(socket, 'connect');
  socket.pause();
  const before = server.requests.count({ kind: 'folderContents' });

  socket.write(head(path).repeat(3000));
  await until(() => server.waiting > 0);
  let last = -1;
  await until(async () => {
    const now = server.requests.count({ kind: 'folderContents' });
    const stands = now === last;
    last = now;
    await user.client.get('/user');
    return stands;
  });

  expect(last - before).toBeLessThan(1000);
  expect(server.waiting).toBeLessThan(2000);
  socket.destroy();
  await until(() => server.waiting === 0 && server.connections === 0);
});

test('beyond 2,000 waiting requests a connection refuses, and its close lets all of them go', async () => {
  const line = new Line(new Socket(), '', { count: 0 });
  expect(line.begin()).toBeNull();
  const turns = Array.from({ length: 2002 }, () => line.begin());
  const outcomes: boolean[] = [];
  for (const turn of turns) void turn?.then((may) => outcomes.push(may));

  for (let at = 0; at < 2002; at += 1) {
    line.end();
    await turns[at];
  }

  expect(outcomes.filter((may) => may)).toHaveLength(2000);
  const again = [line.begin(), line.begin()];
  line.closed();
  expect(await Promise.all(again)).toEqual([false, false]);
});

test('a page has at most 1,000 entries and some MiB of names, whatever is asked for', async () => {
  const small = await ReferenceServer.open({ dataDirectory: join(directory, 'small'), pageMax: 3 });
  const other = await signUp(small, 'b@example.com');
  for (const name of ['a', 'b', 'c', 'd']) await other.client.createFile(other.folder('2'), name);
  const file = await other.client.createFile(other.folder('2'), 'e');
  for (let at = 0; at < 4; at += 1) await other.client.send('POST', `${file}/version`);
  const pages = [
    await other.client.get(`${other.folder('2')}/contents?max=1000000`),
    await other.client.get(`${file}/version?max=1000000`),
    await other.client.get(`/user/${other.uid}/folders/contents`),
  ];
  await small.close();
  expect(pages.map(({ text }) => [texts(text, 'ref').length, text.includes('hasMore="true"')])).toEqual(
    pages.map(() => [3, true]),
  );

  for (let at = 0; at < 30; at += 1) await user.client.createFolder(user.folder('2'), 'n'.repeat(16_000));
  for (const order of ['', '&order=name']) {
    const { text } = await user.client.get(`${user.folder('2')}/contents?max=1000${order}`);
    expect(texts(text, 'ref').length).toBeLessThan(20);
    expect(text).toContain('hasMore="true"');
    const rest = await user.client.get(`${user.folder('2')}/contents?start=${texts(text, 'ref').length}${order}`);
    expect(texts(text, 'ref').length + texts(rest.text, 'ref').length).toBe(30);
  }
});

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import type { ReferenceServerOptions } from '../../src/server/server-options.ts';
import { signUp, texts } from './raw-client.ts';
import { until } from './until.ts';

/** What one line may cost the server, and how many there may be. */

let directory: string;
let server: ReferenceServer;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-lines-'));
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

async function open(options: Partial<ReferenceServerOptions>): Promise<void> {
  server = await ReferenceServer.open({ dataDirectory: directory, ...options });
}

/** A line, and all that came on it until its end. */
async function line(): Promise<{ socket: Socket; ended: Promise<string> }> {
  const socket = connect(server.port, '127.0.0.1');
  let said = '';
  socket.on('data', (bytes) => {
    said += bytes.toString();
  });
  // A line that is ended while something of it is on its way is reset: that ends it, too. `once` would reject then.
  socket.on('error', () => {});
  const ended = new Promise<string>((resolve) => socket.on('close', () => resolve(said)));
  await once(socket, 'connect');
  return { socket, ended };
}

const REQUEST = 'GET /user HTTP/1.1\r\nHost: x\r\n\r\n';

test('beyond the limit a new line takes the place of the oldest without a token, never of a signed-in one', async () => {
  await open({ connectionsMax: 4 });
  const { client } = await signUp(server, 'a@example.com');
  const signedIn = await line();
  signedIn.socket.write(REQUEST.replace('\r\n\r\n', `\r\nAuthorization: ${client.token}\r\n\r\n`));
  expect(String(await once(signedIn.socket, 'data'))).toMatch(/^HTTP\/1.1 200 /);
  await until(() => server.connections === 1);

  const [first, second] = [await line(), await line()];
  expect(await first.ended).toBe('');

  second.socket.write(REQUEST);
  expect(String(await once(second.socket, 'data'))).toMatch(/^HTTP\/1.1 401 /);
  signedIn.socket.write(REQUEST.replace('\r\n\r\n', `\r\nAuthorization: ${client.token}\r\n\r\n`));
  expect(String(await once(signedIn.socket, 'data'))).toMatch(/^HTTP\/1.1 200 /);
  signedIn.socket.destroy();
  second.socket.destroy();
});

test('an account has at most a quarter of the lines; its further ones get 503', async () => {
  await open({ connectionsMax: 8 });
  const { client } = await signUp(server, 'a@example.com');
  const other = await signUp(server, 'b@example.com');
  await until(() => server.connections === 0);
  const request = REQUEST.replace('\r\n\r\n', `\r\nAuthorization: ${client.token}\r\n\r\n`);
  const answers: string[] = [];
  const sockets: Socket[] = [];
  for (let nth = 0; nth < 3; nth += 1) {
    const { socket } = await line();
    socket.write(request);
    answers.push(String(await once(socket, 'data')).slice(0, 12));
    sockets.push(socket);
  }

  expect(answers).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 503']);
  expect((await other.client.get('/user')).status).toBe(200);
  for (const socket of sockets) socket.destroy();
});

test('four accounts can use up all connections: a further one is closed', async () => {
  await open({ connectionsMax: 4 });
  const users = [];
  for (const name of ['a', 'b', 'c', 'd']) users.push(await signUp(server, `${name}@example.com`));
  await until(() => server.connections === 0);
  const held: Socket[] = [];
  for (const { client } of users) {
    const { socket } = await line();
    socket.write(REQUEST.replace('\r\n\r\n', `\r\nAuthorization: ${client.token}\r\n\r\n`));
    expect(String(await once(socket, 'data'))).toMatch(/^HTTP\/1.1 200 /);
    held.push(socket);
  }

  expect(await (await line()).ended).toBe('');
  expect(server.connections).toBe(4);
  for (const socket of held) socket.destroy();
});

test('a line on which nothing moves is ended, and what came of an upload is kept', async () => {
  await open({ silenceMaxMs: 1500 });
  const { client, folder } = await signUp(server, 'a@example.com');
  const file = await client.createFile(folder('2'), 'f');
  const version = (await client.send('POST', `${file}/version`)).headers.location as string;
  const head = [
    `PUT ${version.slice(server.origin.length)}/data HTTP/1.1`,
    'Host: x',
    `Authorization: ${client.token}`,
    'Content-Length: 10',
    '',
    '',
  ];

  const [silent, stopped] = [await line(), await line()];
  stopped.socket.write(`${head.join('\r\n')}01234`);

  expect(await silent.ended).toBe('');
  expect(await stopped.ended).toBe('');
  await until(() => server.connections === 0 && server.uploadsUnderWay === 0);
  expect(texts((await client.get(version)).text, 'storedSize')).toEqual(['5']);
});

test('a slow line that moves is left alone, however long it takes', async () => {
  // Long beside what a busy machine may keep this process from its next piece.
  const silenceMaxMs = 1500;
  await open({ silenceMaxMs });
  const { socket, ended } = await line();
  const startedMs = performance.now();

  for (const character of REQUEST.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')) {
    socket.write(character);
    // Slow is what is tested: each piece comes well within the limit, all of them together far beyond it.
    await new Promise((resolve) => setTimeout(resolve, silenceMaxMs / 20));
  }

  expect(await ended).toMatch(/^HTTP\/1.1 401 /);
  expect(performance.now() - startedMs).toBeGreaterThan(2 * silenceMaxMs);
});

import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ReferenceServer, type ReferenceServerOptions } from '../../src/server/reference-server.ts';
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

test('a line too many is ended at once; the others go on, and one that ends makes room', async () => {
  await open({ connectionsMax: 2 });
  const [first, second] = [await line(), await line()];
  await until(() => server.connections === 2);

  const third = await line();
  third.socket.write(REQUEST);

  expect(await third.ended).toBe('');
  first.socket.write(REQUEST);
  expect(String(await once(first.socket, 'data'))).toMatch(/^HTTP\/1.1 401 /);
  second.socket.destroy();
  await until(() => server.connections === 1);
  const fourth = await line();
  fourth.socket.write(REQUEST.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
  expect(await fourth.ended).toMatch(/^HTTP\/1.1 401 /);
  first.socket.destroy();
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

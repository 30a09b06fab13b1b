import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { Blobs } from '../../src/server/blobs.ts';
import { Database } from '../../src/server/database.ts';
import type { Fault } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp, type TestUser } from './raw-client.ts';
import { until } from './until.ts';

/**
 * Whatever becomes of a request, what the server opened for it is closed again: by the server, not by the garbage collector. Looked at
 * from outside, in the descriptors of this process.
 */

const MIB = 1024 * 1024;
/** More than the lines between server and client hold: a download that nobody reads stops in the middle. */
const LARGE_BYTES = 16 * MIB;

const directory = mkdtempSync(join(tmpdir(), 'cfs-open-files-'));
let server: ReferenceServer;
let user: TestUser;
let large: string;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: directory });
  user = await signUp(server, 'a@example.com');
  large = await user.client.createFilled(user.folder('2'), 'large', randomBytes(LARGE_BYTES));
  await until(() => openBlobs(directory).length === 0);
});

afterEach(() => {
  server.faults = [];
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** Files of versions that this process has open. */
function openBlobs(dataDirectory: string): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`);
      return path.startsWith(join(dataDirectory, 'blobs')) ? [path] : [];
    } catch {
      return []; // closed since
    }
  });
}

async function nothingOpen(): Promise<void> {
  await until(() => openBlobs(directory).length === 0);
}

/** A line on which requests are written as they are. */
async function line(): Promise<Socket> {
  const socket = connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

function head(method: string, url: string, more: readonly string[] = []): string {
  const path = url.slice(server.origin.length);
  return [`${method} ${path} HTTP/1.1`, 'Host: x', `Authorization: ${user.client.token}`, ...more, '', ''].join('\r\n');
}

test('a download whose reader goes away in the middle', async () => {
  const socket = await line();
  socket.pause();
  socket.write(head('GET', `${large}/data`));
  await until(() => openBlobs(directory).length === 1);

  socket.destroy();

  await nothingOpen();
});

test.each([1, 2, 12])(
  'a download with %i more behind it on the same line, which goes away: one is open at a time',
  async (more) => {
    const socket = await line();
    socket.pause();
    for (let nth = 0; nth <= more; nth++) socket.write(head('GET', `${large}/data`));
    await until(() => openBlobs(directory).length === 1 && server.waiting > 0);

    socket.destroy();

    await nothingOpen();
  },
);

test('downloads that wait for each other keep no server from ending', async () => {
  const data = mkdtempSync(join(tmpdir(), 'cfs-open-files-'));
  const other = await ReferenceServer.open({ dataDirectory: data });
  const { client, folder } = await signUp(other, 'b@example.com');
  const file = await client.createFilled(folder('2'), 'large', randomBytes(LARGE_BYTES));
  const socket = connect(other.port, '127.0.0.1');
  socket.on('error', () => {}).pause();
  const get = `GET ${file.slice(other.origin.length)}/data HTTP/1.1\r\nHost: x\r\nAuthorization: ${client.token}\r\n\r\n`;
  socket.write(get + get);
  await until(() => openBlobs(data).length === 1);

  await other.close();

  expect(openBlobs(data)).toEqual([]);
  socket.destroy();
  rmSync(data, { recursive: true });
});

test.each<readonly [what: string, method: string, more: readonly string[]]>([
  ['HEAD', 'HEAD', []],
  ['a range that is none', 'GET', ['Range: bytes=9-3']],
  ['a range behind the end', 'GET', [`Range: bytes=${LARGE_BYTES}-`]],
  ['a picture of what is none', 'GET', ['Accept: image/jpeg; pxmax=1; pymax=1']],
])('a request that is answered without data: %s', async (_what, method, more) => {
  const socket = await line();
  socket.end(head(method, `${large}/data`, more));
  socket.resume();

  await once(socket, 'close');

  expect(openBlobs(directory)).toEqual([]);
});

test.each<Fault>([
  { hangUpAfterBytes: 1 },
  { hangUpAfterBytes: 3 * MIB },
  { hangUpAfterBytes: 'half' },
  { hangUpInHead: true },
  { actButNeverAnswer: true },
  { wrongContentRange: true },
  { ignoreRange: true },
  { garbage: true },
  { status: 503 },
])('a download that meets %j', async (fault) => {
  server.faults = [{ on: 'GET', path: 'fileData', then: fault }];

  await user.client.get(`${large}/data`, { Range: 'bytes=5-' }).catch(() => {});

  await nothingOpen();
});

test.each<readonly [what: string, target: 'data' | 'version', fault: Fault]>([
  ['is cut by the line', 'data', { hangUpAfterBytes: 2 * MIB }],
  ['is cut by the line', 'version', { hangUpAfterBytes: 2 * MIB }],
  ['is taken in part', 'data', { acceptBytes: 2 * MIB }],
  ['is taken in part', 'version', { acceptBytes: 2 * MIB }],
  ['is refused in the middle', 'version', { acceptBytes: 2 * MIB, status: 413 }],
  ['gets no answer', 'version', { actButNeverAnswer: true }],
])('an upload that %s (%s)', async (_what, target, fault) => {
  const file = await user.client.createFile(user.folder('2'), 'up');
  const version =
    target === 'data' ? file : ((await user.client.send('POST', `${file}/version`)).headers.location as string);
  server.faults = [{ on: 'PUT', then: fault }];

  await user.client.send('PUT', `${version}/data`, { body: randomBytes(3 * MIB) }).catch(() => {});

  await nothingOpen();
});

test('an upload whose sender goes away, and one to a file that is deleted meanwhile', async () => {
  const file = await user.client.createFile(user.folder('2'), 'up');
  const socket = await line();
  socket.write(head('PUT', `${file}/data`, [`Content-Length: ${4 * MIB}`]));
  socket.write(randomBytes(2 * MIB));
  await until(() => openBlobs(directory).length === 1);
  await user.client.send('DELETE', file);
  socket.destroy();

  await nothingOpen();
});

test('a file that cannot be gone on with where it is to be', async () => {
  const data = mkdtempSync(join(tmpdir(), 'cfs-open-files-'));
  const database = Database.open(data);
  const blobs = new Blobs({ directory: join(data, 'blobs'), database });
  const name = blobs.newName();
  const first = blobs.write(name, 0);
  await first.write([randomBytes(20_000)]);
  await first.finish();

  // No length of a file: cutting off what lies behind it fails.
  const second = blobs.write(name, 0.5);
  await expect(second.write([randomBytes(20_000)])).rejects.toThrow();
  await second.close();

  expect(openBlobs(data)).toEqual([]);
  await database.close();
  rmSync(data, { recursive: true });
});

test('a download of a file that ends early', async () => {
  const { BlobReader } = await import('../../src/server/blob-reader.ts');
  const [blob = ''] = readdirSync(join(directory, 'blobs'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));

  const reading = (async () => {
    for await (const _piece of new BlobReader().read(blob, 0, 2 * LARGE_BYTES)) await systemClock.sleep(0);
  })();

  await expect(reading).rejects.toThrow(/ends at/);
  expect(openBlobs(directory)).toEqual([]);
});

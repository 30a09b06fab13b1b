import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { Administration } from '../../src/server/administration.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** Senders that are slower than every line. The half minutes pass when the test says so. */

let directory: string;
let server: ReferenceServer;
let user: TestUser;
let due: Set<() => void>;

const clock: Clock = {
  ...systemClock,
  after: (ms, callback) => {
    if (ms !== 30_000) return systemClock.after(ms, callback);
    due.add(callback);
    return () => due.delete(callback);
  },
};

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-slow-'));
  due = new Set();
  server = await ReferenceServer.open({ dataDirectory: directory, clock });
  user = await signUp(server, 'a@example.com');
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

function passHalfAMinute(): void {
  const now = [...due];
  due.clear();
  for (const callback of now) callback();
}

async function begin(head: string, front: string): Promise<{ socket: Socket; ended: Promise<unknown> }> {
  const socket = connect(server.port, '127.0.0.1');
  socket.on('error', () => {});
  const ended = new Promise((resolve) => socket.on('close', resolve));
  await once(socket, 'connect');
  const before = server.bytesArrived;
  socket.write(`${head}\r\nHost: x\r\n\r\n${front}`);
  await until(() => server.bytesArrived > before + front.length);
  socket.resume();
  return { socket, ended };
}

test('a document that takes longer than half a minute ends, and an upload with less than 20 bytes per second', async () => {
  const file = await user.client.createFile(user.folder('2'), 'file');
  const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
  const path = new URL(version).pathname;
  const document = await begin('POST /authorization HTTP/1.1\r\nContent-Length: 200000', '<'.repeat(50_000));
  const upload = await begin(
    `PUT ${path}/data HTTP/1.1\r\nAuthorization: ${user.client.token}\r\nContent-Length: 200000`,
    'x'.repeat(599),
  );
  await until(() => server.uploadsUnderWay === 1 && due.size === 2);

  passHalfAMinute();

  await document.ended;
  await upload.ended;
  await until(() => server.uploadsUnderWay === 0);
  expect(texts((await user.client.get(version)).text, 'storedSize')).toEqual(['599']);
});

test('an upload with 20 bytes per second goes on, minute after minute', async ({ skip }) => {
  // In `postgres/suite.test.ts` a version reports no bytes before its first part.
  skip(!(server.administration instanceof Administration));
  const file = await user.client.createFile(user.folder('2'), 'file');
  const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
  const upload = await begin(
    `PUT ${new URL(version).pathname}/data HTTP/1.1\r\nAuthorization: ${user.client.token}\r\nContent-Length: 3000`,
    'x'.repeat(600),
  );
  await until(() => server.uploadsUnderWay === 1);
  for (let nth = 2; nth <= 4; nth += 1) {
    const stored = String(600 * (nth - 1));
    await until(async () => texts((await user.client.get(version)).text, 'storedSize')[0] === stored);
    passHalfAMinute();
    upload.socket.write('x'.repeat(600));
  }
  upload.socket.write('x'.repeat(600));

  await until(async () => texts((await user.client.get(version)).text, 'size')[0] === '3000');
  upload.socket.destroy();
});

test('the upload of another account goes on beside 200 senders of 5 KB per second, which hold little memory', {
  timeout: 60_000,
}, async () => {
  const other = await signUp(server, 'b@example.com');
  const file = await user.client.createFile(user.folder('2'), 'file');
  const paths: string[] = [];
  for (let nth = 0; nth < 200; nth += 1) {
    const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
    paths.push(new URL(version).pathname);
  }
  const before = process.memoryUsage().arrayBuffers;
  const senders = paths.map((path) => {
    const socket = connect(server.port, '127.0.0.1').on('error', () => {});
    const head = `PUT ${path}/data HTTP/1.1\r\nHost: x\r\nAuthorization: ${user.client.token}\r\nContent-Length: 8388608`;
    socket.write(`${head}\r\n\r\n`);
    const timer = setInterval(() => socket.write('x'.repeat(500)), 100);
    return { socket, timer };
  });
  try {
    await until(() => server.uploadsUnderWay === 200, 30_000);
    await until(() => server.bytesArrived > 200 * 20_000, 30_000);

    const whole = await other.client.createFilled(other.folder('2'), 'whole', Buffer.alloc(1024 * 1024, 'y'));

    expect((await other.client.get(`${whole}/data`)).bytes.byteLength).toBe(1024 * 1024);
    expect(server.uploadsUnderWay).toBe(200);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(128 * 1024 * 1024);
  } finally {
    for (const { socket, timer } of senders) {
      clearInterval(timer);
      socket.destroy();
    }
  }
  await until(() => server.uploadsUnderWay === 0);
});

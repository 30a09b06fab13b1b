import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { sweepBlobs } from '../../src/server/housekeeping.ts';
import { openParts } from '../../src/server/local-back-end.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { HeldRequest } from './held-request.ts';
import { signUp, type TestUser, texts } from './raw-client.ts';
import { until } from './until.ts';

/** What is collected as garbage, and what only looks like it (docs/service.md 7.5 and 10). */

const HOUR_MS = 3600_000;
const WEEK_MS = 7 * 24 * HOUR_MS;

let directory: string;
let server: ReferenceServer;
let user: TestUser;
let aheadMs: number;
/** What is to be done in an hour. */
let round: (() => void) | null;

const clock: Clock = {
  ...systemClock,
  nowMs: () => systemClock.nowMs() + aheadMs,
  after: (ms, callback) => {
    if (ms >= 60_000) round = callback;
    return () => {};
  },
};

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-housekeeping-'));
  aheadMs = 0;
  server = await ReferenceServer.open({ dataDirectory: directory, clock, accessTokenMs: 5 * WEEK_MS });
  user = await signUp(server, 'a@example.com');
});

afterEach(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** Resolves when the round is done. */
async function tidyUp(): Promise<void> {
  const due = round;
  round = null;
  due?.();
  await until(() => round !== null);
}

const blobs = () => {
  const folder = join(directory, 'blobs');
  if (!existsSync(folder)) return []; // nothing large has come yet
  return readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
};

/** An upload of 50,000 bytes that stopped at 20,000, and goes on now with 10,000 of the others. */
async function resumed(): Promise<{ file: string; version: string; rest: HeldRequest }> {
  const file = await user.client.createFile(user.folder('2'), 'f');
  const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;
  server.faults = [{ on: 'PUT', path: 'fileVersionData', then: { acceptBytes: 20_000 } }];
  await user.client.send('PUT', `${version}/data`, { body: Buffer.alloc(50_000) });
  server.faults = [];
  aheadMs += WEEK_MS - HOUR_MS;
  const rest = await HeldRequest.begin(server, user.client, `${version}/data`, {
    bodyBytes: 30_000,
    front: Buffer.alloc(10_000),
    range: 'bytes=20000-',
  });
  await until(async () => texts((await user.client.get(version)).text, 'storedSize')[0] === '30000');
  return { file, version, rest };
}

test('an upload that takes its time is not forgotten under way', async () => {
  const { file, rest } = await resumed();

  aheadMs += 2 * WEEK_MS;
  await tidyUp();
  await rest.send(Buffer.alloc(20_000));

  expect(await rest.status()).toBe(200);
  expect((await user.client.get(`${file}/data`)).bytes.byteLength).toBe(50_000);
  rest.cut();
});

test('an upload that goes on is not forgotten because the server is killed before it ends', async () => {
  const { rest } = await resumed();

  // As the next server would, which knows of nothing under way.
  aheadMs += 2 * HOUR_MS;
  const next = openParts({ dataDirectory: directory });
  const forgotten = await next.histories.dropAbandoned(clock.nowMs() - WEEK_MS, () => false);
  await next.database.close();

  expect(forgotten).toEqual([]);
  rest.cut();
});

test('bytes without a row are left alone for an hour: their row may be on its way', async () => {
  const large = await user.client.createFile(user.folder('2'), 'large');
  const upload = await HeldRequest.begin(server, user.client, `${large}/data`, {
    bodyBytes: 60_000,
    front: Buffer.alloc(40_000, 'data '),
  });
  await until(() => blobs().length === 1);

  // As a server would do at its start that does not see this one.
  const other = openParts({ dataDirectory: directory });
  const isSwept = await sweepBlobs(other);
  await other.database.close();
  await upload.send(Buffer.alloc(20_000, 'data '));

  expect(isSwept).toBe(false);
  expect(await upload.status()).toBe(204);
  expect((await user.client.get(`${large}/data`)).bytes.equals(Buffer.alloc(60_000, 'data '))).toBe(true);
  upload.cut();
});

test('what a crash left is collected also where the server starts again at once: when it is old enough', async () => {
  await user.client.createFilled(user.folder('2'), 'kept', Buffer.alloc(20_000));
  const kept = blobs();
  mkdirSync(join(directory, 'blobs', 'ff'), { recursive: true });
  writeFileSync(join(directory, 'blobs', 'ff', 'ff00'), 'left behind');

  await tidyUp();
  expect(blobs()).toHaveLength(2);
  aheadMs += 2 * HOUR_MS;
  await tidyUp();

  expect(blobs()).toEqual(kept);
});

test('data that the disk does not give keep no server from starting: those of nobody, and those of an upload', async () => {
  server.faults = [{ on: 'PUT', path: 'fileVersionData', then: { acceptBytes: 20_000 } }];
  const version = (await user.client.send('POST', `${await user.client.createFile(user.folder('2'), 'f')}/version`))
    .headers.location as string;
  await user.client.send('PUT', `${version}/data`, { body: Buffer.alloc(50_000) });
  const [upload = ''] = blobs().map((entry) => join(entry.parentPath, entry.name));
  await server.close();
  // stat(2) of such a link fails, as of an inode that is damaged.
  const damage = (path: string): void => symlinkSync(path, path);
  unlinkSync(upload);
  damage(upload);
  mkdirSync(join(directory, 'blobs', '00'), { recursive: true });
  damage(join(directory, 'blobs', '00', '0'.repeat(32)));
  const parts = openParts({ dataDirectory: directory });
  parts.database.change(() => void parts.database.meta.remove('bootId')); // the machine was started anew
  await parts.database.close();

  server = await ReferenceServer.open({ dataDirectory: directory, clock });

  const other = await signUp(server, 'b@example.com');
  const filled = await other.client.createFilled(other.folder('2'), 'f', Buffer.alloc(20_000, 'data '));
  expect((await other.client.get(`${filled}/data`)).bytes).toEqual(Buffer.alloc(20_000, 'data '));
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { partBytesOf, type S3Store } from '../../../src/server/s3/s3-store.ts';
import { StandInS3 } from './stand-in-s3.ts';
import { bytesIn, bytesOf, hashedFile, storeContract } from './store-contract.ts';

/** The client of the object store, over a store that fails as real ones do. */

const MIB = 1024 * 1024;
const never = new AbortController().signal;
const directory = mkdtempSync(join(tmpdir(), 'cfs-s3-'));
let standIn: StandInS3;
let store: S3Store;
let keys = 0;

beforeAll(async () => {
  standIn = await StandInS3.start();
  store = standIn.open();
});

beforeEach(() => {
  standIn.faults = [];
  standIn.requests.length = 0;
});

afterAll(async () => {
  await store.close();
  await standIn.close();
  rmSync(directory, { recursive: true });
});

const put = async (bytes: Buffer) => {
  const key = `ab/${++keys}`;
  const etag = await store.put(key, hashedFile(join(directory, `${keys}`), bytes), never);
  return { key, etag, sizeBytes: bytes.byteLength };
};

describe('the stand-in', () => storeContract(() => store));

test.each(['slowDown', 'reset', 'loseAnswer'] as const)('a PUT is repeated after %s', async (then) => {
  standIn.faults = [{ on: 'PUT key', times: 2, then }];
  const bytes = bytesOf(20_000);

  const object = await put(bytes);

  expect((await bytesIn(await store.read(object, 0, 20_000))).equals(bytes)).toBe(true);
  expect(standIn.requests.filter((kind) => kind === 'PUT key')).toHaveLength(3);
});

test.each(['slowDown', 'reset', 'loseAnswer'] as const)('a part is sent again after %s', async (then) => {
  standIn.faults = [{ on: 'PUT part', nth: 2, then }];
  const bytes = bytesOf(9 * MIB);

  const object = await put(bytes);

  expect((await bytesIn(await store.read(object, 0, bytes.byteLength))).equals(bytes)).toBe(true);
});

test.each(['errorInBody', 'doneAndErrorInBody', 'loseAnswer', 'slowDown', 'reset'] as const)(
  'a completion ends with one whole object after %s',
  async (then) => {
    standIn.faults = [{ on: 'POST complete', then }];
    const bytes = bytesOf(9 * MIB);

    const object = await put(bytes);

    expect((await bytesIn(await store.read(object, 0, bytes.byteLength))).equals(bytes)).toBe(true);
    expect(standIn.uploads.size).toBe(0);
    // A completed upload is not completed again: the object is looked for first.
    const isDone = then === 'doneAndErrorInBody' || then === 'loseAnswer';
    expect(standIn.requests.filter((kind) => kind === 'POST complete')).toHaveLength(isDone ? 1 : 2);
  },
);

test('a completion that fails again and again is an error, and its parts can be removed', async () => {
  standIn.faults = [{ on: 'POST complete', times: 100, then: 'errorInBody' }];

  await expect(put(bytesOf(9 * MIB))).rejects.toThrow('InternalError');
  expect(standIn.uploads.size).toBe(1);
  await store.remove(`ab/${keys}`, true, never);

  expect(standIn.uploads.size).toBe(0);
});

test('a lost answer to the begin of a multipart upload leaves nothing after a removal', async () => {
  standIn.faults = [{ on: 'POST uploads', then: 'loseAnswer' }];

  await expect(put(bytesOf(9 * MIB))).rejects.toThrow('POST');
  expect(standIn.uploads.size).toBe(1);
  await store.remove(`ab/${keys}`, true, never);

  expect(standIn.uploads.size).toBe(0);
});

test('a response that breaks off is continued where it stopped', async () => {
  const bytes = bytesOf(MIB);
  const object = await put(bytes);
  standIn.faults = [{ on: 'GET key', times: 3, then: 'cut' }];

  const read = await bytesIn(await store.read(object, 100, MIB));

  expect(read.equals(bytes.subarray(100))).toBe(true);
  expect(standIn.requests.filter((kind) => kind === 'GET key')).toHaveLength(4);
});

test('an object that is replaced during a download ends it', async () => {
  const object = await put(bytesOf(4 * MIB));
  standIn.faults = [{ on: 'GET key', then: 'cut' }];
  const chunks = await store.read(object, 0, 4 * MIB);
  standIn.objects.set(object.key, { bytes: bytesOf(4 * MIB, 2), etag: '"another"' });

  await expect(bytesIn(chunks)).rejects.toThrow('412');
});

test('a refusal that does not pass is reported at once, with its code', async () => {
  standIn.faults = [{ on: 'PUT key', times: 100, then: 'denied' }];

  await expect(put(bytesOf(20_000))).rejects.toThrow('AccessDenied (403)');
  expect(standIn.requests).toEqual(['PUT key']);
});

test('an interruption ends a request that is being repeated', async () => {
  standIn.faults = [{ on: 'PUT key', times: 1000, then: 'reset' }];
  const closing = new AbortController();
  const moved = store.put('ab/interrupted', hashedFile(join(directory, 'x'), bytesOf(20_000)), closing.signal);
  closing.abort(new Error('the server stops'));

  await expect(moved).rejects.toThrow('the server stops');
});

test('no file has more than 10,000 parts', () => {
  expect(partBytesOf(1)).toBe(8 * MIB);
  for (const sizeBytes of [80_000 * MIB, 80_000 * MIB + 1, 5 * 1024 ** 4])
    expect(Math.ceil(sizeBytes / partBytesOf(sizeBytes))).toBeLessThanOrEqual(10_000);
});

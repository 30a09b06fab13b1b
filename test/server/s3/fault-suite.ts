import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { S3Store } from '../../../src/server/s3/s3-store.ts';
import { bytesIn, bytesOf, hashedFile } from './store-contract.ts';
import type { StoreFaults } from './store-faults.ts';

const MIB = 1024 * 1024;
const never = new AbortController().signal;

export interface FaultySubject {
  readonly store: S3Store;
  readonly faults: StoreFaults;
  /** Number of unfinished multipart uploads. */
  unfinished(): Promise<number>;
}

/** How the client survives failures of its store; run over the stand-in, and over a real store behind a proxy. */
export function faultSuite(subjectOf: () => FaultySubject): void {
  let directory: string;
  let keys = 0;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'cfs-s3-'));
  });
  beforeEach(() => subjectOf().faults.reset());
  afterAll(() => rmSync(directory, { recursive: true }));

  const put = async (bytes: Buffer) => {
    const key = `ab/faulty-${++keys}`;
    const etag = await subjectOf().store.put(key, hashedFile(join(directory, `${keys}`), bytes), never);
    return { key, etag, sizeBytes: bytes.byteLength };
  };
  const removeLast = () => subjectOf().store.remove(`ab/faulty-${keys}`, true, never);

  test.each(['slowDown', 'reset', 'loseAnswer'] as const)('a PUT is repeated after %s', async (then) => {
    const { store, faults } = subjectOf();
    faults.list = [{ on: 'PUT key', times: 2, then }];
    const bytes = bytesOf(20_000);

    const object = await put(bytes);

    expect((await bytesIn(await store.read(object, 0, 20_000))).equals(bytes)).toBe(true);
    expect(faults.requests.filter((kind) => kind === 'PUT key')).toHaveLength(3);
  });

  test.each(['slowDown', 'reset', 'loseAnswer'] as const)(
    'a part is sent again after %s',
    { timeout: 120_000 },
    async (then) => {
      const { store, faults } = subjectOf();
      faults.list = [{ on: 'PUT part', nth: 2, then }];
      const bytes = bytesOf(9 * MIB);

      const object = await put(bytes);

      expect((await bytesIn(await store.read(object, 0, bytes.byteLength))).equals(bytes)).toBe(true);
      expect(faults.requests.filter((kind) => kind === 'PUT part')).toHaveLength(3);
    },
  );

  test.each(['errorInBody', 'doneAndErrorInBody', 'loseAnswer', 'slowDown', 'reset'] as const)(
    'a completion ends with one whole object after %s',
    { timeout: 120_000 },
    async (then) => {
      const { store, faults, unfinished } = subjectOf();
      faults.list = [{ on: 'POST complete', then }];
      const bytes = bytesOf(9 * MIB);

      const object = await put(bytes);

      expect((await bytesIn(await store.read(object, 0, bytes.byteLength))).equals(bytes)).toBe(true);
      expect(await unfinished()).toBe(0);
      // A completed upload is not completed again: the object is looked for first.
      const isDone = then === 'doneAndErrorInBody' || then === 'loseAnswer';
      expect(faults.requests.filter((kind) => kind === 'POST complete')).toHaveLength(isDone ? 1 : 2);
    },
  );

  test('a completion that fails again and again is an error, and its parts can be removed', {
    timeout: 120_000,
  }, async () => {
    const { faults, unfinished } = subjectOf();
    faults.list = [{ on: 'POST complete', times: 100, then: 'errorInBody' }];

    await expect(put(bytesOf(9 * MIB))).rejects.toThrow('InternalError');
    expect(await unfinished()).toBe(1);
    await removeLast();

    expect(await unfinished()).toBe(0);
  });

  test('a lost answer to the begin of a multipart upload leaves nothing after a removal', {
    timeout: 120_000,
  }, async () => {
    const { faults, unfinished } = subjectOf();
    faults.list = [{ on: 'POST uploads', then: 'loseAnswer' }];

    await expect(put(bytesOf(9 * MIB))).rejects.toThrow('POST');
    expect(await unfinished()).toBe(1);
    await removeLast();

    expect(await unfinished()).toBe(0);
  });

  test('a response that breaks off is continued where it stopped', async () => {
    const { store, faults } = subjectOf();
    const bytes = bytesOf(MIB);
    const object = await put(bytes);
    faults.list = [{ on: 'GET key', times: 3, then: 'cut' }];

    const read = await bytesIn(await store.read(object, 100, MIB));

    expect(read.equals(bytes.subarray(100))).toBe(true);
    expect(faults.requests.filter((kind) => kind === 'GET key')).toHaveLength(4);
  });

  test('an object that is replaced during a download ends it', async () => {
    const { store, faults } = subjectOf();
    const object = await put(bytesOf(4 * MIB));
    faults.list = [{ on: 'GET key', then: 'cut' }];
    const chunks = await store.read(object, 0, 4 * MIB);
    await store.put(object.key, hashedFile(join(directory, 'other'), bytesOf(4 * MIB, 2)), never);

    await expect(bytesIn(chunks)).rejects.toThrow('412');
  });

  test('a refusal that does not pass is reported at once, with its code', async () => {
    const { faults } = subjectOf();
    faults.list = [{ on: 'PUT key', times: 100, then: 'denied' }];

    await expect(put(bytesOf(20_000))).rejects.toThrow('AccessDenied (403)');
    expect(faults.requests).toEqual(['PUT key']);
  });

  test('an interruption ends a request that is being repeated', async () => {
    const { store, faults } = subjectOf();
    faults.list = [{ on: 'PUT key', times: 1000, then: 'reset' }];
    const closing = new AbortController();
    const moved = store.put('ab/interrupted', hashedFile(join(directory, 'x'), bytesOf(20_000)), closing.signal);
    closing.abort(new Error('the server stops'));

    await expect(moved).rejects.toThrow('the server stops');
  });
}

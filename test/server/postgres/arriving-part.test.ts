import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { HashedBytes, HashedFile } from '../../../src/server/object-store.ts';
import { ArrivingPart } from '../../../src/server/postgres/arriving-part.ts';
import { PartBuffers } from '../../../src/server/postgres/part-buffers.ts';
import { ManualClock } from '../../kernel/manual-clock.ts';

/** Where the bytes of a part lie while they arrive: time passes when a test says so. */

const KIB = 1024;
const MIB = 1024 * KIB;
const BUFFER_BYTES = 2 * MIB;
const data = Buffer.from(Array.from({ length: BUFFER_BYTES }, (_, at) => (at * 7) ^ (at >> 8)));

let directory: string;
let clock: ManualClock;
let buffers: PartBuffers;
let parts = 0;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-part-'));
});
afterAll(() => rmSync(directory, { recursive: true }));
beforeEach(() => {
  clock = new ManualClock();
  buffers = new PartBuffers({ count: 4, bufferBytes: BUFFER_BYTES });
  parts += 1;
});

const path = (): string => join(directory, String(parts));
const newPart = (at = path()): ArrivingPart =>
  new ArrivingPart({ path: at, clock, takeBuffer: () => buffers.take('user') });
/** Of four, of which the account has one. */
function isBufferFree(): boolean {
  const buffer = buffers.take('user');
  buffer?.giveBack();
  return buffer !== null;
}
function contentOf(hashed: HashedBytes | HashedFile): Buffer {
  const bytes = Buffer.from('path' in hashed ? readFileSync(hashed.path) : hashed.bytes);
  expect(bytes.byteLength).toBe(hashed.sizeBytes);
  expect(createHash('sha256').update(bytes).digest('hex')).toBe(hashed.sha256);
  return bytes;
}

test('an account holds a quarter of the buffers, and others hold the rest', () => {
  const few = new PartBuffers({ count: 8, bufferBytes: 1 });
  const taken = ['a', 'a', 'a', 'b', 'b', 'b', 'c', 'c', 'd', 'd', 'e'].map((uid) => few.take(uid));
  expect(taken.map((buffer) => buffer !== null)).toEqual([
    ...[true, true, false],
    ...[true, true, false],
    ...[true, true, true, true, false],
  ]);
  taken[0]?.giveBack();
  expect([few.take('b'), few.take('a')?.bytes === taken[0]?.bytes]).toEqual([null, true]);
});

test('a part that arrives at 1 MiB/s stays in memory, and its buffer is free afterwards', async () => {
  const part = newPart();
  await part.write(data.subarray(0, MIB));
  clock.advance(1000);
  await part.write(data.subarray(MIB, MIB + 100));
  clock.advance(1);
  expect(isBufferFree()).toBe(false);
  const hashed = await part.finish();
  expect(contentOf(hashed).equals(data.subarray(0, MIB + 100))).toBe(true);
  expect(existsSync(path())).toBe(false);
  await part.remove();
  expect([isBufferFree(), clock.timers]).toEqual([true, 0]);
});

test('a part that becomes slower moves to a file at the next look, also when its sender is silent', async () => {
  const part = newPart();
  await part.write(data.subarray(0, MIB));
  clock.advance(1000);
  expect(isBufferFree()).toBe(false);
  clock.advance(1000);
  await part.write(data.subarray(MIB, MIB + 1));
  expect(isBufferFree()).toBe(true);
  expect(contentOf(await part.finish()).equals(data.subarray(0, MIB + 1))).toBe(true);
  await part.remove();
  expect([existsSync(path()), clock.timers]).toEqual([false, 0]);
});

test('a part that is slow from its beginning takes no buffer', async () => {
  const part = newPart();
  for (let at = 0; at < 40 * KIB; at += 5 * KIB) {
    await part.write(data.subarray(at, at + 5 * KIB));
    expect(isBufferFree()).toBe(true);
    clock.advance(1000);
  }
  expect(contentOf(await part.finish()).equals(data.subarray(0, 40 * KIB))).toBe(true);
  await part.remove();
});

test('bytes that arrive during the move follow those that were in memory', async () => {
  const part = newPart();
  await part.write(data.subarray(0, 100_000));
  clock.advance(1000);
  await part.write(data.subarray(100_000, 130_000));
  await part.write(data.subarray(130_000, 130_001));
  const hashed = await part.finish();
  expect('path' in hashed).toBe(true);
  expect(contentOf(hashed).equals(data.subarray(0, 130_001))).toBe(true);
  await part.remove();
});

test('a part without a buffer is complete in a file', async () => {
  const other = buffers.take('user');
  const part = newPart();
  for (let at = 0; at < 3; at += 1) await part.write(data.subarray(at * 10_000, (at + 1) * 10_000));
  const hashed = await part.finish();
  expect('path' in hashed).toBe(true);
  expect(contentOf(hashed).equals(data.subarray(0, 30_000))).toBe(true);
  await part.remove();
  other?.giveBack();
  expect(isBufferFree()).toBe(true);
});

test('few bytes need neither a buffer nor a file, however slow', async () => {
  const part = newPart();
  for (let at = 0; at < 16; at += 1) {
    await part.write(data.subarray(at * KIB, (at + 1) * KIB));
    clock.advance(10_000);
  }
  expect(isBufferFree()).toBe(true);
  expect(part.bytes).toEqual(data.subarray(0, 16 * KIB));
  expect('bytes' in (await part.finish())).toBe(true);
  await part.remove();
});

test.each([0, 1000])('a part that is given up %i ms after its last byte leaves no buffer and no file', async (ms) => {
  const part = newPart();
  await part.write(data.subarray(0, 100_000));
  clock.advance(ms);
  await part.remove();
  expect([isBufferFree(), existsSync(path()), clock.timers]).toEqual([true, false, 0]);
});

test('a part that cannot move to a file fails, and its buffer is free', async () => {
  const part = newPart(join(directory, 'missing', 'file'));
  await part.write(data.subarray(0, 100_000));
  clock.advance(1000);
  await expect(part.write(data.subarray(0, 1))).rejects.toThrow('ENOENT');
  await expect(part.finish()).rejects.toThrow('ENOENT');
  await part.remove();
  expect(isBufferFree()).toBe(true);
});

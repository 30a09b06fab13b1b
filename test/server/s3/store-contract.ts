import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { HashedFile, ObjectStore } from '../../../src/server/object-store.ts';

const MIB = 1024 * 1024;
const never = new AbortController().signal;

/** Bytes that differ at every place; `length` is a multiple of four. */
export function bytesOf(length: number, seed = 1): Buffer {
  const words = new Uint32Array(length / 4);
  for (let at = 0, value = seed; at < words.length; at += 1) {
    value = (Math.imul(value, 1_664_525) + 1_013_904_223) >>> 0;
    words[at] = value;
  }
  return Buffer.from(words.buffer);
}

export function hashedFile(path: string, bytes: Uint8Array): HashedFile {
  writeFileSync(path, bytes);
  return { path, sizeBytes: bytes.byteLength, sha256: createHash('sha256').update(bytes).digest('hex') };
}

export async function bytesIn(chunks: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Buffer[] = [];
  for await (const chunk of chunks) all.push(Buffer.from(chunk));
  return Buffer.concat(all);
}

/** What every store must do; run over the stand-in, and over a real one. */
export function storeContract(storeOf: () => ObjectStore): void {
  let directory: string;
  let files = 0;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'cfs-store-'));
  });
  afterAll(() => rmSync(directory, { recursive: true }));
  const newFile = (bytes: Uint8Array) => hashedFile(join(directory, `${++files}`), bytes);
  const newKey = () => `aa/${process.pid}-${++files}`;

  test.each([
    ['a small file', 20_000],
    ['the longest file that is sent in one request', 8 * MIB],
    ['a file in three parts', 2 * 8 * MIB + 4320],
  ])('%s is read back byte for byte, as a whole and in ranges', { timeout: 120_000 }, async (_what, length) => {
    const [store, key, bytes] = [storeOf(), newKey(), bytesOf(length)];

    const etag = await store.put(key, newFile(bytes), never);
    const object = { key, etag, sizeBytes: length };
    const edge = Math.min(8 * MIB, length) - 100;
    const ranges = [
      [0, length],
      [0, 1],
      [length - 1, length],
      [edge, Math.min(length, edge + 200)],
    ] as const;
    for (const [start, end] of ranges)
      expect((await bytesIn(await store.read(object, start, end))).equals(bytes.subarray(start, end))).toBe(true);
  });

  test('bytes in memory are read back byte for byte', async () => {
    const [store, key, bytes] = [storeOf(), newKey(), bytesOf(100_000)];
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    const etag = await store.put(key, { bytes, sizeBytes: bytes.byteLength, sha256 }, never);
    const read = await bytesIn(await store.read({ key, etag, sizeBytes: bytes.byteLength }, 0, bytes.byteLength));
    expect(read.equals(bytes)).toBe(true);
  });

  test('an object that is not the stored one is not read', async () => {
    const [store, key] = [storeOf(), newKey()];
    const etag = await store.put(key, newFile(bytesOf(20_000)), never);
    await store.put(key, newFile(bytesOf(20_000, 2)), never);

    await expect(store.read({ key, etag, sizeBytes: 20_000 }, 0, 20_000)).rejects.toThrow('412');
  });

  test('a removed object is gone, and is removed again without an error', async () => {
    const [store, key] = [storeOf(), newKey()];
    const etag = await store.put(key, newFile(bytesOf(20_000)), never);

    await store.remove(key, false, never);
    await store.remove(key, true, never);

    await expect(store.read({ key, etag, sizeBytes: 20_000 }, 0, 1)).rejects.toThrow('404');
  });

  test('a file whose bytes have changed is not stored, and its parts are removed', { timeout: 120_000 }, async () => {
    const [store, key] = [storeOf(), newKey()];
    const file = newFile(bytesOf(9 * MIB));
    writeFileSync(file.path, bytesOf(9 * MIB, 2));

    await expect(store.put(key, file, never)).rejects.toThrow('is damaged');
    await store.remove(key, true, never);

    expect(await store.readText(key)).toBeNull();
  });

  test('a short text is written and read', async () => {
    const [store, key] = [storeOf(), newKey()];

    expect(await store.readText(key)).toBeNull();
    await store.writeText(key, 'a text');
    expect(await store.readText(key)).toBe('a text');
  });
}

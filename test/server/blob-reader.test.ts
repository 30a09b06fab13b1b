import { randomFillSync } from 'node:crypto';
import { mkdtempSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BlobReader } from '../../src/server/blob-reader.ts';

const KIB = 1024;
const SIZE_BYTES = 2300 * KIB;

describe('reading a blob', () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-blob-reader-'));
  const path = join(directory, 'blob');
  const bytes = randomFillSync(Buffer.alloc(SIZE_BYTES));
  beforeAll(() => writeFileSync(path, bytes));
  afterAll(() => rmSync(directory, { recursive: true }));

  const isOpen = (): boolean =>
    readdirSync('/proc/self/fd').some((fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`) === path;
      } catch {
        return false; // the one that reads the directory
      }
    });

  test('gives what was asked for, also to several at once that are slow', async () => {
    const reader = new BlobReader();
    const range = fc
      .tuple(fc.nat(SIZE_BYTES - 1), fc.nat(SIZE_BYTES - 1))
      .map(([a, b]) => ({ start: Math.min(a, b), end: Math.max(a, b) + 1 }));
    await fc.assert(
      fc.asyncProperty(fc.array(range, { minLength: 1, maxLength: 4 }), async (ranges) => {
        const read = async ({ start, end }: { start: number; end: number }): Promise<boolean> => {
          const pieces: Buffer[] = [];
          for await (const piece of reader.read(path, start, end)) {
            await stat(path); // what is read ahead must not touch this piece
            pieces.push(Buffer.from(piece));
          }
          return bytes.subarray(start, end).equals(Buffer.concat(pieces));
        };
        expect(await Promise.all(ranges.map(read))).toEqual(ranges.map(() => true));
      }),
      { numRuns: 20 },
    );
    expect(isOpen()).toBe(false);
  });

  test('takes two buffers, however long it is and however often', async () => {
    const reader = new BlobReader();
    const memory = new Set<ArrayBufferLike>();
    for (let round = 0; round < 3; round++)
      for await (const piece of reader.read(path, 0, SIZE_BYTES)) memory.add(piece.buffer);

    expect(memory.size).toBe(2);
  });

  test('a read of a blob that is abandoned closes the file and reuses its buffers', async () => {
    const reader = new BlobReader();
    const memory = new Set<ArrayBufferLike>();
    for (let round = 0; round < 3; round++) {
      for await (const piece of reader.read(path, 0, SIZE_BYTES)) {
        memory.add(piece.buffer);
        break;
      }
      expect(isOpen()).toBe(false);
    }

    expect(memory.size).toBeLessThanOrEqual(2);
  });

  test('many slow reads of a blob use little memory each and return the same bytes', async () => {
    const reader = new BlobReader();
    const memory = new Map<ArrayBufferLike, number>();
    const slow = Array.from({ length: 100 }, () => reader.read(path, 0, SIZE_BYTES));
    for (let turn = 0; turn < 2; turn++) {
      for (const each of slow) {
        const { value } = await each.next();
        if (value !== undefined) memory.set(value.buffer, value.buffer.byteLength);
      }
    }
    const held = [...memory.values()].reduce((sum, length) => sum + length, 0);
    const rest = [];
    for await (const piece of slow.at(-1) as AsyncIterable<Uint8Array>) rest.push(Buffer.from(piece));
    for (const each of slow) await each.return();

    expect(held).toBeLessThan(40 * KIB * KIB);
    expect(bytes.subarray(-Buffer.concat(rest).byteLength).equals(Buffer.concat(rest))).toBe(true);
    expect(isOpen()).toBe(false);
  });

  test('afterwards takes as much as before', async () => {
    const reader = new BlobReader();
    const many = Array.from({ length: 100 }, () => reader.read(path, 0, SIZE_BYTES));
    for (const each of many) await each.next();
    for (const each of many) await each.return();
    const lengths: number[] = [];
    for await (const piece of reader.read(path, 0, SIZE_BYTES)) lengths.push(piece.byteLength);

    expect(lengths).toEqual([512, 512, 512, 512, 252].map((length) => length * KIB));
  });

  test('a read of a blob that is shorter than its row fails after its last byte', async () => {
    const reader = new BlobReader();
    let got = 0;
    const all = async (): Promise<void> => {
      for await (const piece of reader.read(path, 0, SIZE_BYTES + 1)) got += piece.byteLength;
    };

    await expect(all()).rejects.toThrow(`a file ends at ${SIZE_BYTES}`);
    expect(got).toBe(SIZE_BYTES);
    expect(isOpen()).toBe(false);
  });
});

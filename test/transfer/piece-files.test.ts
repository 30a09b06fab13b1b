import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import { PieceFiles } from '../../src/transfer/piece-files.ts';
import { openDescriptors } from './open-descriptors.ts';

const WINDOW_BYTES = 64 * 1024;
const OPEN_MAX = 8;
const BYTES = randomBytes(3 * WINDOW_BYTES + 100);

let folder: string;
let files: PieceFiles;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'cfs-pieces-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));
beforeEach(() => {
  files = new PieceFiles();
});
afterEach(() => files.close());

function file(name: string, bytes: Buffer = BYTES): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

/** What `files` fills `length` bytes with, from what is at hand or else from the file, and which of the two it was. */
async function take(path: string, position: number, length: number) {
  const target = Buffer.alloc(length, 0xee);
  const isAtHand = files.copy(path, target, position);
  const bytesRead = isAtHand ? length : await files.read(path, target, position);
  return { isAtHand, bytes: target.subarray(0, bytesRead) };
}

const isOpen = (path: string): boolean => openDescriptors(path) > 0;

describe('the files of pieces', () => {
  test('short pieces that are near each other are read with one call, in each of several files', async () => {
    const [draft, base] = [file('draft'), file('base', Buffer.from(BYTES).reverse())];
    let reads = 0;
    for (let at = 0; at + 16 <= BYTES.byteLength; at += 32) {
      const odd = await take(draft, at, 16);
      const even = await take(base, at + 16, 16);

      expect(odd.bytes.equals(BYTES.subarray(at, at + 16))).toBe(true);
      expect(
        even.bytes.equals(
          Buffer.from(BYTES)
            .reverse()
            .subarray(at + 16, at + 32),
        ),
      ).toBe(true);
      reads += Number(!odd.isAtHand) + Number(!even.isAtHand);
    }

    expect(reads).toBe(2 * Math.ceil(BYTES.byteLength / WINDOW_BYTES));
  });

  test('pieces before, behind and across the window are read from the file', async () => {
    const path = file('jumps');
    for (const [position, length] of [
      [WINDOW_BYTES, 100],
      [WINDOW_BYTES - 1, 2],
      [0, 1],
      [WINDOW_BYTES - 50, 100],
      [2 * WINDOW_BYTES, WINDOW_BYTES],
      [5, 2 * WINDOW_BYTES],
    ] as const) {
      const { bytes } = await take(path, position, length);
      expect(bytes.equals(BYTES.subarray(position, position + length))).toBe(true);
    }
  });

  test('a piece beyond the end of its file is reported with its available length', async () => {
    const path = file('short');
    expect((await take(path, BYTES.byteLength - 10, 100)).bytes).toEqual(BYTES.subarray(-10));
    expect((await take(path, 1, 4 * WINDOW_BYTES)).bytes).toEqual(BYTES.subarray(1));
    expect((await take(path, BYTES.byteLength, 1)).bytes.byteLength).toBe(0);
  });

  test('files are open while they are read, a few at a time, and are closed at the end', async () => {
    const paths = Array.from({ length: OPEN_MAX + 2 }, (_, n) => file(`file-${n}`));
    for (const path of paths) await take(path, 0, 1);
    expect(paths.map(isOpen)).toEqual(paths.map((_, n) => n >= 2));

    // One that had to be closed is read again.
    expect((await take(paths[0] as string, 7, 9)).bytes).toEqual(BYTES.subarray(7, 16));
    await files.close();
    expect(paths.filter(isOpen)).toEqual([]);
  });

  test('the least recently read files are closed when there are too many', async () => {
    const paths = Array.from({ length: OPEN_MAX + 1 }, (_, n) => file(`used-${n}`));
    for (const path of paths.slice(0, OPEN_MAX)) await take(path, 0, 1);
    await take(paths[0] as string, 2 * WINDOW_BYTES, 1);
    await take(paths[OPEN_MAX] as string, 0, 1);

    expect(paths.map(isOpen)).toEqual(paths.map((_, n) => n !== 1));
  });

  test('a missing file is a StorageError', async () => {
    await expect(files.read(join(folder, 'none'), Buffer.alloc(1), 0)).rejects.toBeInstanceOf(StorageError);
  });
});

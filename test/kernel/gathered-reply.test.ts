import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { FileSlice } from '../../src/kernel/binding.ts';
import { bytesOf } from '../../src/kernel/gathered-reply.ts';

const TEXT = '0123456789abcdefghij';
let folder: string;
let fd: number;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'cfs-gathered-'));
  writeFileSync(join(folder, 'file'), TEXT);
  fd = openSync(join(folder, 'file'), 'r');
});
afterAll(() => {
  closeSync(fd);
  rmSync(folder, { recursive: true });
});

let ended = 0;
const slice = (position: number, length: number): FileSlice => ({ fd, position, length, sent: () => void ended++ });

test.each([
  ['one slice', () => slice(3, 4), '3456'],
  ['one slice up to the end', () => [slice(0, 20)], TEXT],
  ['memory', () => [Buffer.from('ab'), Buffer.from('c')], 'abc'],
  ['slices between memory', () => [slice(1, 2), Buffer.from('-'), slice(4, 3), slice(0, 1)], '12-4560'],
  ['nothing', () => [], ''],
])('%s', (_name, reply, wanted) => {
  expect(bytesOf(reply()).toString()).toBe(wanted);
});

test.each([
  ['alone', () => slice(15, 6)],
  ['among others', () => [slice(0, 3), slice(15, 6)]],
])('a slice past the end of its file is EIO: %s', (_name, reply) => {
  ended = 0;

  expect(() => bytesOf(reply())).toThrow(expect.objectContaining({ errno: 'EIO' }));
  expect(ended).toBe([reply()].flat().length);
});

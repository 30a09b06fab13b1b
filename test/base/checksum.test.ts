import * as zlib from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { crc32 } from '../../src/base/checksum.ts';

test('crc32 is that of zlib, wherever the bytes lie, however many they are and whatever came before', () => {
  const bytes = fc.uint8Array({ minLength: 0, maxLength: 400 });
  fc.assert(
    fc.property(bytes, fc.nat({ max: 20 }), fc.nat({ max: 0xffffffff }), (all, from, before) => {
      const part = all.subarray(from);
      expect(crc32(part, before)).toBe(part.byteLength === 0 ? before : zlib.crc32(part, before));
    }),
    { numRuns: 2000 },
  );
});

test('crc32 of long bytes is that of zlib, in one piece and in several', () => {
  const all = Buffer.from(Uint32Array.from({ length: 50_000 }, (_, i) => Math.imul(i + 1, 0x9e3779b1)).buffer);
  for (let length = all.byteLength - 200; length <= all.byteLength; length++) {
    const cut = (length * 7) % length;
    const [first, second] = [all.subarray(0, cut), all.subarray(cut, length)];
    expect(crc32(second, crc32(first, 0))).toBe(zlib.crc32(all.subarray(0, length)));
  }
});

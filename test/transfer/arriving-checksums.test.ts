import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BLOCK_BYTES } from '../../src/base/vocabulary.ts';
import { ArrivingChecksums } from '../../src/transfer/arriving-checksums.ts';

const BYTES = Buffer.from(Uint32Array.from({ length: BLOCK_BYTES }, (_, i) => Math.imul(i + 1, 0x9e3779b1)).buffer);

test('the checksums are the crc32 of each block that arrived from its first byte on, however the bytes are cut', () => {
  const start = fc.oneof(fc.constant(0), fc.constant(3 * BLOCK_BYTES), fc.nat({ max: 3 * BLOCK_BYTES }));
  const chunk = fc.oneof(fc.constant(BLOCK_BYTES), fc.integer({ min: 1, max: 2 * BLOCK_BYTES }));
  const cuts = fc.array(fc.tuple(chunk, fc.boolean()), { minLength: 1, maxLength: 12 });
  fc.assert(
    fc.property(start, cuts, (from, chunks) => {
      const arriving = new ArrivingChecksums(from);
      const found = new Map<number, number>();
      const take = (): void => {
        const { first, values } = arriving.take();
        for (const [at, checksum] of values.entries()) found.set(first + at, checksum);
      };
      let length = 0;
      for (const [bytes, isTaken] of chunks) {
        const chunkBytes = BYTES.subarray(length, length + bytes);
        arriving.add(chunkBytes);
        length += chunkBytes.byteLength;
        if (isTaken) take();
      }
      arriving.end();
      take();

      const wanted = new Map<number, number>();
      for (let block = Math.ceil(from / BLOCK_BYTES); block * BLOCK_BYTES < from + length; block++) {
        const at = block * BLOCK_BYTES - from;
        wanted.set(block, crc32(BYTES.subarray(at, Math.min(at + BLOCK_BYTES, length))));
      }
      expect(found).toEqual(wanted);
    }),
  );
});

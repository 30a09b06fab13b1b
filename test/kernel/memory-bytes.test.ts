import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ChunkPool, MemoryBytes } from './memory-bytes.ts';

/** Against one buffer; the pool is shared, so that chunks of one file come back in another. */
test('a file in memory holds what was written to it, whatever was there before', () => {
  const offset = fc.nat(200_000);
  const step = fc.oneof(
    fc.tuple(fc.constant('write' as const), offset, fc.nat(80_000)),
    fc.tuple(fc.constant('resize' as const), offset, fc.constant(0)),
    fc.tuple(fc.constant('zero' as const), offset, fc.nat(80_000)),
  );
  const pool = new ChunkPool();
  fc.assert(
    fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
      const bytes = new MemoryBytes(pool);
      let model = Buffer.alloc(0);
      for (const [i, [what, at, length]] of steps.entries()) {
        if (what === 'write') {
          const data = Buffer.alloc(length, i + 1);
          bytes.write(at, data);
          model = Buffer.concat([model, Buffer.alloc(Math.max(0, at + length - model.length))]);
          data.copy(model, at);
        } else if (what === 'resize') {
          bytes.resize(at);
          model = Buffer.concat([model.subarray(0, at), Buffer.alloc(Math.max(0, at - model.length))]);
        } else {
          bytes.zero(at, at + length);
          model = Buffer.from(model).fill(0, Math.min(at, model.length), Math.min(at + length, model.length));
        }
        expect(bytes.sizeBytes).toBe(model.length);
        expect(Buffer.concat(bytes.read(0, bytes.sizeBytes)).equals(model)).toBe(true);
      }
      bytes.resize(0);
    }),
    { numRuns: 60 },
  );
});

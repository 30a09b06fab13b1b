import { expect, test } from 'vitest';
import { addExtent, bytesOf, coversExtent, removeExtent } from '../../src/bytes/extents.ts';
import { SeededRandom } from './seeded-random.ts';

test.each([1, 2, 3])('extents behave as a set of bytes (SEED=%i)', (seed) => {
  const random = new SeededRandom(seed);
  const model = new Set<number>();
  const extents: number[] = [];
  for (let step = 0; step < 2000; step++) {
    const start = random.below(60);
    const end = start + random.below(12);
    const trace = `seed ${seed}, step ${step}: [${start}, ${end})`;
    if (random.below(2) === 0) {
      addExtent(extents, start, end);
      for (let at = start; at < end; at++) model.add(at);
    } else {
      removeExtent(extents, start, end);
      for (let at = start; at < end; at++) model.delete(at);
    }
    expect(extents, trace).toEqual(rangesOf(model));
    expect(bytesOf(extents), trace).toBe(model.size);
    const from = random.below(60);
    const to = from + random.below(10);
    const all = Array.from({ length: to - from }, (_, i) => model.has(from + i)).every(Boolean);
    expect(coversExtent(extents, from, to), trace).toBe(all);
  }
});

function rangesOf(bytes: Set<number>): number[] {
  const ranges: number[] = [];
  for (let at = 0; at < 80; at++) {
    if (bytes.has(at) && !bytes.has(at - 1)) ranges.push(at);
    if (!bytes.has(at) && bytes.has(at - 1)) ranges.push(at);
  }
  return ranges;
}

import { expect, test } from 'vitest';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { CacheUsage, UNIT_BYTES } from '../../src/bytes/cache-usage.ts';

const [LONG, NEXT] = [7 as ContentId, 8 as ContentId];
const TIB = 2 ** 40;

test('what lies far behind the beginning of a file is evicted as its own, not in the place of another file', () => {
  const usage = new CacheUsage();
  usage.touch('file', NEXT, 0, UNIT_BYTES, 1000);
  usage.touch('file', LONG, TIB, TIB + UNIT_BYTES, 2000);
  usage.touch('file', LONG, 0, UNIT_BYTES, 3000);
  expect([...usage.units('file')].map(({ content, unit }) => [content, unit * UNIT_BYTES])).toEqual([
    [NEXT, 0],
    [LONG, TIB],
    [LONG, 0],
  ]);

  usage.forget(LONG, 2 * TIB);
  expect([...usage.units('file')].map(({ content }) => content)).toEqual([NEXT]);
});

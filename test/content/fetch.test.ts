import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { BLOCK_BYTES, type ContentId } from '../../src/base/vocabulary.ts';
import { Fetch } from '../../src/content/fetch.ts';

test('bytes that arrived serve a reader before they are stored, and a waiter for the cache waits again', async () => {
  const fetch = new Fetch(1 as ContentId, { start: BLOCK_BYTES, end: 2 * BLOCK_BYTES }, false);
  const wanted = { start: BLOCK_BYTES + 10, end: BLOCK_BYTES + 20 };
  const bytes = Buffer.alloc(BLOCK_BYTES, 1).fill(2, 10, 20);
  const first = fetch.reached(wanted.end);
  expect(fetch.arrivedBytes(wanted)).toBeNull();

  fetch.arrived(bytes);
  await first;

  expect(fetch.arrivedBytes(wanted)).toEqual(Buffer.alloc(10, 2));
  expect(fetch.arrivedBytes({ start: wanted.start, end: 2 * BLOCK_BYTES + 1 })).toBeNull();
  expect(fetch.isBringing(wanted)).toBe(true);
  let isStored = false;
  const second = fetch.reached(wanted.end).then(() => {
    isStored = true;
  });
  await nextTurn();
  expect(isStored).toBe(false);
  fetch.landed(2 * BLOCK_BYTES);
  await second;
});

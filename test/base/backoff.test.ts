import { expect, test } from 'vitest';
import { backoffMs } from '../../src/base/backoff.ts';

const LIMITS = { firstMs: 1_000, maxMs: 30_000 };

test('the limit of the pause doubles with each consecutive failure, up to the maximum', () => {
  const pauses = [1, 2, 3, 5, 6, 2_000].map((failures) => backoffMs(failures, 1, LIMITS));
  expect(pauses).toEqual([1_000, 2_000, 4_000, 16_000, 30_000, 30_000]);
});

test('half of the limit is random', () => {
  expect([0, 0.5, 0.999].map((random) => backoffMs(2, random, LIMITS))).toEqual([1_000, 1_500, 1_999]);
});

test('a pause that the service asked for is waited in full, before the back-off', () => {
  expect(backoffMs(1, 0, LIMITS, 7_000)).toBe(7_500);
});

test('a service that asks for a pause of years is asked again after ten minutes', () => {
  expect(backoffMs(1, 0, LIMITS, 999_999_999_000)).toBe(10 * 60_000 + 500);
});

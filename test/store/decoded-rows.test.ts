import fc from 'fast-check';
import { expect, test } from 'vitest';
import { DecodedRows } from '../../src/store/decoded-rows.ts';

test('a walk over everything pushes nothing out that was read twice or written', () => {
  const rows = new DecodedRows({ onceMax: 4, againMax: 8 });
  const [twice, written, once] = [{}, {}, {}];
  rows.read(1, twice);
  rows.get(1);
  rows.written(2, written);
  rows.read(3, once);

  for (let key = 100; key < 1_000; key++) rows.read(key, {});

  expect(rows.get(1)).toBe(twice);
  expect(rows.get(2)).toBe(written);
  expect(rows.get(3)).toBeUndefined();
});

test('a cache holds at most its limits', () => {
  const rows = new DecodedRows({ onceMax: 10, againMax: 20 });
  for (let key = 0; key < 100; key++) rows.read(key, {});
  for (let key = 100; key < 200; key++) rows.written(key, {});
  expect([rows.get(99), rows.get(199)]).not.toContain(undefined);
  const found = Array.from({ length: 200 }, (_, key) => rows.get(key) !== undefined);

  expect(found.slice(0, 100).filter(Boolean).length).toBeLessThanOrEqual(10);
  expect(found.slice(100).filter(Boolean).length).toBeLessThanOrEqual(20 + 1); // and the one that was read again
});

const act = fc.record({ do: fc.constantFrom('get', 'written', 'delete'), key: fc.integer({ min: 0, max: 3 }) });

test('what is found is what was written last, whatever was forgotten', () => {
  fc.assert(
    fc.property(fc.array(act, { minLength: 100, maxLength: 200 }), (acts) => {
      const rows = new DecodedRows({ onceMax: 2, againMax: 1 });
      const truth = new Map<number, object>();
      for (const { do: what, key } of acts) {
        if (what === 'get') {
          const found = rows.get(key);
          const there = truth.get(key);
          if (found !== undefined) expect(found).toBe(there);
          else if (there !== undefined) rows.read(key, there); // read from below, as the store does
        } else if (what === 'written') {
          const value = {};
          truth.set(key, value);
          rows.written(key, value);
        } else {
          truth.delete(key);
          rows.delete(key);
        }
      }
    }),
  );
});

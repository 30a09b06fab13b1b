import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RowGroup } from '../../src/store/overlay.ts';

class CountedRow {
  /** How often rows were compared. */
  static reads = 0;
  readonly key: number;
  readonly #keyBytes: Buffer;

  constructor(key: number) {
    this.key = key;
    this.#keyBytes = bytesOf(key);
  }

  get keyBytes(): Buffer {
    CountedRow.reads += 1;
    return this.#keyBytes;
  }
}

function bytesOf(key: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(key);
  return bytes;
}

test('rows are told in key order as they are then, whatever came and went, and before', () => {
  const step = fc.record({ do: fc.constantFrom('set', 'set', 'delete', 'ask'), key: fc.nat(60) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const group = new RowGroup<CountedRow>();
      const wanted = new Map<number, CountedRow>();
      const inOrder = (from: number) => [...wanted].filter(([key]) => key >= from).sort(([a], [b]) => a - b);
      const told: { rows: readonly CountedRow[]; then: readonly CountedRow[] }[] = [];
      for (const { do: what, key } of steps) {
        if (what === 'set') {
          const row = new CountedRow(key);
          expect(group.set(key, row)).toBe(!wanted.has(key));
          wanted.set(key, row);
        } else if (what === 'delete') {
          group.delete(key);
          wanted.delete(key);
        } else {
          told.push({ rows: group.inOrder(bytesOf(key)), then: inOrder(key).map(([, row]) => row) });
        }
        expect(group.size).toBe(wanted.size);
        expect(group.get(key)).toBe(wanted.get(key));
      }
      told.push({ rows: group.inOrder(bytesOf(0)), then: inOrder(0).map(([, row]) => row) });
      for (const { rows, then } of told) {
        expect(rows.length).toBe(then.length);
        for (const [at, row] of rows.entries()) expect(row).toBe(then[at]);
      }
    }),
  );
});

test('removing many rows in steps, with a walk in between, does not sort all rows each time', () => {
  const rows = 20_000;
  const group = new RowGroup<CountedRow>();
  for (let n = 0; n < rows; n++) group.set((n * 7_919) % rows, new CountedRow((n * 7_919) % rows));
  group.inOrder(bytesOf(0));
  CountedRow.reads = 0;

  for (let first = 0; first < rows; first += 200) {
    const some = group.inOrder(bytesOf(0)).slice(0, 200);
    expect(some.map(({ key }) => key)).toEqual(Array.from({ length: 200 }, (_, at) => first + at));
    for (const { key } of some) group.delete(key);
  }

  // Sorting what is left 100 times would be some 25,000,000.
  expect(CountedRow.reads).toBeLessThan(rows * 40);
});

test('after many changes without a question they are sorted anew, once', () => {
  const group = new RowGroup<CountedRow>();
  for (let key = 0; key < 2_000; key++) group.set(key, new CountedRow(key));
  group.inOrder(bytesOf(0));
  CountedRow.reads = 0;

  for (let key = 2_000; key < 50_000; key++) group.set(key, new CountedRow(key));

  expect(CountedRow.reads).toBeLessThan(40_000);
  expect(group.inOrder(bytesOf(0)).map(({ key }) => key)).toEqual(Array.from({ length: 50_000 }, (_, key) => key));
});

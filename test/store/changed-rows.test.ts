import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ChangedRows } from '../../src/store/changed-rows.ts';
import { Overlay, type Row, rangeOf } from '../../src/store/overlay.ts';
import { encodeKey } from '../../src/store/row-key.ts';

const row = (table: 'name' | 'node', key: Row['key'], value: number): Row => ({
  ...{ table, key, keyBytes: encodeKey(table, key as never), value: value as never },
  ...{ valueBytes: null, sequence: 0 },
});
const written = fc.record({
  table: fc.constantFrom('name' as const, 'node' as const),
  first: fc.nat(3),
  second: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f'),
});
const keyOf = ({ table, first, second }: { table: 'name' | 'node'; first: number; second: string }): Row['key'] =>
  (table === 'name' ? [first, second] : first * 10 + second.charCodeAt(0)) as Row['key'];

/** Up to 48 rows: few and many. */
test('the rows of a change are found, listed and ordered as those of an overlay, few and many', () => {
  fc.assert(
    fc.property(fc.array(written, { maxLength: 80 }), fc.boolean(), (writes, looks) => {
      const changed = new ChangedRows();
      const overlay = new Overlay();
      writes.forEach((each, value) => {
        const one = row(each.table, keyOf(each), value);
        changed.set(one);
        overlay.set(one);
        if (looks && value === 5)
          expect(changed.inOrder('name', 1, rangeOf('name', 1).start)).toEqual(
            overlay.inOrder('name', 1, rangeOf('name', 1).start),
          );
      });
      for (const each of writes)
        expect(changed.find(each.table, keyOf(each) as never)).toBe(overlay.find(each.table, keyOf(each) as never));
      expect(changed.find('name', [9, 'a'] as never)).toBeUndefined();
      expect(new Set(changed.rows())).toEqual(new Set(overlay.rows()));
      for (const first of [undefined, 2]) {
        const { start } = rangeOf('name', first);
        expect(changed.inOrder('name', first, start)).toEqual(overlay.inOrder('name', first, start));
      }
    }),
  );
});

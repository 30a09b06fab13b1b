import { expect, test } from 'vitest';

const script = (name: string) => import(new URL(`../../scripts/measure/${name}.mjs`, import.meta.url).href);
const { Results, OURS, median, tableOf } = await script('results');
const { sectionOf, withResults } = await script('report');

function measured() {
  const results = new Results('sample', { rounds: 3 });
  for (const value of [30, 10, 20]) results.note('getattr', 'µs', OURS, value);
  for (const value of [19, 25, 21]) results.note('getattr', 'µs', 'bindfs', value);
  results.note('first byte', 'ms', OURS, 69);
  return results;
}

test('a gate is judged by medians, against a peer or a number', () => {
  const results = measured();
  results.gate('getattr', 'at most', 1, 'bindfs');
  results.gate('getattr', 'at least', 1, 'bindfs');
  results.gate('first byte', 'at most', 50);
  const [getattr, first] = results.summary().rows;

  expect(getattr.medians).toEqual({ [OURS]: 20, bindfs: 21 });
  expect(getattr.gates.map(({ holds }: { holds: boolean }) => holds)).toEqual([true, false]);
  expect(first.gates[0]).toMatchObject({ ratio: 69, holds: false });
});

test('a peer that is not there leaves its gate unmeasured, neither held nor missed', () => {
  const results = measured();
  results.gate('getattr', 'at most', 0.4, 'fuse-native');
  const summary = results.summary();

  expect(summary.rows[0].gates[0].holds).toBeNull();
  expect(tableOf(summary)).toContain('not measured');
  expect(sectionOf(summary)).toContain('0 of 1 gates hold, 1 not measured');
});

test('what is no number is no measurement', () => {
  expect(() => new Results('sample').note('getattr', 'µs', OURS, Number.NaN)).toThrow('not a measurement');
  expect(() => measured().gate('lookup', 'at most', 1)).toThrow('was not measured');
});

test('a report replaces what is between the marks, and nothing else', () => {
  const text =
    'before\n<!-- bench sample -->\nearlier\n<!-- /bench -->\nbetween\n<!-- bench other -->\nkept\n<!-- /bench -->\n';
  const summary = measured().summary();
  const made = withResults(text, (name: string) => (name === 'sample' ? summary : null));

  expect(made).toContain('| getattr, µs | 20 | 21 |');
  expect(made).not.toContain('earlier');
  expect(made).toContain('between\n<!-- bench other -->\nkept\n<!-- /bench -->\n');
  expect(withResults(made, (name: string) => (name === 'sample' ? summary : null))).toBe(made);
});

test('the median of an even row is one of its numbers', () => {
  expect(median([4, 1, 3, 2])).toBe(3);
});

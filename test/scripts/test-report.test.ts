import { expect, test } from 'vitest';

const { failuresIn, reportOf } = (await import(new URL('../../scripts/test-report.mjs', import.meta.url).href)) as {
  failuresIn(said: string): string[][];
  reportOf(failures: readonly string[][]): string;
};

const RULER = '⎯'.repeat(24);
const numbered = (count: number) => Array.from({ length: count }, (_, n) => `line ${n}`);

/** As vitest 4 prints a file in which two tests fail. */
const TWO_FAILED = `seed of generated cases: CFS_CASES_SEED=7

 RUN  v4.1.12 /a

stdout | test/a.mount.test.ts > holds
${numbered(40).join('\n')}

 ❯ |mount| test/a.mount.test.ts (3 tests | 2 failed) 49ms

⎯⎯⎯⎯⎯⎯⎯ Failed Tests 2 ⎯⎯⎯⎯⎯⎯⎯

 FAIL  |mount| test/a.mount.test.ts > holds
AssertionError: expected 1 to be 2

- Expected
+ Received

 ❯ test/a.mount.test.ts:7:55

${RULER}[1/2]⎯

 FAIL  |mount| test/a.mount.test.ts > a program ends well
Error: ended with 3
${numbered(500).join('\n')}
 ❯ ended test/harness/command.ts:59:19

${RULER}[2/2]⎯


 Test Files  1 failed (1)
`;

test('the report of a failed run has each failure with its difference and its stack, the seed, and what was said last', () => {
  const [first = [], second = [], ...more] = failuresIn(TWO_FAILED);

  expect(more).toEqual([]);
  expect(first[0]).toBe('seed of generated cases: CFS_CASES_SEED=7');
  expect(first).toContain('line 39');
  expect(first).not.toContain('line 5');
  expect(first.slice(-5)).toEqual([
    ' FAIL  |mount| test/a.mount.test.ts > holds',
    'AssertionError: expected 1 to be 2',
    '- Expected',
    '+ Received',
    ' ❯ test/a.mount.test.ts:7:55',
  ]);
  expect(second.slice(0, 2)).toEqual([
    ' FAIL  |mount| test/a.mount.test.ts > a program ends well',
    'Error: ended with 3',
  ]);
  expect(second.at(-1)).toBe(' ❯ ended test/harness/command.ts:59:19');
});

test('a failure outside of every test is one too', () => {
  const said = `seed\n ✓ |mount| test/a.mount.test.ts (1 test) 53ms\n⎯⎯⎯⎯⎯⎯ Unhandled Errors ⎯⎯⎯⎯⎯⎯\n
Vitest caught 1 unhandled error during the test run.\n\n⎯⎯⎯⎯ Unhandled Rejection ⎯⎯⎯⎯⎯\nError: nobody cares\n${RULER}\n
 Test Files  1 passed (1)\n`;

  expect(failuresIn(said).map((lines) => lines.slice(-2))).toEqual([
    ['⎯⎯⎯⎯ Unhandled Rejection ⎯⎯⎯⎯⎯', 'Error: nobody cares'],
  ]);
});

test('the report of a run without results has its last lines', () => {
  const [only = [], ...more] = failuresIn(numbered(1_000).join('\n'));

  expect(more).toEqual([]);
  expect(only.length).toBe(60);
  expect(only.at(-1)).toBe('line 999');
});

test('few failures have room for 80 lines each, and many keep the beginning and the end of each', () => {
  const failure = ['FAIL', ...numbered(300), '❯ where'];
  const one = reportOf([failure]).split('\n');
  const many = reportOf(Array.from({ length: 10 }, () => failure)).split('\n');

  expect(one.length).toBe(80);
  expect([one[0], one.at(-1)]).toEqual(['FAIL', '❯ where']);
  expect(one).toContain('… 223 lines …');
  expect(many.length).toBeLessThan(190);
  expect(many.filter((line) => line === '❯ where').length).toBe(10);
});

import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** SECURITY.md: every statement about the users of the server has a test that exists. */

const ROW = /^\| .+ \| `([\w.-]+\.test\.ts)`: (.+) \|$/;
const rows = readFileSync(new URL('../../SECURITY.md', import.meta.url), 'utf8')
  .split('\n')
  .flatMap((line) => {
    const [, file, name] = ROW.exec(line) ?? [];
    return file === undefined || name === undefined ? [] : [{ file, name }];
  });

test('the table has rows', () => {
  expect(rows.length).toBeGreaterThan(20);
});

test.each(rows)('$file has the test "$name"', ({ file, name }) => {
  const text = readFileSync(new URL(file, import.meta.url), 'utf8');

  expect(text.includes(`'${name}'`) || text.includes(`"${name}"`)).toBe(true);
});

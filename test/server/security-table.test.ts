import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

/** SECURITY.md: every statement of its last two sections has a test that exists. */

const SECTIONS = ['## A user of `cfs serve`, and the others', '## Processes and packages'];
const HEADINGS = /^\| (a user cannot|a user can|statement) \| test \|$|^\| --- \| --- \|$/;
const ROW = /^\| .+ \| `([\w./-]+\.test\.ts)`: (.+) \|$/;

const text = readFileSync(new URL('../../SECURITY.md', import.meta.url), 'utf8');
const sections = SECTIONS.map((heading) => text.split(`${heading}\n`)[1]?.split('\n## ')[0] ?? '');
const lines = sections.join('\n').split('\n');
const rows = lines.flatMap((line) => {
  const [, file, name] = ROW.exec(line) ?? [];
  return file === undefined || name === undefined ? [] : [{ file, name }];
});

test('the tables have rows', () => {
  expect(rows.length).toBeGreaterThan(35);
});

test('the sections have no statement outside the tables, except their introduction', () => {
  const others = lines.filter((line) => line !== '' && !ROW.test(line) && !HEADINGS.test(line));

  expect(others.join(' ')).toMatch(
    /^What a user of the server, [^.]*\. \S+ lists the limits [^.]*\. A test proves [^.]*\.$/,
  );
});

test.each(rows)('$file has the test "$name"', ({ file, name }) => {
  const tests = readFileSync(new URL(`../${file}`, import.meta.url), 'utf8');

  expect(tests.includes(`'${name}'`) || tests.includes(`"${name}"`)).toBe(true);
});

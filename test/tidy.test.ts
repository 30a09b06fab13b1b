import { basename } from 'node:path';
import { expect, test } from 'vitest';
import { filesBelow, textOf } from './imports.ts';

/** The style rules that a program can check, so that a review need not. */

const SOURCE_LINES_MAX = 500; // the aim is 60–350 lines; past this a file holds more than one noun
const BANNED_NAMES = /^(utils?|helpers?|common|misc|types|index|manager|shared)\.[cm]?[jt]s$|util\.ts$/;

const sources = filesBelow('src', ['.ts']);
const tests = filesBelow('test', ['.ts']);
const scripts = filesBelow('scripts', ['.mjs', '.ts']);
const all = [...sources, ...tests, ...scripts];

/** Lines of the files that match, as `file:line: text`, without those of the files in `except`. */
function linesThatMatch(files: readonly string[], pattern: RegExp, except: readonly string[] = []): string[] {
  return files
    .filter((file) => !except.includes(file) && file !== 'test/tidy.test.ts')
    .flatMap((file) =>
      textOf(file)
        .split('\n')
        .flatMap((line, index) => (pattern.test(line) ? [`${file}:${index + 1}: ${line.trim()}`] : [])),
    );
}

test('every file is named after its noun', () => {
  expect(all.filter((file) => BANNED_NAMES.test(basename(file)))).toEqual([]);
  expect(all.filter((file) => !/^[a-z0-9-]+(\.mount|\.property)?(\.test)?\.[a-z]+$/.test(basename(file)))).toEqual([]);
});

test('no source file holds more than one noun can need', () => {
  const long = sources
    .map((file) => ({ file, lines: textOf(file).split('\n').length }))
    .filter(({ lines }) => lines > SOURCE_LINES_MAX);

  expect(long).toEqual([]);
});

test('the test files that npm test and npm run soak name are there', () => {
  const lists = scripts.filter((file) => file === 'scripts/test-files.mjs' || file.startsWith('scripts/soak/'));
  const named = lists.flatMap((list) =>
    [...textOf(list).matchAll(/'(test\/[^']+\.test\.ts)'/g)].map(([, file = '']) => file),
  );

  expect(lists.length).toBeGreaterThan(1);
  expect(named.length).toBeGreaterThan(lists.length);
  expect(named.filter((file) => !tests.includes(file))).toEqual([]);
});

/** `// TODO(what is missing): what follows from it`. */
test('every TODO names what is missing and what follows from it', () => {
  const marks = linesThatMatch(all, /\b(TODO|FIXME|XXX|HACK)\b/);

  expect(marks.filter((line) => !/\bTODO\([^)]{3,}\): \S.{9,}/.test(line))).toEqual([]);
});

test('time and chance come from the clock', () => {
  expect(linesThatMatch(sources, /\b(Date\.now|Math\.random)\(|\bnew Date\(\)/, ['src/base/clock.ts'])).toEqual([]);
});

test('exports have names', () => {
  expect(linesThatMatch(sources, /^export default\b/)).toEqual([]);
});

test('no test waits for a while instead of for a condition', () => {
  // These pace what they write (a recording, a slow line): they wait for nothing.
  const pacing = ['test/store/power-cut.mount.test.ts', 'test/server/line-limits.test.ts'];

  expect(linesThatMatch(tests, /setTimeout\((resolve|r|done|cb)\b/, pacing)).toEqual([]);
});

/** A skipped test says in its name what it would need. */
test('no test is left alone or left out without a reason', () => {
  const marks = linesThatMatch(tests, /\b(test|it|describe)\.(only|skip|todo)\(/);

  expect(marks.filter((line) => !/\.skip\(.*\(needs: /.test(line))).toEqual([]);
});

test('every decision has a number of its own, and docs/architecture.md leads to it', () => {
  const decisions = filesBelow('docs/adr', ['.md']).map((file) => basename(file));
  const numbers = decisions.map((name) => name.slice(0, 4));
  const index = textOf('docs/architecture.md');

  expect(new Set(numbers).size).toBe(numbers.length);
  expect(decisions.filter((name) => !index.includes(`[${Number(name.slice(0, 4))}: `))).toEqual([]);
  expect(decisions.filter((name) => !index.includes(`(adr/${name})`))).toEqual([]);
  expect(decisions.filter((name) => !textOf(`docs/adr/${name}`).startsWith(`# ${Number(name.slice(0, 4))}. `))).toEqual(
    [],
  );
});

/** Programs in strings, and scripts, import compiled modules by paths that no compiler checks. */
test('every module of dist/ that a test or a script imports by a text has a source', () => {
  const imported = /(?:\bdist \+ '|\b(?:built|fromDist|dist)\(')\/?([a-z0-9/-]+)\.js'/g;
  const named = [...tests, ...scripts].flatMap((file) =>
    [...textOf(file).matchAll(imported)].map(([, path = '']) => ({ file, source: `src/${path}.ts` })),
  );

  expect(named.length).toBeGreaterThan(20);
  expect(named.filter(({ source }) => !sources.includes(source))).toEqual([]);
});

/** docs/glossary.md and the rules in CONTRIBUTING.md name the words to use instead. */
const PRIVATE_ENGLISH = /(?<![a-z])(whoever|somebody|nobody|unheard|mended|for ever|told|tells)(?![a-z])/i;

/** Quoted: a folder name that the mount shows, and that users may have in paths. */
const QUOTED = /UNKNOWN_OWNER = 'Somebody'/;

test('code, scripts and documents use the terms of the glossary', () => {
  const read = [
    ...['src', 'native-deps', 'scripts', 'docs'].flatMap((folder) =>
      filesBelow(folder, ['.ts', '.mjs', '.c', '.h', '.md']),
    ),
    'README.md',
  ];
  const found = linesThatMatch(read, PRIVATE_ENGLISH).filter((line) => !QUOTED.test(line));

  expect(read.length).toBeGreaterThan(sources.length + scripts.length);
  expect(found).toEqual([]);
});

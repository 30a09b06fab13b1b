import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import {
  exitCodesTable,
  GENERATED_SECTIONS,
  type GeneratedDocument,
  optionsTable,
  withGeneratedSections,
} from '../../src/cli/reference.ts';
import { optionRows } from '../../src/config/options.ts';
import { filesBelow, PROJECT, textOf } from '../imports.ts';

const documents = ['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', ...filesBelow('docs', ['.md'])];

/** Cure: `node scripts/readme.mjs`. */
test.each(Object.keys(GENERATED_SECTIONS) as GeneratedDocument[])(
  'the tables of %s are those of the code',
  (document) => {
    expect(textOf(document)).toBe(withGeneratedSections(textOf(document), document));
  },
);

test('the tables hold every option that is for everybody, and no other', () => {
  const table = optionsTable();

  for (const [, option] of optionRows()) expect(table.includes(`\`${option.flag}\``), option.flag).toBe(!option.hidden);
  expect(exitCodesTable()).toContain('| 8 | a change is parked');
});

test('every link within the documents leads somewhere', () => {
  const dead = documents.flatMap((document) =>
    [...textOf(document).matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => !/^[a-z]+:/.test(target))
      .filter((target) => !existsSync(join(PROJECT, dirname(document), target)))
      .map((target) => `${document}: ${target}`),
  );

  expect(dead).toEqual([]);
});

test('every file and folder that a document names in code style exists', () => {
  const named = /`((?:src|test|docs|scripts|native-deps)\/[\w./-]+)`/g;
  const missing = documents.flatMap((document) =>
    [...textOf(document).matchAll(named)]
      .map(([, path = '']) => path)
      .filter((path) => !existsSync(join(PROJECT, path)) && !existsSync(join(PROJECT, `${path}.ts`)))
      .map((path) => `${document}: ${path}`),
  );

  expect(missing).toEqual([]);
});

test('every npm script that a document names is in package.json', () => {
  const { scripts } = JSON.parse(textOf('package.json')) as { scripts: Record<string, string> };
  const unknown = documents.flatMap((document) =>
    [...textOf(document).matchAll(/npm run ([\w:-]+)/g)]
      .map(([, name = '']) => name)
      .filter((name) => scripts[name] === undefined),
  );

  expect(unknown).toEqual([]);
});

/** Cure: name a test that proves the promise, by its exact title in that test file. */
test('every row of docs/semantics-tests.md names an existing promise and an existing test', () => {
  const promises = new Set(
    [...textOf('docs/semantics.md').matchAll(/\*\*\[(S-[a-z]+-\d+)\]\*\*/g)].map(([, id]) => id),
  );
  const table = textOf('docs/semantics-tests.md');
  const rows = [...table.matchAll(/^\| (S-[a-z]+-\d+) \| `([^`]+)` \| (.+) \|$/gm)];

  expect(rows.length).toBeGreaterThan(20);
  expect(rows.length).toBe([...table.matchAll(/^\| S-/gm)].length);
  for (const [, id = '', file = '', name = ''] of rows) {
    expect(promises, id).toContain(id);
    expect(textOf(file).includes(name), `${id}: "${name}" in ${file}`).toBe(true);
  }
});

/** This list may only shrink. S-binding-4 describes behaviour of libfuse that our code does not produce. */
const UNPROVEN: readonly string[] = ['S-binding-4'];

/** Cure: add a row to docs/semantics-tests.md, or remove the promise. A promise needs a test. */
test('every promise of docs/semantics.md has a unique id and a test', () => {
  const bullets = textOf('docs/semantics.md').match(/^- .*/gm) ?? [];
  const ids = bullets.map((bullet) => /^- \*\*\[(S-[a-z]+-\d+)\]\*\* \S/.exec(bullet)?.[1] ?? bullet);
  const proven = new Set(
    [...textOf('docs/semantics-tests.md').matchAll(/^\| (S-[a-z]+-\d+) \|/gm)].map(([, id]) => id),
  );

  expect(ids.length).toBeGreaterThan(20);
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids.filter((id) => !proven.has(id))).toEqual(UNPROVEN);
});

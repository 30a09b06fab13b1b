import { expect, test } from 'vitest';
import { parkReasonText } from '../../src/mount/park-reason.ts';
import type { ParkReason } from '../../src/store/tables.ts';
import { filesBelow, textOf } from '../imports.ts';

/** docs/troubleshooting.md speaks of sentences that are said, and of all that a person may have to act upon. */

const text = textOf('docs/troubleshooting.md');
const sources = filesBelow('src', ['.ts']).filter((file) => !file.endsWith('/finding.ts'));
const source = [...sources, 'native-deps/fuse-kernel/mount.c'].map(textOf).join('\n');

/** The first cells of the table below a heading. */
function symptoms(heading: string): readonly string[] {
  const [, section = ''] = text.split(`\n## ${heading}\n`);
  const rows = (section.split('\n## ')[0] ?? '').match(/^\| .*/gm) ?? [];
  return rows.slice(2).map((row) => row.split(' | ')[0]?.slice(2) ?? '');
}

/** What stands in code style, cut at what differs from case to case. */
function sentences(cell: string): readonly string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].flatMap(([, said = '']) => said.split('…')).map((part) => part.trim());
}

test.each(['In daily use', 'What commands say', 'What the log says'])(
  '%s: each sentence stands in the sources',
  (heading) => {
    const said = symptoms(heading)
      .flatMap(sentences)
      .filter((part) => part !== '');

    expect(said.length).toBeGreaterThan(5);
    expect(said.filter((part) => !source.includes(part))).toEqual([]);
  },
);

/** The compiler misses a new reason here, the test below it in the document. */
const PARK_REASONS: Readonly<Record<ParkReason, true>> = {
  forbidden: true,
  quota: true,
  'name-refused': true,
  'base-lost': true,
  'not-found': true,
  conflict: true,
  'local-damage': true,
  refused: true,
};

test('each reason for which a change is parked has its cure', () => {
  expect(symptoms('Why a change is parked').flatMap(sentences).sort()).toEqual(Object.keys(PARK_REASONS).sort());
});

test.each(Object.keys(PARK_REASONS) as ParkReason[])('cfs status says what the document does of %s', (reason) => {
  const [row = ''] = text.match(new RegExp(`^\\| \`${reason}\` \\| .*`, 'm')) ?? [];
  const cause = row.split(' | ')[1] ?? '';
  const said = parkReasonText(reason, 'as answered');

  expect(said).toMatch(/^[a-z-]+: .+ \(as answered\)$/);
  expect(cause).toContain(said.slice(`${reason}: `.length, -' (as answered)'.length));
});

test('each line of the log that needs a person is explained', () => {
  const logged = sources.flatMap((file) =>
    [...textOf(file).matchAll(/\blog\.error\((.*?)\);\n/gs)].flatMap(([, args = '']) =>
      [...args.matchAll(/'([^']{4,})'/g)].map(([, message = '']) => message),
    ),
  );
  const explained = new Set(symptoms('What the log says').flatMap(sentences));

  expect(logged.length).toBeGreaterThan(10);
  expect(logged.filter((message) => !explained.has(message))).toEqual([]);
});

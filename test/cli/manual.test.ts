import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { commandRows } from '../../src/cli/command-table.ts';
import { MANUAL_PAGES } from '../../src/cli/manual.ts';
import { optionRows } from '../../src/config/options.ts';
import { EXIT_CODES } from '../../src/mount/exit-codes.ts';
import { missingPrograms, titled } from '../harness/requirement.ts';

const pages = Object.entries(MANUAL_PAGES).map(([name, make]) => [name, make('1.2.3')] as const);
const [, mountPage = ''] = pages.find(([name]) => name === 'cfs-mount.1') ?? [];
const [, cfsPage = ''] = pages.find(([name]) => name === 'cfs.1') ?? [];
/** What a person reads. */
const plain = (page: string): string => page.replaceAll('\\-', '-').replace(/\\f[BIR]/g, '');

test('the pages tell of every option, every command, every flag and every exit code', () => {
  for (const [, option] of optionRows())
    expect(plain(mountPage).includes(option.flag), option.flag).toBe(!option.hidden);
  for (const { name, flags } of commandRows()) {
    expect(plain(cfsPage)).toContain(`.SS cfs ${name}`);
    for (const { flag } of flags) expect(plain(cfsPage)).toContain(flag);
  }
  for (const [, page] of pages)
    for (const { code } of Object.values(EXIT_CODES)) expect(page).toContain(`.TP\n.B ${code}\n`);
});

test.each(pages)('%s is a page of man(7) in ASCII, and no text of it is a request', (_name, page) => {
  expect(page).toMatch(/^\.TH \S+ 1 "" "cfs\\?-mount 1\.2\.3" "User Commands"\n\.SH NAME\n/);
  expect(page).not.toMatch(/[^\n -~]/);
  const requests = new Set([...page.matchAll(/^[.'](\S+)/gm)].map(([, name = '']) => name));
  expect([...requests].sort()).toEqual(
    ['B', 'I', 'PP', 'RE', 'RS', 'SH', 'SS', 'TH', 'TP', 'fi', 'nf'].filter((name) => requests.has(name)),
  );
});

const missing = missingPrograms('groff');

test.skipIf(missing !== null).each(pages)(titled('groff has no warning for %s', missing), (_name, page) => {
  const { stderr, stdout, status } = spawnSync('groff', ['-man', '-Tascii', '-ww', '-rLL=80n'], {
    input: page,
    encoding: 'utf8',
  });

  expect(stderr).toBe('');
  expect(status).toBe(0);
  // Bold letters are printed twice.
  expect(stdout.replace(/.[\b]/g, '')).toContain('EXIT STATUS');
});

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { installDesktop, uninstallDesktop } from '../../src/cli/commands/desktop.ts';
import { thumbnailersDirectory } from '../../src/config/paths.ts';
import { jpegThumbnailer, PERL, thumbnailerEntry } from '../../src/mount/thumbnailer-entry.ts';
import { missingFile, testUnless } from '../harness/requirement.ts';
import { CommandHome } from './cli-harness.ts';

let home: CommandHome;
let said: string;

beforeEach(() => {
  home = new CommandHome();
  said = '';
});

afterEach(() => home.dispose());

function deps() {
  const print = (text: string): void => {
    said += text;
  };
  return { env: { ...home.env, XDG_DATA_DIRS: `${home.path('first')}:${home.path('second')}` }, print };
}

/** A thumbnailer of the system. */
function plant(data: string, name: string, lines: readonly string[]): void {
  mkdirSync(home.path(`${data}/thumbnailers`), { recursive: true });
  writeFileSync(home.path(`${data}/thumbnailers/${name}`), ['[Thumbnailer Entry]', ...lines, ''].join('\n'));
}

/** [S-desktop-3] */
testUnless(missingFile(PERL))('the entry names the thumbnailer that the desktop ran before', () => {
  plant('first', 'a.thumbnailer', ['Exec=/bin/svg %u %o', 'MimeType=image/svg+xml;']);
  plant('first', 'b.thumbnailer', ['TryExec=/no/such/program', 'Exec=/no/such/program', 'MimeType=image/jpeg;']);
  plant('second', 'c.thumbnailer', ['TryExec=/bin/sh', 'Exec=/bin/sh -s %s %u %o', 'MimeType=image/png;image/jpeg;']);

  expect(installDesktop(deps())).toBe(0);
  expect(installDesktop(deps())).toBe(0);

  const folder = home.path('data/thumbnailers');
  expect(readdirSync(folder)).toEqual(['cfs-mount.thumbnailer']);
  const text = readFileSync(`${folder}/cfs-mount.thumbnailer`, 'utf8');
  expect(text).toBe(thumbnailerEntry('/bin/sh -s %s %u %o'));
  expect(said).toContain('pictures outside a mount: /bin/sh -s %s %u %o');
  expect(said).toContain('after its next start (Nautilus: nautilus -q)');
});

/** [S-desktop-3] */
testUnless(missingFile(PERL))('uninstall removes the entry and nothing else, and succeeds again', async () => {
  plant('data', 'mine.thumbnailer', ['Exec=/bin/true', 'MimeType=image/gif;']);
  installDesktop(deps());
  expect(said).toContain('no other thumbnailer for JPEG files is installed');

  expect(await uninstallDesktop(deps())).toBe(0);
  expect(await uninstallDesktop(deps())).toBe(0);

  expect(readdirSync(home.path('data/thumbnailers'))).toEqual(['mine.thumbnailer']);
  expect(said).toContain('the thumbnailer is not installed');
});

test('the program in the entry has no character that a desktop replaces', () => {
  const [, program = ''] = /^Exec=\S+ -e '(.*)' %u %i %o$/m.exec(thumbnailerEntry(null)) ?? [];

  expect(program).not.toBe('');
  expect(program).not.toMatch(/[%'\\\n]/);
});

test('only an entry for JPEG files with a program counts', () => {
  const entry = (...lines: readonly string[]): string => ['[Thumbnailer Entry]', ...lines].join('\n');

  expect(jpegThumbnailer(entry('Exec=a %u', 'MimeType=image/jpeg'))).toEqual({ exec: 'a %u', tryExec: null });
  expect(jpegThumbnailer(entry('MimeType=image/jpeg;'))).toBeNull();
  expect(jpegThumbnailer(entry('Exec=a', 'MimeType=image/jpeg2000;'))).toBeNull();
  expect(jpegThumbnailer(entry('TryExec=b', 'Exec = a %o', 'MimeType=x/y;image/jpeg;'))).toEqual({
    exec: 'a %o',
    tryExec: 'b',
  });
});

test('the thumbnailers are below XDG_DATA_HOME, or ~/.local/share', () => {
  expect(thumbnailersDirectory({ HOME: '/home/ann', XDG_DATA_HOME: '/d' })).toBe('/d/thumbnailers');
  expect(thumbnailersDirectory({ HOME: '/home/ann', XDG_DATA_HOME: 'here' })).toBe(
    '/home/ann/.local/share/thumbnailers',
  );
});

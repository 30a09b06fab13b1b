import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { mountProgram, packagedUnit } from '../../src/cli/commands/service.ts';
import { type ServiceUnit, unitNameOf, unitText } from '../../src/cli/commands/service-unit.ts';
import { missingPrograms, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

const UNIT: ServiceUnit = {
  title: 'ann@example.com at /home/ann/Cloud',
  directory: '/home/ann/Cloud',
  command: ['/usr/bin/node', '/opt/cfs/cfs-mount.js', '--foreground', '--', '/home/ann/Cloud'],
  env: {},
  stopMs: 35_000,
  lasting: [2, 6],
};

/** For systemd a line ends at a newline, not at what JavaScript's `$` takes for one, too (U+2028, a carriage return). */
function setting(name: string, text: string): string {
  const line = text.split('\n').find((each) => each.startsWith(`${name}=`));
  return line?.slice(name.length + 1) ?? '';
}

function execStart(text: string): string {
  return setting('ExecStart', text);
}

/** What systemd makes of a command line (systemd.service(5)): as of a setting, then `$$`. */
function wordsOf(line: string): string[] {
  return settingsOf(line).map((word) => word.replaceAll('$$', '$'));
}

/** What systemd makes of `Environment=` (systemd.exec(5)): quotes and C escapes, then `%%`; "the $ character has no special meaning". */
function settingsOf(line: string): string[] {
  return [...line.matchAll(/"((?:[^"\\]|\\.)*)"|(\S+)/gs)].map(([, inQuotes, plain]) =>
    (inQuotes ?? plain ?? '')
      .replace(/\\x([0-9a-f]{2})|\\(.)/gs, (_all, hex: string | undefined, character: string) =>
        hex === undefined ? character : String.fromCharCode(Number.parseInt(hex, 16)),
      )
      .replaceAll('%%', '%'),
  );
}

test('the unit tells the manager what it needs', () => {
  const text = unitText(UNIT);

  expect(execStart(text)).toBe('/usr/bin/node /opt/cfs/cfs-mount.js --foreground -- /home/ann/Cloud');
  for (const line of [
    'Type=notify',
    'NotifyAccess=all',
    'FileDescriptorStoreMax=4',
    'OOMPolicy=continue',
    'KillMode=mixed',
    'TimeoutStopSec=35',
    'Restart=on-failure',
  ])
    expect(text.split('\n')).toContain(line);
  expect(text).toContain('RestartPreventExitStatus=2 6\n');
  expect(text).toContain('WantedBy=default.target');
});

/** `%` is a specifier there, `$` a variable, and a newline would be the next setting. */
test('whatever the words are, systemd gets them as they are, in one line each', () => {
  const word = fc.string({ unit: 'grapheme', minLength: 1 }).filter((text) => !text.includes('\0'));
  fc.assert(
    fc.property(fc.array(word, { minLength: 1 }), word, (words, title) => {
      const command = ['/usr/bin/node', ...words];
      const text = unitText({ ...UNIT, command, title, directory: `/${title}`, env: { XDG_STATE_HOME: title } });

      expect(wordsOf(execStart(text))).toEqual(command);
      expect(settingsOf(setting('Environment', text))).toEqual([`XDG_STATE_HOME=${title}`]);
      expect(text.split('\n')).toHaveLength(unitText(UNIT).split('\n').length + 1);
    }),
    { examples: [[['$HOME', '$$'], '/srv/a$b$$']] },
  );
});

test.each([
  ['/home/ann/Cloud', 'cfs-mount-home-ann-Cloud.service'],
  ['/home/ann/My Cloud/', 'cfs-mount-home-ann-My\\x20Cloud.service'],
  ['/.cloud/a-b', 'cfs-mount-\\x2ecloud-a\\x2db.service'],
  ['/mnt/ö', 'cfs-mount-mnt-\\xc3\\xb6.service'],
])('the unit of %s is %s', (directory, name) => {
  expect(unitNameOf(directory)).toBe(name);
});

test('the templates start the program by a path that an upgrade keeps', () => {
  expect(execStart(packagedUnit('user'))).toBe('/usr/bin/cfs-mount --foreground -- %f');
  expect(execStart(packagedUnit('system'))).toBe('/usr/bin/cfs-mount --foreground -- \x24{DIRECTORY}');
  expect(setting('User', packagedUnit('system'))).toBe('%i');
  expect(setting('WantedBy', packagedUnit('user'))).toBe('default.target');
  expect(setting('WantedBy', packagedUnit('system'))).toBe('multi-user.target');
});

test('a unit names the link of the package if it leads to this program, and the paths of this version otherwise', () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-unit-'));
  try {
    symlinkSync(join(PROJECT, 'bin/cfs-mount'), join(directory, 'ours'));
    writeFileSync(join(directory, 'other'), '');

    expect(mountProgram(join(directory, 'ours'))).toEqual([join(directory, 'ours')]);
    for (const name of ['other', 'none'])
      expect(mountProgram(join(directory, name))).toEqual([process.execPath, expect.stringMatching(/cfs-mount\.js$/)]);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

testUnless(missingPrograms('systemd-analyze'))('systemd-analyze finds nothing to say', () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-unit-'));
  try {
    const path = join(directory, 'cfs-mount-home.service');
    const command = [process.execPath, '/a b/%h $HOME "x"\\', '--', '/home/ann/Cloud'];
    const man = unitText({ ...UNIT, command, env: { XDG_STATE_HOME: '/a b/%' } });
    // The pages are not installed here.
    writeFileSync(path, man.replace(/^Documentation=.*\n/m, ''));
    const template = join(directory, 'cfs-mount-home@.service');
    // Programs are looked for as well.
    const installed = packagedUnit('user').replace('=/usr/bin/cfs-mount ', '=/bin/sh ');
    writeFileSync(template, installed.replace(/^Documentation=.*\n/m, ''));
    const { stderr, status } = spawnSync(
      'systemd-analyze',
      ['verify', '--user', path, template.replace('@', '@srv-cloud')],
      {
        encoding: 'utf8',
        env: { ...process.env, XDG_RUNTIME_DIR: directory },
      },
    );

    expect(stderr.split('\n').filter((line) => line.includes('cfs-mount-home'))).toEqual([]);
    expect(status).toBe(0);
    const system = join(directory, 'cfs-mount-system@.service');
    writeFileSync(
      system,
      packagedUnit('system')
        .replace('=/usr/bin/cfs-mount ', '=/bin/sh ')
        .replace(/^Documentation=.*\n/m, ''),
    );
    const verified = spawnSync('systemd-analyze', ['verify', system.replace('@', '@root')], { encoding: 'utf8' });
    expect(verified.stderr.split('\n').filter((line) => line.includes('cfs-mount-system'))).toEqual([]);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

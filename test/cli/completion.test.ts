import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { commandRows } from '../../src/cli/command-table.ts';
import { completionOf } from '../../src/cli/completion/completion.ts';
import { optionRows } from '../../src/config/options.ts';
import { missingPrograms, testUnless } from '../harness/requirement.ts';

/** bash, with our script and what is typed; zsh and fish where they are. */

let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-completion-'));
  for (const name of ['17@api.example.com', '18@api.example.com'])
    mkdirSync(join(directory, 'state/cfs/accounts', name), { recursive: true });
  mkdirSync(join(directory, 'a folder'));
  writeFileSync(join(directory, 'a file'), '');
  writeFileSync(join(directory, 'cfs.bash'), completionOf('bash'));
});

afterAll(() => rmSync(directory, { recursive: true }));

/** What bash offers when Tab is pressed behind these words. */
function offered(...words: string[]): string[] {
  const script = [
    'source "$1/cfs.bash"; cd "$1"; shift',
    'COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}',
    'entry=$(complete -p "$1"); function=${entry#*-F }; "${function%% *}"',
    'for each in "${COMPREPLY[@]}"; do printf "%s\\n" "$each"; done',
  ];
  const env = { ...process.env, XDG_STATE_HOME: join(directory, 'state') };
  const args = ['--norc', '-c', script.join('\n'), 'bash', directory, ...words];
  const { stdout, stderr, status } = spawnSync('bash', args, { encoding: 'utf8', env });
  expect(stderr).toBe('');
  expect(status).toBe(0);
  return stdout.split('\n').filter((line) => line !== '');
}

test('every command is offered, and those that begin with what is typed', () => {
  const firstWords = new Set(commandRows().map(({ name }) => name.split(' ')[0] ?? ''));

  expect(offered('cfs', '').sort()).toEqual([...firstWords].sort());
  expect(offered('cfs', 'doc')).toEqual(['doctor']);
  expect(offered('cfs', 'serve', 'user', 'a')).toEqual(['add']);
  expect(offered('cfs', 'service', '').sort()).toEqual(['install', 'remove']);
});

test('flags of the command in hand are offered, those of cfs-mount with every option that is for everybody', () => {
  expect(offered('cfs', 'doctor', '-').sort()).toEqual(['--account', '--help', '--json', '--store', '-h']);
  expect(offered('cfs', 'sync', '--wa')).toEqual(['--wait']);
  const mount = offered('cfs-mount', '--');
  for (const [, option] of optionRows()) expect(mount.includes(option.flag), option.flag).toBe(!option.hidden);
  expect(mount).toContain('--foreground');
});

test('a flag is followed by what fits it, after a blank and after a sign of equality', () => {
  const accounts = ['17@api.example.com', '18@api.example.com'];

  expect(offered('cfs', 'sync', '--account', '')).toEqual(accounts);
  expect(offered('cfs', 'sync', '--account', '=', '')).toEqual(accounts);
  expect(offered('cfs', 'sync', '--account', '=', '18')).toEqual(['18@api.example.com']);
  expect(offered('cfs', 'serve', '--log-level', 'd')).toEqual(['debug']);
  expect(offered('cfs-mount', '--log-level', 's')).toEqual(['silent']);
  expect(offered('cfs-mount', '--delete', '')).toEqual(['trash', 'forever']);
  expect(offered('cfs', 'sync', '--timeout', '')).toEqual([]);
});

test('paths with blanks are one word, directories where only they will do', () => {
  expect(offered('cfs-mount', 'a')).toEqual(['a folder']);
  expect(offered('cfs-mount', '--foreground', 'a')).toEqual(['a folder']);
  expect(offered('cfs-mount', '--settle', '2s', 'a')).toEqual(['a folder']);
  expect(offered('cfs', 'sync', '--wait', 'a').sort()).toEqual(['a file', 'a folder']);
  expect(offered('cfs', 'umount', '--', 'a')).toEqual(['a folder']);
});

test('the shells are those that the table names', () => {
  const row = commandRows().find(({ name }) => name === 'completion');
  const [shell] = row?.args ?? [];

  for (const each of shell?.choices ?? []) expect(completionOf(each)).toContain('cfs-mount');
  expect(() => completionOf('tcsh')).toThrow('no completion for tcsh: bash, zsh, fish');
});

testUnless(missingPrograms('zsh'))('zsh can read it, and offers commands', () => {
  writeFileSync(join(directory, '_cfs'), completionOf('zsh'));
  const script =
    'fpath=($1 $fpath); autoload -U compinit; compinit -u -D; autoload +X _cfs; (( $+_comps[cfs] && $+_comps[cfs-mount] ))';
  const { stderr, status } = spawnSync('zsh', ['-fc', script, 'zsh', directory], { encoding: 'utf8' });

  expect(stderr).toBe('');
  expect(status).toBe(0);
  expect(spawnSync('zsh', ['-n', join(directory, '_cfs')]).status).toBe(0);
});

testUnless(missingPrograms('fish'))('fish can read it, and offers what fits', () => {
  writeFileSync(join(directory, 'cfs.fish'), completionOf('fish'));
  const offers = (line: string): string[] => {
    const script = `source ${join(directory, 'cfs.fish')}; complete -C'${line}'`;
    const { stdout, stderr } = spawnSync('fish', ['--no-config', '-c', script], { encoding: 'utf8' });
    expect(stderr).toBe('');
    return stdout.split('\n').map((each) => each.split('\t')[0] ?? '');
  };

  expect(offers('cfs doc')).toContain('doctor');
  expect(offers('cfs doctor --')).toContain('--store');
  expect(offers('cfs doctor --')).not.toContain('--wait');
  expect(offers('cfs-mount --log-level ')).toContain('debug');
});

import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { PROJECT, textOf } from '../imports.ts';

/** How bin/cfs-mount finds Node. A script that prints its arguments stands for Node. */

let directory: string;

beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'cfs-start-')));
  place('lib/cfs-mount/bin/cfs-mount');
  copyFileSync(join(PROJECT, 'bin/cfs-mount'), at('lib/cfs-mount/bin/cfs-mount'));
});

afterEach(() => rmSync(directory, { recursive: true }));

test('both programs start by the same text', () => {
  expect(textOf('bin/cfs')).toBe(textOf('bin/cfs-mount'));
});

test('the Node beside a link to the program runs it, before one on PATH', () => {
  node('prefix/bin/node', 'beside');
  node('elsewhere/node', 'on PATH');
  link('prefix/bin/cfs-mount', '../../lib/cfs-mount/bin/cfs-mount');
  link('system/cfs-mount', at('prefix/bin/cfs-mount'));

  const { stdout } = start('system/cfs-mount', `${at('elsewhere')}:/usr/bin`, ['a b', '--flag']);

  const [, found, program = '', rest] = /^(.*?) \[(.*?)\] (.*)\n$/.exec(stdout) ?? [];
  expect([found, rest]).toEqual(['beside', '[a b] [--flag]']);
  expect(resolve(program)).toBe(at('lib/cfs-mount/dist/cli/cfs-mount.cjs'));
});

test('the Node beside the program runs it, before one beside a link', () => {
  node('usr/bin/node', 'of the system');
  node('lib/cfs-mount/bin/node', 'of the package');
  link('usr/bin/cfs-mount', '../../lib/cfs-mount/bin/cfs-mount');

  expect(start('usr/bin/cfs-mount', `${at('usr/bin')}:/usr/bin`, []).stdout).toMatch(/^of the package \[/);
});

test('without one beside it, Node is found on PATH', () => {
  node('elsewhere/node', 'on PATH');
  mkdirSync(at('lib/cfs-mount/bin/node')); // a folder of that name is no program

  expect(start('lib/cfs-mount/bin/cfs-mount', `${at('elsewhere')}:/usr/bin`, []).stdout).toMatch(/^on PATH \[/);
});

test('without any Node it says what to do, and ends with 127', () => {
  const tools = at('tools');
  mkdirSync(tools);
  symlinkSync(execFileSync('sh', ['-c', 'command -v readlink'], { encoding: 'utf8' }).trim(), join(tools, 'readlink'));

  const { status, stderr } = start('lib/cfs-mount/bin/cfs-mount', tools, []);

  expect(status).toBe(127);
  expect(stderr).toMatch(/^cfs-mount: Node is not found, .*: install Node 20 or later, or link it: ln -s .*\n$/);
});

function at(path: string): string {
  return join(directory, path);
}

function place(path: string): void {
  mkdirSync(dirname(at(path)), { recursive: true });
}

function link(path: string, target: string): void {
  place(path);
  symlinkSync(target, at(path));
}

function node(path: string, name: string): void {
  place(path);
  writeFileSync(at(path), `#!/bin/sh\nprintf '${name}'; printf ' [%s]' "$@"; echo\n`);
  chmodSync(at(path), 0o755);
}

function start(path: string, searched: string, args: readonly string[]) {
  return spawnSync(at(path), args, { encoding: 'utf8', env: { PATH: searched } });
}

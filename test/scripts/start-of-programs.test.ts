import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MOUNT_FLAGS } from '../../src/mount/launch.ts';
import { PROJECT, textOf } from '../imports.ts';

/** How bin/cfs-mount finds Node, and waits for it. A script stands for Node. */

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

test('a mount in the background is one process, and the shell waits for its answer', () => {
  answering('log /state/mount.log', '0 17 mounted ann@example.com at /home/ann/Cloud');

  const { status, stdout, stderr } = mounting(['--read-only', 'Cloud'], {
    CFS_PASSWORD: 'secret',
    CFS_PRIVATE_ACCESS_KEY: 'secret',
    CFS_MOUNT_REQUEST: '{}',
  });

  expect([status, stdout, stderr]).toEqual([0, 'mounted ann@example.com at /home/ann/Cloud\n', '']);
  const [words = '', ...variables] = said();
  const program = `${at('lib/cfs-mount/bin')}/../dist/mount/mounting-process.cjs`;
  expect(words).toBe(['', ...MOUNT_FLAGS, program, '--read-only', 'Cloud'].join(' '));
  expect(variables).toEqual(['secrets:', 'threads: 16']);
});

test('a failed start is printed with its exit code', () => {
  answering('log /state/mount.log', '7 17 cfs-mount: the service\ncfs-mount: is away');

  const { status, stdout, stderr } = mounting(['Cloud']);

  expect([status, stdout, stderr]).toEqual([7, '', 'cfs-mount: the service\ncfs-mount: is away\n']);
});

test('the death of the mounting process is reported with the place of its log', () => {
  answering('log /state/mount.log');

  const { status, stderr } = mounting(['Cloud']);

  expect([status, stderr]).toEqual([
    1,
    'cfs-mount: the mount process ended immediately; its log is /state/mount.log\n',
  ]);
});

test.each([
  ['asks for it', ['launch']],
  ['ends without an answer', []],
])('the launcher runs if the mounting process %s', (_what, lines) => {
  answering(...lines);

  expect(mounting(['a b', 'Cloud']).stdout).toMatch(/cfs-mount\.cjs a b Cloud\n$/);
});

test.each([
  [['-f', 'Cloud'], {}],
  [['Cloud', '--foreground'], {}],
  [['--continuity', 'Cloud'], {}],
  [['Cloud'], { NOTIFY_SOCKET: '/run/notify' }],
  [['Cloud'], { LISTEN_PID: '17' }],
])('the launcher runs at once for %j with %j', (args, env) => {
  answering('log /state/mount.log', '0 17 mounted');

  expect(mounting(args, env).stdout).toMatch(/\/dist\/cli\/cfs-mount\.cjs /);
});

/** Node answers with these lines as the mounting process; otherwise it prints its arguments. */
function answering(...lines: readonly string[]): void {
  place('lib/cfs-mount/bin/node');
  const answer = lines.length === 0 ? ':' : `printf '%s\\n' ${lines.map((line) => `'${line}'`).join(' ')} >&3`;
  writeFileSync(
    at('lib/cfs-mount/bin/node'),
    `#!/bin/sh
case "$*" in *mounting-process.cjs*)
  { echo " $*"; echo "secrets:$CFS_PASSWORD$CFS_PRIVATE_ACCESS_KEY$CFS_MOUNT_REQUEST"; echo "threads: $UV_THREADPOOL_SIZE"; } > '${at('said')}'
  ${answer}
  exit ;;
esac
echo "$*"
`,
  );
  chmodSync(at('lib/cfs-mount/bin/node'), 0o755);
}

function said(): readonly string[] {
  return readFileSync(at('said'), 'utf8').trimEnd().split('\n');
}

function mounting(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const PATH = process.env.PATH;
  return spawnSync(at('lib/cfs-mount/bin/cfs-mount'), args, { encoding: 'utf8', env: { PATH, ...env } });
}

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

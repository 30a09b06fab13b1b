import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ExitReason, exitCode } from '../../src/mount/exit-codes.ts';
import { type CommandResult, runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { inMountNamespace } from '../harness/mount-namespace.ts';
import { missingForOtherUsers, missingRoot, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** Beside a running mount: whatever is wrong is one clear sentence with its own exit code, and nothing was changed by it. */

let mount: MountFixture;
let before: string;
const at = (name: string): string => join(mount.directory, name);
const beside = (name: string): string => join(mount.directory, '..', name);

beforeAll(async () => {
  mount = await MountFixture.start({ flags: ['--settle', '1h'] });
  await mount.run(`mkdir folder && printf one > pushed.txt && printf two > "$(printf 'new\\nline')"`);
  await mount.sync();
  await mount.run('printf x > unpushed.txt');
  mkdirSync(beside('full'));
  writeFileSync(join(beside('full'), 'mine'), 'mine');
  before = await everything();
});

afterAll(async () => {
  await mount.dispose();
});

/** Names, sizes and bytes in the mount and beside it, what waits, and what the service has. */
async function everything(): Promise<string> {
  const local = await mount.run(`find . -printf '%p %s %T@\\n' | sort; cat pushed.txt unpushed.txt; ls -A ../full`);
  const { stdout } = await mount.cfs(['status', '--json']);
  const { accounts } = JSON.parse(stdout) as { accounts: { status: { pending: { changes: { path: string }[] } } }[] };
  return JSON.stringify([
    local.stdout,
    accounts[0]?.status.pending.changes.map(({ path }) => path),
    [...(await mount.serverTree())].sort(),
  ]);
}

function expectRefusal(result: CommandResult, reason: ExitReason, sentence: string): void {
  expect(result.stderr).toContain(sentence);
  expect(result.stderr.trim().split('\n'), result.stderr).toHaveLength(1);
  expect(result.stderr).not.toMatch(/^\s+at |node:internal|unexpected failure/m);
  expect(result.stdout).toBe('');
  expect(result.code).toBe(exitCode(reason));
}

type Row = readonly [args: () => readonly string[], reason: ExitReason, sentence: string];

describe('is refused, and changes nothing', () => {
  test.each<Row>([
    [() => ['log', '/etc/hostname'], 'notMounted', '/etc/hostname is not in a running mount'],
    [() => ['log', '--account', 'zoe'], 'notMounted', 'zoe is not mounted'],
    [() => ['pause', '--for', 'soon'], 'usage', '--for: "soon" is not a duration'],
    [() => ['pause', '--account', 'zoe'], 'notMounted', 'zoe is not mounted'],
    [() => ['resume', '--account', 'zoe'], 'notMounted', 'zoe is not mounted'],
    [() => ['conflicts', '--account', 'zoe'], 'notMounted', 'zoe is not mounted'],
    [() => ['conflicts', 'diff', at('pushed.txt')], 'usage', 'has no conflict'],
    [() => ['conflicts', 'keep', 'nothing', at('pushed.txt')], 'usage', 'nothing is not one of: mine, theirs, '],
    [() => ['conflicts', 'keep', 'mine', at('pushed.txt')], 'usage', 'has no conflict'],
    [() => ['limit', '--up', '0'], 'usage', '--up: 0 would stop all transfers'],
    [() => ['limit', '--down', 'fast'], 'usage', '--down: "fast" is not a size'],
    [() => ['limit', '--account', 'zoe'], 'notMounted', 'zoe is not mounted'],
    [() => ['evict', at('missing')], 'missing', 'there is no missing in this mount'],
    [() => ['evict', at('unpushed.txt')], 'pending', 'has bytes that exist on this machine only'],
    [() => ['share', 'list', '--account', 'zoe'], 'signIn', 'no account zoe'],
    [() => ['restore', at('folder'), '--at', 'monday'], 'usage', '--at: "monday" is not a time'],
    [() => ['restore', at('folder'), '--at', '2026-01-01', '--to', 'x'], 'usage', '--at and --to cannot be combined'],
    [() => ['restore', at('missing'), '--at', '2026-01-01'], 'missing', 'there is no '],
    [() => ['versions', '/etc/hostname'], 'notMounted', '/etc/hostname is not in a running mount'],
    [() => ['versions', at('missing')], 'missing', 'there is no '],
    [() => ['versions', at('folder')], 'usage', 'is a folder: it has no versions'],
    [() => ['restore', at('pushed.txt')], 'usage', 'no version given'],
    [() => ['restore', `${at('pushed.txt')}@1999`], 'missing', 'has no version 1999: cfs versions lists them'],
    [() => ['restore', `${at('pushed.txt')}@-7`], 'missing', 'has no version -7'],
    [() => ['restore', `${at('unpushed.txt')}@latest`], 'pending', 'is not on the service yet: cfs sync --wait'],
    [() => ['restore', `${at('missing')}@latest`], 'missing', 'there is no '],
    [() => ['restore', `${at('new\nline')}@1999`], 'missing', 'new\\x0aline has no version 1999'],
    [() => ['restore', `${at('pushed.txt')}@latest`, '--to', join(beside('full'), 'mine')], 'usage', 'already exists'],
    [
      () => ['restore', `${at('pushed.txt')}@latest`, '--to', '/nowhere/at/all'],
      'missing',
      'there is no folder /nowhere/at',
    ],
    [() => ['restore', `${at('pushed.txt')}@latest`, '--to', '/proc/version/x'], 'missing', '/proc/version'],
    [() => ['diff', `${at('pushed.txt')}@1999`, at('pushed.txt')], 'missing', 'has no version 1999'],
    [() => ['diff', '/etc/hostname', at('pushed.txt')], 'notMounted', 'is not in a running mount'],
    [() => ['share', 'link', at('folder')], 'usage', 'is a folder'],
    [() => ['share', 'link', at('unpushed.txt')], 'pending', 'is not on the service yet'],
    [() => ['share', 'link', '--off', '/etc/hostname'], 'notMounted', 'is not in a running mount'],
    [() => ['trash', 'restore', 'a\nb'], 'missing', 'no item in the trash has the name or id a\\x0ab'],
    [() => ['trash', 'restore', 'x', '--to', '/etc'], 'notMounted', '/etc is not in a running mount'],
    [() => ['trash', 'restore', 'x', '--to', at('pushed.txt')], 'usage', 'already exists: nothing was changed'],
    [() => ['trash', 'list', '--account', 'zoe'], 'signIn', 'no account zoe'],
    [() => ['export', beside('full')], 'usage', 'is not empty: name a new or empty directory'],
    [() => ['export', join(beside('full'), 'mine')], 'usage', 'is not a directory: name a new or empty one'],
    [() => ['export', at('folder')], 'usage', 'is inside the mount'],
    [() => ['export', beside('out'), '--account', 'zoe'], 'signIn', 'no account zoe'],
    [() => ['logout'], 'alreadyMounted', 'cfs umount first'],
    [() => ['metrics', '--account', 'zoe'], 'notMounted', 'zoe is not mounted'],
    [() => ['log-level', 'loud'], 'usage', 'loud is not one of: error, warn, '],
    [() => ['log-level', '--account', 'zoe'], 'notMounted', 'zoe is not mounted'],
    [() => ['sync', '--wait', at('missing')], 'missing', 'there is no missing in this mount'],
    [() => ['sync', at('missing')], 'missing', 'there is no missing in this mount'],
    [() => ['refresh', at('missing')], 'missing', 'there is no missing in this mount'],
    [() => ['retry', at('missing')], 'missing', 'there is no missing in this mount'],
    [() => ['umount', '/mnt/x\ny'], 'notMounted', 'no cfs mount is running at /mnt/x\\x0ay'],
    [() => ['login', '--private-access-key-file', '/nowhere'], 'usage', 'cannot read /nowhere (ENOENT)'],
    [() => ['login', '--password-stdin'], 'usage', 'standard input is empty'],
  ])('row %#', async (args, reason, sentence) => {
    expectRefusal(await mount.cfs(args(), { anyExitCode: true, input: '' }), reason, sentence);
  });

  test('nothing was changed by any of them', async () => {
    expect(await everything()).toBe(before);
  });
});

/** A file system in a mount namespace of its own that has room for names and for no byte. */
testUnless(missingRoot())(
  'a full disk is told by every command that writes, and what could not be written whole is not there',
  async () => {
    await mount.run('head -c 65536 /dev/urandom > large.bin');
    await mount.sync();
    await mount.run('printf y > unpushed.txt');
    mkdirSync(beside('small'));
    const commands: Readonly<Record<string, string>> = {
      login: `XDG_STATE_HOME="$PWD/state" cfs login ${mount.server.account.url}`,
      restore: `cfs restore "${at('large.bin')}@latest" --to copy`,
      diff: `TMPDIR="$PWD" cfs diff "${at('large.bin')}@latest" "${at('large.bin')}"`,
      export: 'cfs export out',
      service: `XDG_CONFIG_HOME="$PWD/config" cfs service install "${mount.directory}"`,
    };
    const script = `mount -t tmpfs -o size=16k none "${beside('small')}" && cd "${beside('small')}"
    head -c 16384 /dev/zero > full
    cfs() { "${process.execPath}" "${join(PROJECT, 'dist/cli/cfs.js')}" "$@"; }
    ${Object.entries(commands)
      .map(([name, command]) => `${command}; echo "${name} ended with $?"`)
      .join('\n')}
    find . -type f`;

    const { stdout, stderr } = await runCommand(inMountNamespace(script, mount.directory), { env: mount.env() });

    const ended = Object.keys(commands).map((name) => `${name} ended with ${exitCode('store')}\n`);
    expect(stdout, stderr).toBe(`${ended.join('')}./full\n`);
    for (const line of stderr.trimEnd().split('\n'))
      expect(line).toMatch(/^cfs: \S+: no space is left on the disk \(ENOSPC\)$/);
    expect(stderr.trimEnd().split('\n')).toHaveLength(ended.length);
  },
);

testUnless(missingRoot())(
  'what a full disk takes a part of, or nothing, is told by the command that printed it',
  async () => {
    mkdirSync(beside('page'));
    const script = `mount -t tmpfs -o size=16k none "${beside('page')}" && cd "${beside('page')}"
    head -c 12288 /dev/zero > nearly-full
    cfs() { "${process.execPath}" "${join(PROJECT, 'dist/cli/cfs.js')}" "$@"; }
    cfs completion bash > words; echo "ended with $? after $(stat -c %s words)"
    cfs accounts > names; echo "ended with $? after $(stat -c %s names)"`;

    const { stdout, stderr } = await runCommand(inMountNamespace(script, mount.directory), { env: mount.env() });

    expect(stdout, stderr).toBe(
      `ended with ${exitCode('store')} after 4096\nended with ${exitCode('store')} after 0\n`,
    );
    expect(stderr).toBe('cfs: standard output: no space is left on the disk (ENOSPC)\n'.repeat(2));
  },
);

testUnless(missingForOtherUsers())(
  "another user's socket is refused by the system, and every command says whose mount it is",
  async () => {
    const home = new CommandHome();
    try {
      // The other user knows the account by the same name, and was given the address of the first one's sockets.
      const { accounts } = JSON.parse((await mount.cfs(['accounts', '--json'])).stdout) as {
        accounts: { name: string }[];
      };
      home.plantAccount({ origin: mount.server.account.url, userId: accounts[0]?.name.split('@')[0] ?? '' });
      await runCommand(['chown', '-R', '65534:65534', home.directory]);
      const cfs = [process.execPath, join(PROJECT, 'dist/cli/cfs.js')];
      const as = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'];
      const env = { ...home.env, XDG_RUNTIME_DIR: mount.env().XDG_RUNTIME_DIR };
      const file = at('pushed.txt');
      const ofMounts = [['sync', '--wait'], ['refresh'], ['retry'], ['umount'], ['metrics'], ['log-level', 'debug']];
      const ofFiles = [['versions'], ['share', 'link'], ['pin'], ['unpin'], ['discard', '--yes'], ['diff', file]];

      for (const words of [...ofMounts, ...ofFiles.map((each) => [...each, file]), ['restore', `${file}@latest`]]) {
        const result = await runCommand([...as, ...cfs, ...words], { env, anyExitCode: true });

        expectRefusal(result, 'notMounted', 'belongs to another user');
      }
      expect((await mount.cfs(['status'])).stdout).toContain('mounted');
    } finally {
      home.dispose();
    }
  },
);

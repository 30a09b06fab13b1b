import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import { type CommandResult, runCommand } from '../harness/command.ts';
import { inMountNamespace } from '../harness/mount-namespace.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';
import { PROJECT, textOf } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/**
 * mount(8) and fstab(5), as root: `mount -t fuse.cfs-mount` finds `cfs-mount` through mount.fuse3, without PATH. In a mount
 * namespace of its own, where /etc/fstab and /usr/local/sbin are ours; what is mounted there goes with it. /usr/local/sbin is as
 * npm leaves a folder of programs: Node, and a link to ours beside it. /usr/bin has no Node.
 */

const ANN = 'ann@example.com';
const BOB = 'bob@example.com';
let home: CommandHome;
let server: ReferenceServer;

beforeAll(async () => {
  server = await ReferenceServer.start();
  home = new CommandHome();
  for (const name of ['bin', 'ann', 'bob']) mkdirSync(home.path(name));
  symlinkSync(join(PROJECT, 'bin/cfs-mount'), home.path('bin/cfs-mount'));
  writeFileSync(home.path('bin/node'), '');
  for (const email of [ANN, BOB]) await signIn(email);
});

afterAll(async () => {
  home.dispose();
  await server.dispose();
});

/** Two accounts of one service, both signed in here. */
async function signIn(email: string): Promise<void> {
  const secret = { CFS_PASSWORD: 'a password' };
  const added = await home.run('cfs', ['serve', 'user', 'add', email, '--data', server.data], { env: secret });
  const told = Object.fromEntries(added.stdout.split('\n').map((line) => line.split(/=(.*)/s).slice(0, 2)));
  const { code, stderr } = await home.run('cfs', ['login'], { env: { ...told, ...secret } });
  expect(stderr).toBe('');
  expect(code).toBe(0);
}

/** Those of the line in README.md, but for the user, whom this machine does not have. */
function optionsOfReadme(): string {
  const [, words = ''] = /^\S+ \S+ fuse\.cfs-mount (\S+) 0 0$/m.exec(textOf('README.md')) ?? [];
  expect(words).toContain('setuid=ann');
  return words.replace('setuid=ann', 'nodev');
}

/** A script in a mount namespace with our fstab. Its mounts are ended in order, whatever happened. */
function inNamespace(script: string): Promise<CommandResult> {
  const cfs = `/usr/local/sbin/node '${join(PROJECT, 'dist/cli/cfs.js')}'`;
  const prepared = [
    'set -e',
    `mount --bind '${process.execPath}' '${home.path('bin/node')}'`,
    `mount --rbind '${home.path('bin')}' /usr/local/sbin`,
    'if [ -e /usr/bin/node ]; then mount --bind /dev/null /usr/bin/node; fi',
    `printf '%s\\n' '${ANN} ${home.path('ann')} fuse.cfs-mount ${optionsOfReadme()},noatime,_netdev,nofail 0 0' > '${home.path('fstab')}'`,
    `mount --bind '${home.path('fstab')}' /etc/fstab`,
    `ann='${home.path('ann')}'; bob='${home.path('bob')}'`,
    `cfs() { ${cfs} "$@"; }`,
    `trap 'for each in "$ann" "$bob"; do cfs umount "$each" --now > "$ann.log" 2>&1 || true; done' EXIT`,
    script,
  ];
  return runCommand(inMountNamespace(prepared.join('\n'), null), {
    env: home.env,
    anyExitCode: true,
    timeoutMs: 60_000,
  });
}

testUnless(missingRoot())('a line of fstab mounts an account, beside another one with its own store', async () => {
  const { stdout, stderr, code } = await inNamespace(`
    mount "$ann"
    mount -t fuse.cfs-mount ${BOB} "$bob" -o umask=077
    grep " $ann " /proc/mounts
    grep " $bob " /proc/mounts
    echo of-ann > "$ann/file"
    echo of-bob > "$bob/file"
    cfs sync --wait --account ${ANN}
    cfs sync --wait --account ${BOB}
    cat "$ann/file" "$bob/file"
    cfs status
    umount "$ann"
    cat "$bob/file"`);

  expect(stderr).toBe('');
  expect(code).toBe(0);
  const [annLine = '', bobLine = ''] = stdout.split('\n').filter((line) => line.includes(' fuse.'));
  expect(annLine).toMatch(/ fuse\.cfs-mount rw,nosuid,nodev,noatime,/);
  expect(bobLine).toMatch(/ fuse\.cfs-mount rw,nosuid,nodev,/);
  expect(stdout).toContain('of-ann\nof-bob\n');
  expect(stdout.match(/^ {2}mounted {4}/gm)).toHaveLength(2);
  expect(stdout).toMatch(/of-bob\n$/);
});

testUnless(missingRoot())(
  'the mount helper prints the error on the terminal and returns the exit code of cfs-mount',
  async () => {
    const { stderr, stdout } = await inNamespace(`
    mount -t fuse.cfs-mount nobody@example.com "$ann" || echo "code $?"
    mount -t fuse.cfs-mount ${ANN} "$ann" -o frobnicate || echo "code $?"
    grep -c " $ann " /proc/mounts || true`);

    expect(stderr).toContain('cfs-mount: no account nobody@example.com');
    expect(stderr).toContain('cfs-mount: -o: unknown: frobnicate');
    expect(stdout).toBe('code 6\ncode 2\n0\n');
  },
);

testUnless(missingRoot())('a mount that could not be ended is still one, and can be ended later', async () => {
  const { stdout, stderr, code } = await inNamespace(`
    cp /usr/bin/umount '${home.path('umount')}'
    printf '%s\\n' '#!/bin/sh' '[ -e ${home.path('refuse')} ] && { echo "umount: $4: refused" >&2; exit 1; }' \\
      'exec ${home.path('umount')} "$@"' > '${home.path('refusing')}'
    chmod +x '${home.path('refusing')}'
    mount -t fuse.cfs-mount ${ANN} "$ann"
    mount --bind '${home.path('refusing')}' /usr/bin/umount
    touch '${home.path('refuse')}'
    cfs umount "$ann" 2> '${home.path('said')}' && echo ended
    grep -o 'could not unmount' '${home.path('said')}'
    echo still here > "$ann/file"
    rm '${home.path('refuse')}'
    cfs umount "$ann" && echo ended
    grep -c " $ann " /proc/mounts || true
    umount /usr/bin/umount`);

  expect(stderr).toBe('');
  expect(code).toBe(0);
  expect(stdout).toMatch(/\ncould not unmount\nunmounted .*\nended\n0\n$/);
});

import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { afterAll, beforeAll, expect } from 'vitest';
import { type CommandResult, runCommand } from '../harness/command.ts';
import { inMountNamespace } from '../harness/mount-namespace.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/**
 * Who may mount and unmount: root by mount(2) and umount(2), ordinary users by fusermount3, which needs rights and /etc/mtab. Run as
 * root, in mount namespaces of their own in which a part of the system is replaced, and the device is open to all.
 */

const USER = 65534;
const AS_USER = `setpriv --reuid=${USER} --regid=${USER} --clear-groups --inh-caps=-all --bounding-set=+all`;
let home: CommandHome;
let server: ReferenceServer;

beforeAll(async () => {
  server = await ReferenceServer.start();
  home = new CommandHome();
  for (const name of ['Cloud', 'project', 'etc']) mkdirSync(home.path(name));
  const { url, username, password, application, accessKeyId, privateAccessKey } = server.account;
  const { code, stderr } = await home.run('cfs', ['login'], {
    env: {
      ...{ CFS_URL: url, CFS_USERNAME: username, CFS_PASSWORD: password, CFS_APPLICATION: application },
      ...{ CFS_ACCESS_KEY_ID: accessKeyId, CFS_PRIVATE_ACCESS_KEY: privateAccessKey },
    },
  });
  expect(stderr).toBe('');
  expect(code).toBe(0);
});

afterAll(async () => {
  home.dispose();
  await server.dispose();
});

/** A script in which `cfs` and `cfs-mount` run as the user; `$1` is the directory to mount on. Its mounts go with the namespace. */
function inNamespace(as: 'root' | 'user', script: string): Promise<CommandResult> {
  const owner = as === 'root' ? 0 : USER;
  execFileSync('chown', ['-R', `${owner}:${owner}`, home.directory]);
  const run = as === 'root' ? '' : `${AS_USER} `;
  const prepared = [
    'set -e',
    `mount --bind '${PROJECT}' '${home.path('project')}'`, // its own place may be closed to others
    `mknod -m 666 '${home.path('fuse')}' c 10 229; mount --bind '${home.path('fuse')}' /dev/fuse; rm '${home.path('fuse')}'`,
    `cfs() { ${run}'${process.execPath}' '${home.path('project/dist/cli/cfs.js')}' "$@"; }`,
    `cfs_mount() { ${run}'${process.execPath}' '${home.path('project/dist/cli/cfs-mount.js')}' "$@"; }`,
    `isMounted() { grep -c " $1 " /proc/mounts || true; }`,
    script,
  ];
  return runCommand(inMountNamespace(prepared.join('\n'), null, [home.path('Cloud')]), {
    env: home.env,
    anyExitCode: true,
    timeoutMs: 60_000,
  });
}

/** A copy of /etc for this namespace: a small system has no /etc/mtab, without which a user cannot unmount. */
function ownEtc(): string {
  const etc = home.path('etc');
  return `mount -t tmpfs none '${etc}'\ncp -a /etc/. '${etc}'\nmount --rbind '${etc}' /etc`;
}

testUnless(missingRoot())('root mounts, unmounts and frees a dead mount where fusermount3 cannot be run', async () => {
  const { code, stdout, stderr } = await inNamespace(
    'root',
    `mount --bind /dev/null "$(command -v fusermount3)"
    cfs_mount "$1"
    echo hello > "$1/file"
    cfs umount "$1"
    isMounted "$1"
    cfs_mount "$1"
    pid=$(cfs status | sed -n 's/.*(process \\([0-9]*\\)).*/\\1/p')
    kill -9 "$pid"
    while kill -0 "$pid" 2> /dev/null; do sleep 0.02; done
    isMounted "$1"
    cfs umount "$1"
    isMounted "$1"`,
  );

  expect(stderr).toBe('');
  expect(code).toBe(0);
  expect(stdout.replaceAll(home.path('Cloud'), 'DIR').split('\n')).toEqual([
    `mounted ${server.account.username} at DIR`,
    'unmounted DIR',
    '0',
    `mounted ${server.account.username} at DIR`,
    '1',
    expect.stringMatching(/^removed the dead mount at DIR;/),
    '0',
    '',
  ]);
});

testUnless(missingRoot())(
  'a user outside the group of fusermount3 is told of the group, by cfs-mount and by cfs doctor',
  async () => {
    const { stdout, stderr } = await inNamespace(
      'user',
      `program=$(command -v fusermount3)
    cp "$program" '${home.path('fusermount3')}'
    chown 0:0 '${home.path('fusermount3')}'
    chmod 4750 '${home.path('fusermount3')}'
    mount --bind '${home.path('fusermount3')}' "$program"
    cfs_mount "$1" || echo "code $?"
    cfs doctor --json | grep -A2 '"fusermount-'`,
    );

    expect(stderr).toMatch(
      /^cfs-mount: \S+fusermount3 may not be run by this user \(mode 4750\): usermod -aG root \S+, as root/m,
    );
    expect(stdout).toMatch(/^code 3\n/);
    expect(stdout).toContain('"fusermount-refused"');
  },
);

testUnless(missingRoot())(
  'without /etc/mtab an ordinary user hears at the mount, at the unmount and from cfs doctor what to do, and it helps',
  async () => {
    const { stdout, stderr } = await inNamespace(
      'user',
      `${ownEtc()}
    rm -f /etc/mtab
    cfs_mount "$1"
    cfs umount "$1" || echo "code $?"
    isMounted "$1"
    cfs doctor --json | grep '"mtab-missing"'
    ln -s /proc/self/mounts /etc/mtab
    cfs umount "$1"
    isMounted "$1"`,
    );

    const cure = 'ln -s /proc/self/mounts /etc/mtab';
    const [mounting = '', unmounting = ''] = stderr.split('\n');
    expect(mounting).toBe(`cfs-mount: /etc/mtab is missing, so only root can unmount this mount; as root: ${cure}`);
    expect(unmounting).toMatch(/^cfs: could not unmount .*: .*\/etc\/mtab/);
    expect(unmounting).toContain(cure);
    expect(stdout).toMatch(/code \d+\n1\n.*"mtab-missing".*\nunmounted .*\n0\n$/s);
  },
);

/** [S-start-5] */
testUnless(missingRoot())(
  'a user cannot write into the bare mount point after an unmount, and can mount again',
  async () => {
    const { stdout } = await inNamespace(
      'user',
      `${ownEtc()}
    ln -sf /proc/self/mounts /etc/mtab
    chmod 755 "$1"
    cfs_mount "$1"
    cfs umount "$1"
    ${AS_USER} touch "$1/stray" 2> /dev/null || echo refused
    cfs_mount "$1"
    isMounted "$1"
    cfs umount "$1"
    ls -A "$1" | wc -l`,
    );

    expect(stdout.replaceAll(home.path('Cloud'), 'DIR').split('\n')).toEqual([
      `mounted ${server.account.username} at DIR`,
      'unmounted DIR',
      'refused',
      `mounted ${server.account.username} at DIR`,
      '1',
      'unmounted DIR',
      '0',
      '',
    ]);
  },
);

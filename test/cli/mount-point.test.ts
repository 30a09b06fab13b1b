import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { findFusermount, whyNoFusermount } from '../../src/kernel/fusermount.ts';
import { mountOn, parseMountInfo, parseMountOutput } from '../../src/kernel/mount-table.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { checkFuse } from '../../src/mount/fuse-check.ts';
import { checkMountPoint } from '../../src/mount/mount-point.ts';
import { probeMount } from '../../src/mount/mount-state.ts';

let directory: string;

beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'cfs-mount-point-')));
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

async function refusalOf(run: () => unknown): Promise<{ message: string; exitCode: number }> {
  try {
    await run();
  } catch (error) {
    expect(error).toBeInstanceOf(UsageError);
    return error as UsageError;
  }
  return expect.fail('nothing was refused');
}

test('on macOS the refusal of a FUSE binding names the way that works', async () => {
  const refusal = await refusalOf(() => checkFuse({ uid: 501, fusermount: null }, 'darwin'));

  expect(refusal.message).toContain('leave --binding out');
  expect(refusal.exitCode).toBe(exitCode('noFuse'));
});

test('an empty directory is taken, also through a link', async () => {
  mkdirSync(join(directory, 'empty'));
  symlinkSync('empty', join(directory, 'link'));

  expect(await checkMountPoint(join(directory, 'empty'), { allowNonEmpty: false })).toBe(join(directory, 'empty'));
  expect(await checkMountPoint(join(directory, 'link'), { allowNonEmpty: false })).toBe(join(directory, 'empty'));
});

test.each([
  ['missing', 'does not exist'],
  ['file', 'is not a directory'],
  ['file/below', 'is not a directory'],
  ['full', 'is not empty'],
])('%s is refused: it %s', async (name, reason) => {
  writeFileSync(join(directory, 'file'), '');
  mkdirSync(join(directory, 'full', 'of things'), { recursive: true });

  const refusal = await refusalOf(() => checkMountPoint(join(directory, name), { allowNonEmpty: false }));

  expect(refusal.message).toContain(reason);
  expect(refusal.message).not.toContain('\n');
  expect(refusal.exitCode).toBe(exitCode('mountPoint'));
});

test('a directory that is not empty is taken when that is said', async () => {
  mkdirSync(join(directory, 'full', 'of things'), { recursive: true });

  expect(await checkMountPoint(join(directory, 'full'), { allowNonEmpty: true })).toBe(join(directory, 'full'));
});

test('a name with control characters is shown without them', async () => {
  const refusal = await refusalOf(() => checkMountPoint(join(directory, 'a\nb\u001b[2J'), { allowNonEmpty: false }));

  expect(refusal.message).toContain('a\\x0ab\\x1b[2J does not exist');
});

const ORDINARY = 1000;

test('without fusermount3 the package is named', async () => {
  const refusal = await refusalOf(() => checkFuse({ uid: ORDINARY, fusermount: findFusermount(directory) }));

  expect(refusal.exitCode).toBe(exitCode('noFuse'));
  expect(refusal.message).toMatch(/apt-get install fuse3|\/dev\/fuse/);
});

test('a fusermount3 for the members of a group is not called missing: the group is named', () => {
  const fusermount = { path: '/usr/bin/fusermount3', mode: 0o4750, isSetuidRoot: true, mayRun: false, group: 'fuse' };

  const why = whyNoFusermount(fusermount);

  expect(why).toMatch(
    /^\/usr\/bin\/fusermount3 may not be run by this user \(mode 4750\): usermod -aG fuse \S+, as root/,
  );
  expect(whyNoFusermount({ ...fusermount, group: null })).toContain('chmod 4755 /usr/bin/fusermount3, as root');
});

test('the first executable fusermount3 in PATH is used, as by execvp(3)', () => {
  for (const [name, mode] of [
    ['first', 0o640],
    ['second', 0o4755],
    ['third', 0o755],
  ] as const) {
    mkdirSync(join(directory, name));
    writeFileSync(join(directory, name, 'fusermount3'), '');
    chmodSync(join(directory, name, 'fusermount3'), mode);
  }
  const at = (...names: string[]) => findFusermount(names.map((name) => join(directory, name)).join(':'));

  expect(at('none', 'first', 'second', 'third')).toMatchObject({
    path: join(directory, 'second/fusermount3'),
    mayRun: true,
  });
  expect(at('first')).toMatchObject({ mayRun: false, group: null });
  expect(at('none')).toBeNull();
});

test('the mount table is read with its escapes, and the last mount on a directory counts', () => {
  const table = parseMountInfo(
    [
      '22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw',
      '40 22 0:50 / /home/ann/My\\040Cloud rw,nosuid - tmpfs tmpfs rw',
      '41 22 0:51 / /home/ann/My\\040Cloud rw,nosuid shared:9 master:1 - fuse.cfs-mount 17@http+127.0.0.1:4711 rw,user_id=0',
      '',
    ].join('\n'),
  );

  expect(table).toHaveLength(3);
  expect(table[2]).toEqual({
    directory: '/home/ann/My Cloud',
    type: 'fuse.cfs-mount',
    source: '17@http+127.0.0.1:4711',
    device: '0:51',
  });
});

test('the mount table of macOS is read from the output of mount(8)', () => {
  const table = parseMountOutput(
    [
      '/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)',
      'map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)',
      '127.0.0.1:/cfs-mount:ann/0f on /Users/ann/My Cloud (old) (nfs, nodev, nosuid, mounted by ann)',
      '',
    ].join('\n'),
  );

  expect(table.map(({ directory, type }) => [directory, type])).toEqual([
    ['/', 'apfs'],
    ['/System/Volumes/Data/home', 'autofs'],
    ['/Users/ann/My Cloud (old)', 'nfs'],
  ]);
  expect(table[2]?.source).toBe('127.0.0.1:/cfs-mount:ann/0f');
});

test('what is mounted is found in the real table, and what answers is alive', async () => {
  expect(mountOn('/proc')).toMatchObject({ type: 'proc' });
  expect(mountOn(directory)).toBeNull();
  expect(await probeMount('/proc')).toBe('alive');
});

test.each([
  ['Transport endpoint is not connected', 'dead'],
  // What a question hears that was on its way when the process of the mount died.
  ['Software caused connection abort', 'dead'],
  ['Permission denied', 'alive'],
])('a mount of which the kernel says "%s" is %s', async (said, state) => {
  writeFileSync(join(directory, 'stat'), `#!/bin/sh\necho "stat: cannot stat 'x': ${said}" >&2\nexit 1\n`, {
    mode: 0o700,
  });
  const { PATH } = process.env;
  process.env.PATH = `${directory}:${PATH}`;
  try {
    expect(await probeMount('/mnt')).toBe(state);
  } finally {
    process.env.PATH = PATH;
  }
});

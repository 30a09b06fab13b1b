import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';

let mount: MountFixture | null = null;

afterEach(async () => {
  await mount?.dispose();
  mount = null;
});

/** The line of /proc/mounts: source, directory, type, flags. */
function mountLine({ directory }: MountFixture): readonly string[] | null {
  const lines = readFileSync('/proc/mounts', 'utf8').split('\n');
  return lines.find((line) => line.split(' ')[1] === directory)?.split(' ') ?? null;
}

test('what -o says is what the mount is', async () => {
  const words = 'ro,noatime,noexec,default_permissions,umask=077,uid=12345';
  mount = await MountFixture.start({ flags: ['-o', words, '-o', String.raw`fsname=my\,cloud`] });

  const [source, , type, flags = ''] = mountLine(mount) ?? [];
  expect(source).toBe('my,cloud');
  expect(type).toBe('fuse.cfs-mount');
  expect(flags.split(',')).toEqual(
    expect.arrayContaining(['ro', 'nosuid', 'nodev', 'noexec', 'noatime', 'default_permissions']),
  );
  expect((await mount.run('echo x > file', { anyExitCode: true })).stderr).toMatch(/read-only/i);
});

test('auto_unmount frees the directory of a process that was killed, and leaves a later mount alone', async () => {
  mount = await MountFixture.start({ flags: ['-o', 'auto_unmount'] });
  await mount.run('echo kept > file');

  await mount.kill9();

  const { directory } = mount;
  await expect
    .poll(() => readFileSync('/proc/mounts', 'utf8').includes(` ${directory} `), { timeout: 60_000 })
    .toBe(false);
  await mount.mount();
  await mount.unmount();
  await mount.mount([]);
  expect((await mount.run('cat file')).stdout).toBe('kept\n');
});

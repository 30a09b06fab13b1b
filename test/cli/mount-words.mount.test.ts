import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { stopProcess } from '../harness/stop-process.ts';

let mount: MountFixture | null = null;

afterEach(async () => {
  await mount?.dispose();
  mount = null;
});

/** The line of /proc/mounts: source, directory, type, flags. */
function mountLine({ directory }: Pick<MountFixture, 'directory'>): readonly string[] | null {
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
  await expect.poll(() => mountLine({ directory }), { timeout: 60_000 }).toBe(null);
  await mount.mount();
  await mount.unmount();
  await mount.mount([]);
  expect((await mount.run('cat file')).stdout).toBe('kept\n');
});

test('auto_unmount also frees the directory when it hears of the end before the kernel does', async () => {
  mount = await MountFixture.start();
  const { directory, pid } = mount;
  // What the kernel has kept says nothing about whether anybody is there.
  await mount.run('stat . > /dev/null');
  await stopProcess(pid);
  const guard = new URL('../../dist/mount/auto-unmount.js', import.meta.url).href;
  const leave = `import(${JSON.stringify(guard)}).then(({ unmountWhenKilled }) => unmountWhenKilled(${JSON.stringify(directory)}))`;
  await runCommand([process.execPath, '-e', leave]);
  const guards = () => commandLines().filter((line) => line.includes(`\0${directory}\0`));
  await expect
    .poll(() => guards().some((line) => line.startsWith('stat\0')) || guards().length === 0, { timeout: 60_000 })
    .toBe(true);

  await mount.kill9();

  await expect.poll(() => mountLine({ directory }), { timeout: 60_000 }).toBe(null);
});

/** Of every process, NUL after each argument. */
function commandLines(): readonly string[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      return [readFileSync(`/proc/${name}/cmdline`, 'utf8')];
    } catch {
      return []; // it has ended
    }
  });
}

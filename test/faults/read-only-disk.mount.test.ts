import { spawnSync } from 'node:child_process';
import { readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingRoot, titled } from '../harness/requirement.ts';

/** A mount whose store lies on a disk that becomes read-only, and writable again: a read-only bind mount over the store's directory. */

const missing = missingRoot() ?? missingForMounts();

let mount: MountFixture;
let store: string;
afterEach(async () => {
  spawnSync('umount', ['-l', store]);
  await mount?.dispose();
});

/** Disk space of the cached files, bytes. */
function cachedBytes(): number {
  const files = readdirSync(path.join(store, 'cache'), { recursive: true, withFileTypes: true });
  return files
    .filter((entry) => entry.isFile() && entry.name !== 'CACHEDIR.TAG')
    .reduce((sum, { parentPath, name }) => sum + statSync(path.join(parentPath, name)).blocks * 512, 0);
}

describe.skipIf(missing !== null)(titled('a disk that becomes read-only', missing), () => {
  test('reads are right and uncached, log and doctor name the read-only disk, and caching resumes when it is writable', async () => {
    onTestFailed(() => mount?.printLogs());
    mount = await MountFixture.start({ flags: ['--settle', '1s'] });
    const { stdout: made } = await mount.run('for n in 1 2 3 4 5; do head -c 1M /dev/urandom > $n; done; sha256sum *');
    await mount.sync();
    await mount.unmount();
    const accounts = path.join(mount.env().XDG_STATE_HOME as string, 'cfs', 'accounts');
    store = path.join(accounts, readdirSync(accounts)[0] as string, 'store');
    rmSync(store, { recursive: true });
    await mount.mount();
    await mount.run('cat 1 > /dev/null');
    const before = cachedBytes();

    expect(spawnSync('mount', ['--bind', store, store]).status).toBe(0);
    expect(spawnSync('mount', ['-o', 'remount,bind,ro', store]).status).toBe(0);
    const read = await mount.run('sha256sum 1 2 3');
    expect(made).toContain(read.stdout);
    expect(cachedBytes()).toBe(before);
    const log = await mount.logs();
    expect(log).toMatch(/EROFS.*fetched data is not cached/);
    const doctor = await mount.cfs(['doctor', '--json'], { anyExitCode: true });
    expect(doctor.stdout).toContain('store-read-only');

    expect(spawnSync('umount', [store]).status).toBe(0);
    const rest = await mount.run('sha256sum 4 5');
    expect(made).toContain(rest.stdout);
    await expect.poll(cachedBytes, { timeout: 20_000 }).toBe(before + 2 * 1024 * 1024);
    expect(await mount.logs()).toContain('fetched data is cached again');
  });
});

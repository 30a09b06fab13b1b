import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';

/** Who watches a folder by inotify(7), and ends when `last` was made in it. */
const WATCHER = `
  const { watch, writeFileSync } = require('node:fs');
  const [folder, ready] = process.argv.slice(1);
  watch(folder, (_, name) => {
    if (name === 'last') process.exit();
    console.log(name);
  });
  writeFileSync(ready, '');`;

/** [S-not-5] */
test('with --no-notify, inotify reports local changes of a folder, and no remote ones', async () => {
  const mount = await MountFixture.start({ flags: ['--dir-ttl', '1h', '--no-notify'] });
  try {
    const other = await mount.freshStore();
    await other.run('mkdir watched; printf 1 > watched/changed; printf 1 > watched/deleted');
    await other.sync();
    await mount.cfs(['refresh']);
    expect((await mount.run('cat watched/*')).stdout).toBe('11');
    const folder = join(mount.directory, 'watched');
    const ready = `${mount.directory}.ready`;
    const watching = runCommand([process.execPath, '-e', WATCHER, folder, ready]);
    await expect.poll(() => existsSync(ready), { timeout: 30_000 }).toBe(true);

    await other.run('printf 22 > watched/changed; rm watched/deleted; printf 1 > watched/new');
    await other.sync();
    await mount.cfs(['refresh', folder]);
    expect((await mount.run('cat watched/changed; ls watched')).stdout).toBe('22changed\nnew\n');
    await mount.run('printf 1 > watched/local; printf 1 > watched/last');

    expect(new Set((await watching).stdout.trim().split('\n'))).toEqual(new Set(['local']));
  } finally {
    await mount.dispose();
  }
});

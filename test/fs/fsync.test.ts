import { expect, test } from 'vitest';
import { InProcessMount } from '../../src/kernel/in-process.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { LeftTower } from '../harness/left-tower.ts';

/** A disk that syncs no draft until somebody looks, and then tells which files were synced. */
class WatchedDisk {
  readonly #paths = new Map<number, string>();
  isWatched = false;
  readonly synced: string[] = [];
  readonly disk: Disk = {
    ...systemDisk,
    open: (path, how) => {
      const fd = systemDisk.open(path, how);
      this.#paths.set(fd, path);
      return fd;
    },
    sync: async (fd) => {
      const path = this.#paths.get(fd) ?? '';
      if (this.isWatched) this.synced.push(path);
      else if (path.includes('/drafts/')) return new Promise(() => {});
    },
  };
}

test('fsync(2) syncs all that was written here, also what is being pushed below the newest writes', async () => {
  const watched = new WatchedDisk();
  const tower = await LeftTower.build({ disk: watched.disk });
  try {
    const mount = new InProcessMount(tower.fileSystem);
    await mount.writeFile('file', Buffer.alloc(300_000, 'closed'));
    const { ino } = await mount.stat('file');
    const { content } = tower.store.get('node', ino)?.local ?? {};
    if (content == null) throw new Error('no content');
    tower.store.transact((tx) => tower.contents.seal(tx, content)); // the push begins
    const fd = await mount.open('file', 'r+');
    await mount.write(fd, 0, Buffer.alloc(50_000, 'newer'));

    watched.isWatched = true;
    await mount.fsync(fd);

    const drafts = watched.synced.filter((path) => path.includes('/drafts/'));
    expect(drafts).toHaveLength(2);
    expect(drafts.some((path) => path.endsWith(`/${content}`))).toBe(true);
    await mount.close(fd);
  } finally {
    await tower.close();
  }
});

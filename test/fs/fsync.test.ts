import { expect, test } from 'vitest';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };

/** A disk that is done with no draft until somebody looks, and tells which files were synced by then. */
class WatchedDisk {
  readonly #paths = new Map<number, string>();
  readonly synced = new Set<string>();
  look = (): void => {};
  readonly #looked = new Promise<void>((resolve) => {
    this.look = resolve;
  });
  readonly disk: Disk = {
    ...systemDisk,
    open: (path, how) => {
      const fd = systemDisk.open(path, how);
      this.#paths.set(fd, path);
      return fd;
    },
    sync: async (fd) => {
      const path = this.#paths.get(fd) ?? '';
      if (path.includes('/drafts/')) await this.#looked;
      this.synced.add(path);
    },
  };
}

test('fsync(2) syncs all local writes, including the bytes that are being pushed below the newest ones', async () => {
  const watched = new WatchedDisk();
  const side = await FileSystemSide.build({ disk: watched.disk });
  try {
    const mount = new InProcessMount(side.fileSystem);
    await mount.writeFile('file', Buffer.alloc(300_000, 'closed'));
    const { ino } = await mount.stat('file');
    const { content } = side.store.get('node', ino)?.local ?? {};
    if (content == null) throw new Error('no content');
    side.store.transact((tx) => side.contents.seal(tx, content)); // the push begins
    const fd = await mount.open('file', 'r+');
    await mount.write(fd, 0, Buffer.alloc(50_000, 'newer'));

    let isOver = false;
    const synced = mount.fsync(fd).then(() => {
      isOver = true;
    });
    for (let turns = 0; turns < 10; turns++) await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    watched.look();
    await synced;

    const drafts = [...watched.synced].filter((path) => path.includes('/drafts/'));
    expect(drafts).toHaveLength(2);
    expect(drafts.some((path) => path.endsWith(`/${content}`))).toBe(true);
    await mount.close(fd);
  } finally {
    await side.close();
  }
});

test('fsync(2) on a new descriptor syncs the closed writes of other descriptors', async () => {
  const watched = new WatchedDisk();
  const side = await FileSystemSide.build({ disk: watched.disk });
  try {
    const mount = new InProcessMount(side.fileSystem);
    await mount.writeFile('file', Buffer.alloc(300_000, 'closed'));
    const fd = await mount.open('file', 'r');
    watched.look();

    await mount.fsync(fd);

    expect([...watched.synced].filter((path) => path.includes('/drafts/'))).toHaveLength(1);
    await mount.close(fd);
  } finally {
    await side.close();
  }
});

test('fsync(2) of a file without a name syncs its bytes: linkat(2) may name it afterwards', async () => {
  const watched = new WatchedDisk();
  watched.look();
  const side = await FileSystemSide.build({ disk: watched.disk });
  try {
    const { fileSystem } = side;
    const flags = { access: 'read-write', append: false, truncate: false, raw: 2 } as const;
    const { attributes, open } = await fileSystem.tmpfile(ROOT_INODE, 0o600, flags, ctx);
    await fileSystem.write(attributes.ino, open.handle, 0, Buffer.alloc(300_000, 'nameless'), ctx);

    await fileSystem.fsync(attributes.ino, open.handle);

    expect([...watched.synced].filter((path) => path.includes('/drafts/'))).toHaveLength(1);
    await fileSystem.release(attributes.ino, open.handle);
  } finally {
    await side.close();
  }
});

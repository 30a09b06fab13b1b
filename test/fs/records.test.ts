import { expect, test } from 'vitest';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

/** What a journal costs is how often it is appended to: counted where its bytes reach the disk. */
class CountingDisk {
  readonly #journals = new Set<number>();
  records = 0;
  readonly disk: Disk = {
    ...systemDisk,
    open: (path, how) => {
      const fd = systemDisk.open(path, how);
      if (path.includes('/journal/')) this.#journals.add(fd);
      else this.#journals.delete(fd);
      return fd;
    },
    write: (fd, bytes, position) => {
      if (this.#journals.has(fd)) this.records++;
      return systemDisk.write(fd, bytes, position);
    },
    writeLater: async (fd, bytes, position) => this.disk.write(fd, bytes, position),
  };
}

test('unpacking a file as tar does appends four records: made, bytes with their time, owner, mode', async () => {
  const counting = new CountingDisk();
  const side = await FileSystemSide.build({ disk: counting.disk });
  try {
    const mount = new InProcessMount(side.fileSystem);
    await mount.writeFile('before', Buffer.from('numbers are taken in blocks'));
    const records: number[] = [];
    const counted = async (call: () => Promise<unknown>): Promise<void> => {
      counting.records = 0;
      await call();
      records.push(counting.records);
    };

    let fd = -1;
    await counted(async () => {
      fd = await mount.open('file', 'wx');
    });
    await counted(() => mount.write(fd, 0, Buffer.alloc(10_240, 'x')));
    await counted(() => mount.write(fd, 10_240, Buffer.alloc(2_000, 'x')));
    await counted(() => mount.utimes('file', 'now', { sec: 1_000_000_000, nsec: 7 }));
    await counted(() => mount.chown('file', 4711, 4712));
    await counted(() => mount.chmod('file', 0o600));
    await counted(() => mount.close(fd));

    expect(records).toEqual([1, 0, 0, 1, 1, 1, 0]);
    const { mtime, mode, uid, gid, sizeBytes } = await mount.stat('file');
    const set = { mtime: { sec: 1_000_000_000, nsec: 7 }, mode: 0o600, uid: 4711, gid: 4712, sizeBytes: 12_240 };
    expect({ mtime, mode, uid, gid, sizeBytes }).toEqual(set);
  } finally {
    await side.close();
  }
});

test('a time that is set is the newest word until the next write, before and after the close', async () => {
  const side = await FileSystemSide.build();
  try {
    const mount = new InProcessMount(side.fileSystem);
    const set = { sec: 1_000_000_000, nsec: 0 };
    const fd = await mount.open('file', 'wx');
    await mount.write(fd, 0, Buffer.from('written'));
    await mount.utimes('file', 'omit', set);
    expect((await mount.stat('file')).mtime).toEqual(set);
    await mount.close(fd);
    expect((await mount.stat('file')).mtime).toEqual(set);

    const again = await mount.open('file', 'r+');
    await mount.utimes('file', 'omit', set);
    await mount.write(again, 0, Buffer.from('W'));
    expect((await mount.stat('file')).mtime).not.toEqual(set);
    await mount.close(again);

    expect((await mount.stat('file')).mtime).not.toEqual(set);
    expect((await mount.readFile('file')).toString()).toBe('Written');
  } finally {
    await side.close();
  }
});

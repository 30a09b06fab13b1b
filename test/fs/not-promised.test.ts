import { afterEach, beforeEach, expect, test } from 'vitest';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

/** What docs/semantics.md says that we do not promise: it must be true as well. */

let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  side = await FileSystemSide.build();
  mount = new InProcessMount(side.fileSystem);
});

afterEach(() => side.close());

test('a folder has one link, regardless of its subfolders', async () => {
  await mount.mkdir('folder');
  for (const name of ['a', 'b', 'c']) await mount.mkdir(`folder/${name}`);

  expect((await mount.stat('folder')).nlink).toBe(1);
});

test('st_blocks follows from the size, including holes', async () => {
  const fd = await mount.open('sparse', 'w');
  await mount.write(fd, 10 * 1024 * 1024, Buffer.from('end'));
  await mount.close(fd);

  const { sizeBytes, blocks512 } = await mount.stat('sparse');
  expect(blocks512).toBe(Math.ceil(sizeBytes / 512));
});

test('fallocate sets the length of a file and reserves no space', async () => {
  const longerThanAnyDisk = 2 ** 50;
  const fd = await mount.open('reserved', 'w');
  await mount.fallocate(fd, 'allocate', 0, longerThanAnyDisk);
  await mount.close(fd);

  expect((await mount.stat('reserved')).sizeBytes).toBe(longerThanAnyDisk);
});

test('a read does not change the access time', async () => {
  await mount.writeFile('file', Buffer.from('bytes'));
  // So old that `relatime` would move it with the first read.
  await mount.utimes('file', { sec: 1, nsec: 0 }, { sec: 2, nsec: 0 });

  expect((await mount.readFile('file')).toString()).toBe('bytes');

  expect((await mount.stat('file')).atime).toEqual({ sec: 1, nsec: 0 });
});

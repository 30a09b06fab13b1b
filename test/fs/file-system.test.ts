import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  side = await FileSystemSide.build();
  mount = new InProcessMount(side.fileSystem);
});

afterEach(async () => {
  await side.close();
});

async function restart(): Promise<void> {
  const { directory } = side;
  await side.close('keep');
  side = await FileSystemSide.build({ directory });
  mount = new InProcessMount(side.fileSystem);
}

describe('what close() accepted', () => {
  test.each([0, 1, 100, 16 * 1024, 16 * 1024 + 1, 300_000, 3 * 1024 * 1024])(
    'the bytes that close() accepted survive a restart (%i bytes)',
    async (length) => {
      const bytes = Buffer.alloc(length, 'written before the restart');
      await mount.writeFile('file', bytes);
      const before = await mount.stat('file');

      await restart();

      expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
      expect(await mount.stat('file')).toEqual(before);
    },
  );

  test('repeated writes of one file leave exactly the last bytes that close() accepted', async () => {
    for (let round = 1; round <= 5; round++) {
      await mount.writeFile('file', Buffer.alloc(round * 10_000, `round ${round} `));
      await restart();
      expect(Buffer.compare(await mount.readFile('file'), Buffer.alloc(round * 10_000, `round ${round} `))).toBe(0);
    }
  });
});

test('the sync hears of every close after a write, and of no close after reading', async () => {
  await mount.writeFile('file', Buffer.from('one'));
  const { ino } = await mount.stat('file');
  expect(side.written).toContain(ino);
  side.written.length = 0;

  await mount.readFile('file');

  expect(side.written).toEqual([]);
});

test('a file without a name can be read and written until it is closed', async () => {
  const fd = await mount.open('file', 'w+');
  await mount.write(fd, 0, Buffer.from('before'));
  await mount.unlink('file');
  await mount.write(fd, 6, Buffer.alloc(100_000, 'x'));
  await mount.ftruncate(fd, 50_000);

  expect((await mount.fstat(fd)).nlink).toBe(0);
  expect((await mount.fstat(fd)).sizeBytes).toBe(50_000);
  expect((await mount.read(fd, 0, 8)).toString()).toBe('beforexx');
  await expect(mount.stat('file')).rejects.toMatchObject({ errno: 'ENOENT' });
  await mount.close(fd);
  expect(mount.openHandles).toBe(0);
  expect(mount.lookups).toBe(0);
});

test('stat shows size and time of what is written before it is closed', async () => {
  const fd = await mount.open('file', 'w');
  await mount.write(fd, 0, Buffer.alloc(70_000));

  expect((await mount.stat('file')).sizeBytes).toBe(70_000);
  await mount.close(fd);
});

test('a folder of 2,000 entries is listed once each while every second one is removed', async () => {
  await mount.mkdir('folder');
  for (let i = 0; i < 2_000; i++) await mount.writeFile(`folder/${i}`, Buffer.of());
  const names = (await mount.readdir('folder')).map(({ name }) => name);
  expect(new Set(names).size).toBe(2_000);

  for (const name of names.filter((_, index) => index % 2 === 0)) await mount.unlink(`folder/${name}`);

  expect((await mount.readdir('folder')).map(({ name }) => name)).toEqual(names.filter((_, index) => index % 2 === 1));
});

test('a symlink gives back its target, also after a restart', async () => {
  await mount.symlink('../ünter/wegs', 'link');
  expect(await mount.readlink('link')).toBe('../ünter/wegs');

  await restart();

  expect(await mount.readlink('link')).toBe('../ünter/wegs');
  expect((await mount.lstat('link')).kind).toBe('symlink');
});

test('hard links are refused with EPERM', async () => {
  await mount.writeFile('file', Buffer.of());
  await expect(mount.link('file', 'second')).rejects.toMatchObject({ errno: 'EPERM' });
});

test('user attributes survive a restart; others are refused', async () => {
  await mount.writeFile('file', Buffer.of());
  await mount.setxattr('file', 'user.colour', Buffer.from('green'));
  await expect(mount.setxattr('file', 'trusted.colour', Buffer.from('green'))).rejects.toMatchObject({
    errno: 'EOPNOTSUPP',
  });

  await restart();

  expect(Buffer.from(await mount.getxattr('file', 'user.colour')).toString()).toBe('green');
  expect(await mount.listxattr('file')).toEqual(['user.colour']);
});

test('a write by someone who is not root takes set-user-ID away', async () => {
  await mount.writeFile('program', Buffer.from('#!'));
  await mount.chmod('program', 0o4755);
  const other = new InProcessMount(side.fileSystem, { uid: 1000, gid: 1000 });
  const fd = await other.open('program', 'r+');
  await other.write(fd, 0, Buffer.from('x'));
  await other.close(fd);

  expect((await mount.stat('program')).mode).toBe(0o755);
});

import { afterEach, beforeEach, expect, test } from 'vitest';
import { InProcessMount } from '../../src/kernel/in-process.ts';
import { LeftTower } from '../harness/left-tower.ts';

let tower: LeftTower;
let mount: InProcessMount;
beforeEach(async () => {
  tower = await LeftTower.build();
  mount = new InProcessMount(tower.fileSystem);
});
afterEach(() => tower.close());

// The push seals what it uploads; who writes on gets a draft of their own over it. Found by the random model (seed 2000).
test.each([1_000, 300_000])(
  'a file that lost its name while it was pushed keeps every write (%i bytes)',
  async (length) => {
    const wanted = Buffer.alloc(length, 'old');
    await mount.writeFile('file', wanted);
    const { ino } = await mount.stat('file');
    const fd = await mount.open('file', 'r+');
    const { content } = tower.store.get('node', ino)?.local ?? {};
    if (content == null) throw new Error('no content');
    tower.store.transact((tx) => tower.contents.seal(tx, content));
    await mount.unlink('file');

    for (const [at, text] of [
      [0, 'first'],
      [500, 'second'],
      [900, 'third'],
    ] as const) {
      wanted.write(text, at);
      await mount.write(fd, at, Buffer.from(text));
      expect(Buffer.compare(await mount.read(fd, 0, length), wanted)).toBe(0);
    }

    await mount.close(fd);
  },
);

test('a file that was never read or written before it lost its name is there when it is', async () => {
  const fd = await mount.open('file', 'wx+');
  await mount.unlink('file');
  tower.contents.collect();

  await mount.write(fd, 0, Buffer.from('nameless'));

  expect((await mount.read(fd, 0, 100)).toString()).toBe('nameless');
  await mount.close(fd);
});

test('times that are set on a file that lost its name are shown, also after it was written', async () => {
  const fd = await mount.open('file', 'w+');
  const { ino } = await mount.stat('file');
  await mount.unlink('file');
  await mount.write(fd, 0, Buffer.from('written'));
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const [mtime, atime] = [
    { sec: 1_000, nsec: 7 },
    { sec: 2_000, nsec: 8 },
  ] as const;

  await tower.fileSystem.setattr(ino, { mtime, atime }, null, ctx); // futimens(2)
  expect(await mount.fstat(fd)).toMatchObject({ mtime, atime, sizeBytes: 7 });

  await mount.write(fd, 7, Buffer.from(' again'));
  const later = await mount.fstat(fd);
  expect(later).toMatchObject({ atime, sizeBytes: 13 });
  expect(later.mtime.sec).toBeGreaterThan(mtime.sec);
  await mount.close(fd);
});

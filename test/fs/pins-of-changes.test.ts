import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Pins } from '../../src/fs/pins.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

function pinsOf(side: FileSystemSide): Pins {
  const { store, tree, freshness, reader, changes, pinned } = side;
  return new Pins({
    ...{ store, tree, freshness, reader, changes, pinned },
    files: side.fileSystem.files,
    clock: systemClock,
    log: silentLogger,
    shutdown: new AbortController().signal,
    roundMs: 60_000,
  });
}

/** [S-pin-3] [S-version-2] */
test.each<[string, (mount: InProcessMount, write: (name: string) => Promise<void>) => Promise<void>]>([
  [
    'a new file, renamed over it',
    async (mount, write) => {
      await write('.file.new');
      await mount.rename('.file.new', 'file');
    },
  ],
  [
    'renamed away, and made again',
    async (mount, write) => {
      await mount.rename('file', 'file~');
      await write('file');
    },
  ],
  [
    'removed, and made again',
    async (mount, write) => {
      await mount.unlink('file');
      await write('file');
    },
  ],
])('a pinned file that an editor saves stays pinned: %s', async (_, save) => {
  const service = new VersionService();
  service.put('file', Buffer.from('as it was'));
  const side = await FileSystemSide.build({ listing: service, source: service, readTimeoutMs: 500 });
  onTestFinished(() => side.close());
  const mount = new InProcessMount(side.fileSystem);
  const pins = pinsOf(side);
  await mount.readFile('file');
  const pinned = side.tree.child(ROOT_INODE, 'file')?.ino ?? ROOT_INODE;
  pins.pin(pinned);

  await save(mount, (name) => mount.writeFile(name, Buffer.from('as it is')));

  const heir = side.tree.child(ROOT_INODE, 'file')?.ino;
  expect(heir).not.toBe(pinned);
  expect(pins.states.map(({ ino }) => ino)).toEqual([heir]);
  // The next mount as well.
  expect(pinsOf(side).states.map(({ ino }) => ino)).toEqual([heir]);
});

test('what was pinned and is removed is told as pinned no more, not as everything', async () => {
  const side = await FileSystemSide.build();
  onTestFinished(() => side.close());
  const mount = new InProcessMount(side.fileSystem);
  await mount.mkdir('folder');
  const pins = pinsOf(side);
  const pinned = side.tree.child(ROOT_INODE, 'folder')?.ino ?? ROOT_INODE;
  pins.pin(pinned);
  expect(pins.states).toMatchObject([{ ino: pinned }]);

  await mount.rmdir('folder');

  expect([pins.states, pins.stateOf(pinned)]).toEqual([[], undefined]);
});

test('a changed file is not told to be kept while what lies below the change is in memory only', async () => {
  const service = new VersionService();
  service.put('file', Buffer.alloc(3 * 1024 * 1024, 'bytes'));
  const side = await FileSystemSide.build({
    listing: service,
    source: service,
    readTimeoutMs: 500,
    // There is never room for it.
    contents: { reserveBytes: Number.MAX_SAFE_INTEGER },
  });
  const mount = new InProcessMount(side.fileSystem);
  const { tree } = side;
  const pins = pinsOf(side);
  const fd = await mount.open('file', 'r+');
  await mount.write(fd, 0, Buffer.from('mine'));
  await mount.close(fd);
  const ino = tree.child(ROOT_INODE, 'file')?.ino ?? ROOT_INODE;
  pins.start();
  pins.pin(ino);
  await expect.poll(() => (pins.stateOf(ino)?.trouble ?? null) !== null || pins.stateOf(ino)?.isComplete).toBe(true);

  expect(pins.stateOf(ino)).toMatchObject({ isComplete: false });
  pins.stop();
  await side.close();
});

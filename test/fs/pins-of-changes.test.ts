import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Pins } from '../../src/fs/pins.ts';
import { InProcessMount } from '../../src/kernel/in-process.ts';
import { VersionService } from '../content/version-service.ts';
import { LeftTower } from '../harness/left-tower.ts';

test('a changed file is not told to be kept while what lies below the change is in memory only', async () => {
  const service = new VersionService();
  service.put('file', Buffer.alloc(3 * 1024 * 1024, 'bytes'));
  const tower = await LeftTower.build({
    listing: service,
    source: service,
    readTimeoutMs: 500,
    // There is never room for it.
    contents: { reserveBytes: Number.MAX_SAFE_INTEGER },
  });
  const mount = new InProcessMount(tower.fileSystem);
  const { store, tree, freshness, reader } = tower;
  const pins = new Pins({
    store,
    tree,
    freshness,
    reader,
    files: tower.fileSystem.files,
    clock: systemClock,
    log: silentLogger,
    shutdown: new AbortController().signal,
    roundMs: 60_000,
  });
  const fd = await mount.open('file', 'r+');
  await mount.write(fd, 0, Buffer.from('mine'));
  await mount.close(fd);
  const ino = tree.child(ROOT_INODE, 'file')?.ino ?? ROOT_INODE;
  pins.start();
  pins.pin(ino);
  await expect.poll(() => (pins.stateOf(ino)?.trouble ?? null) !== null || pins.stateOf(ino)?.isComplete).toBe(true);

  expect(pins.stateOf(ino)).toMatchObject({ isComplete: false });
  pins.stop();
  await tower.close();
});

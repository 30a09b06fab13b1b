import { afterEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Pins } from '../../src/fs/pins.ts';
import { VersionService } from '../content/version-service.ts';
import { LeftTower } from '../harness/left-tower.ts';

const MIB = 1024 * 1024;
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** [S-pin-1] */
test.each([
  [0, true],
  [Number.MAX_SAFE_INTEGER, false],
])(
  'a file is told to be kept only when it is, not when the disk has no room for it (reserve %i)',
  async (reserveBytes, isKept) => {
    const service = new VersionService();
    service.put('file', Buffer.alloc(3 * MIB, 'bytes'));
    const tower = await LeftTower.build({ listing: service, source: service, contents: { reserveBytes } });
    const shutdown = new AbortController();
    const { store, tree, freshness, reader } = tower;
    const pins = new Pins({
      ...{ store, tree, freshness, reader, files: tower.fileSystem.files },
      ...{ clock: systemClock, log: silentLogger, shutdown: shutdown.signal, roundMs: 60_000 },
    });
    closing.push(async () => {
      pins.stop();
      await tower.close();
    });
    await freshness.refresh(ROOT_INODE);
    const ino = tree.child(ROOT_INODE, 'file')?.ino ?? ROOT_INODE;

    pins.start();
    pins.pin(ino);
    await expect.poll(() => pins.stateOf(ino)).toMatchObject({ files: 1 });
    await expect.poll(() => pins.stateOf(ino)?.trouble !== null || pins.stateOf(ino)?.isComplete).toBe(true);

    expect(pins.stateOf(ino)).toMatchObject({ isComplete: isKept, filesHere: isKept ? 1 : 0 });
    expect(tower.contents.usage().cacheBytes).toBe(isKept ? 3 * MIB : 0);
  },
);

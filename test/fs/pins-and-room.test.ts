import { afterEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Pins } from '../../src/fs/pins.ts';
import { Intents } from '../../src/store/intents.ts';
import { Discarding } from '../../src/sync/discarding.ts';
import { Names } from '../../src/tree/names.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

/** Pins where there is room for half of what is read. */

const MIB = 1024 * 1024;
const NAMES = ['pinned', 'other', 'large'];

let close: () => Promise<void>;
afterEach(() => close());

async function build(cacheBytes: number) {
  const service = new VersionService();
  for (const name of NAMES) service.put(name, Buffer.alloc(name === 'large' ? 40 * MIB : 2 * MIB, name));
  const side = await FileSystemSide.build({
    listing: service,
    source: service,
    contents: { cacheBytes },
  });
  const { store, tree, freshness, reader, changes, pinned } = side;
  const pins = new Pins({
    ...{ store, tree, freshness, reader, changes, pinned, files: side.fileSystem.files },
    ...{ clock: systemClock, log: silentLogger, shutdown: new AbortController().signal, roundMs: 60_000 },
  });
  close = async () => {
    pins.stop();
    await side.close();
  };
  await freshness.refresh(ROOT_INODE);
  const inoOf = (name: string): Inode => tree.child(ROOT_INODE, name)?.ino ?? ROOT_INODE;
  pins.start();
  return { service, side, mount: new InProcessMount(side.fileSystem), pins, inoOf };
}

type Built = Awaited<ReturnType<typeof build>>;

/** How much of a file is here. */
function bytesHere({ side }: Built, ino: Inode): number {
  const content = side.tree.node(ino)?.local?.content ?? null;
  if (content === null) return 0;
  const pieces = side.contents.pieces(content, { start: 0, end: 2 * MIB });
  return pieces.reduce((sum, { kind, length }) => sum + (kind === 'missing' ? 0 : length), 0);
}

/** [S-pin-1] */
test.each(['unpinned', 'moved out of a pinned folder'])(
  'what was %s, and went for others, is fetched when it is pinned again',
  async (how) => {
    const built = await build(8 * MIB);
    const { mount, pins, inoOf } = built;
    const ino = inoOf('pinned');
    await mount.mkdir('folder');
    const isMoved = how !== 'unpinned';
    if (isMoved) await mount.rename('pinned', 'folder/pinned');
    const meant = isMoved ? inoOf('folder') : ino;
    for (const each of [meant, inoOf('other')]) pins.pin(each);
    await expect.poll(() => pins.stateOf(meant)).toMatchObject({ filesHere: 1, isComplete: true });

    if (isMoved) await mount.rename('folder/pinned', 'pinned');
    else pins.unpin(ino);
    await mount.readFile('large');
    expect(bytesHere(built, ino)).toBe(0);
    if (isMoved) await mount.rename('pinned', 'folder/pinned');
    else pins.pin(ino);

    await expect.poll(() => bytesHere(built, ino), { timeout: 10_000 }).toBe(2 * MIB);
    await expect.poll(() => pins.stateOf(meant)).toMatchObject({ filesHere: 1, isComplete: true });
  },
);

/** [S-pin-1] */
test('what went while something else was in its place is fetched when that is given up', async () => {
  const built = await build(8 * MIB);
  const { side, mount, pins, inoOf } = built;
  const { store } = side;
  const ino = inoOf('pinned');
  pins.pin(ino);
  await expect.poll(() => pins.stateOf(ino)).toMatchObject({ filesHere: 1, isComplete: true });

  await mount.writeFile('pinned', Buffer.from('ours'));
  await mount.readFile('large');
  const intents = new Intents(store);
  new Discarding({ store, intents, naming: new Names(), clock: systemClock }).discard([ino]);
  expect(side.tree.node(ino)?.local?.sizeBytes).toBe(2 * MIB);
  expect(bytesHere(built, ino)).toBe(0);
  pins.start(); // A round.

  await expect.poll(() => bytesHere(built, ino), { timeout: 10_000 }).toBe(2 * MIB);
});

/** [S-delete-2] */
test.each(['unpinned', 'removed'])('the fetch of a pinned file that is %s meanwhile ends', async (how) => {
  const built = await build(80 * MIB);
  const { service, mount, pins, inoOf, side } = built;
  const ino = inoOf('large');
  let begun = false;
  const stopped = new Promise<void>((resolve) => {
    const read = service.readVersion.bind(service);
    service.readVersion = async (...of) => {
      if (!begun) {
        begun = true;
        if (how === 'removed') await mount.unlink('large');
        else pins.unpin(ino);
        resolve();
      }
      return await read(...of);
    };
  });
  pins.pin(ino);
  await stopped;

  await expect.poll(() => side.fileSystem.files.isOpen(ino)).toBe(false);
  expect(side.contents.usage().cacheBytes).toBeLessThan(20 * MIB);
});

test.each(['removed', 'moved away'])(
  'a pinned folder of which something is %s while it is fetched is told as complete when the rest is here, not a round later',
  async (how) => {
    const built = await build(80 * MIB);
    const { service, mount, pins, inoOf } = built;
    await mount.mkdir('folder');
    for (const name of ['large', 'other']) await mount.rename(name, `folder/${name}`);
    const read = service.readVersion.bind(service);
    service.readVersion = async (...of) => {
      service.readVersion = read;
      if (how === 'removed') await mount.unlink('folder/large');
      else await mount.rename('folder/large', 'large');
      return await read(...of);
    };

    pins.pin(inoOf('folder'));

    await expect
      .poll(() => pins.stateOf(inoOf('folder')), { timeout: 10_000 })
      .toMatchObject({ files: 1, filesHere: 1, isComplete: true });
  },
);

import { describe, expect, test } from 'vitest';
import { type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { encodeFileUpdate } from '../../src/protocol/messages.ts';
import { MODEL_ROOT, MODEL_TRASH } from './model-service.ts';
import { SyncWorld } from './sync-world.ts';

/** The service's own name of a file stays what it is, whatever stands for it here, until somebody renames the file. */

const LONG = `${'a long name '.repeat(25)}.txt`;

function worldWith(names: readonly string[]): SyncWorld {
  const world = new SyncWorld();
  const { service } = world;
  service.auto = () => ({ type: 'answer' });
  service.uniqueNames = false;
  // As the service does it: a document with name and parent.
  service.moveToTrash = async (url, kind, name, signal) => {
    encodeFileUpdate({ displayName: name, parent: MODEL_TRASH });
    await service.relocate(url, kind, MODEL_TRASH, name, signal);
  };
  for (const name of names) service.add('file', MODEL_ROOT, name, Buffer.from(name.slice(0, 9)));
  service.add('folder', MODEL_ROOT, 'target');
  world.learn();
  return world;
}

const files = ({ tree }: SyncWorld): string[] =>
  [...tree.children(ROOT_INODE)].filter(({ node }) => node.kind === 'file').map(({ name }) => name);
const trashed = ({ service }: SyncWorld): string[] => service.childrenOf(MODEL_TRASH).map(({ name }) => name);

describe('what is deleted here', () => {
  test.each([
    ['a slash', ['AC/DC.mp3']],
    ['two dots', ['..']],
    ['300 bytes', [LONG]],
    ['one name twice', ['photo.jpg', 'photo.jpg']],
  ])('a deleted file has its remote name in the trash (%s)', async (_what, names) => {
    const world = worldWith(names);
    for (const name of files(world)) world.remove(`/${name}`);
    await world.settle();
    expect(trashed(world)).toEqual(names);
  });

  test.each(['Bell\r', 'bell\x07'])(
    'a file whose name XML cannot carry is deleted on the service (%j)',
    async (name) => {
      const world = worldWith([]);
      world.write(`/${name}`, 'bytes');
      await world.settle();
      expect(world.service.childrenOf(MODEL_ROOT)).toHaveLength(2);
      world.remove(`/${name}`);
      await world.settle();
      expect(world.sync.status().parked).toEqual([]);
      expect(world.service.childrenOf(MODEL_ROOT)).toHaveLength(1);
    },
  );

  test('a file that is deleted while it has a temporary name has its previous name in the trash', async () => {
    const world = worldWith(['a', 'b']);
    const { service } = world;
    const before = new Map(service.childrenOf(MODEL_ROOT).map(({ url, name }) => [url, name]));
    const aside = (): ResourceUrl | undefined =>
      service.childrenOf(MODEL_ROOT).find(({ name }) => name.startsWith('.cfs-'))?.url;
    world.rename('/a', '/b', 'exchange');
    service.auto = null;
    // Up to where one of the two has its temporary name, and no further.
    for (let round = 0; aside() === undefined; round++) {
      if (round === 20) throw new Error('none gets out of the way');
      world.clock.advance(2_001);
      await world.quiet();
      service.pending.shift()?.settle({ type: 'answer' });
      await world.quiet();
    }
    const url = aside() as ResourceUrl;
    for (const name of ['a', 'b']) world.remove(`/${name}`);
    service.auto = () => ({ type: 'answer' });
    service.settleAll({ type: 'answer' });
    await world.settle();
    expect(trashed(world)).toHaveLength(2);
    expect(service.childrenOf(MODEL_TRASH).find((each) => each.url === url)?.name).toBe(before.get(url));
    expect(trashed(world).filter((name) => name.startsWith('.cfs-'))).toEqual([]);
  });

  test('a file that is deleted while it is open has its own name in the trash, although another file has it by then', async () => {
    const world = worldWith(['log']);
    const { ino } = world.node('/log');
    world.open.add(ino);
    world.remove('/log');
    world.clock.advance(10_000); // no save: its name is taken again later
    await world.quiet();
    world.write('/log', 'new');
    for (let round = 0; round < 5; round++) {
      world.clock.advance(10_000);
      await world.quiet();
    }
    expect(world.service.tree().get('/log')).toBe('new');
    world.open.delete(ino);
    world.sync.changed(ino);
    await world.settle();
    expect(trashed(world)).toEqual(['log']);
  });
});

test('a move without a rename keeps a remote name of 300 bytes', async () => {
  const world = worldWith([LONG]);
  for (const name of files(world)) world.rename(`/${name}`, `/target/${name}`);
  await world.settle();
  const target = world.service.childrenOf(MODEL_ROOT)[0]?.url ?? MODEL_ROOT;
  expect(world.service.childrenOf(target).map(({ name }) => name)).toEqual([LONG]);
});

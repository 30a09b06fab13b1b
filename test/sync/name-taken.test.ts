import { expect, test } from 'vitest';
import { type Fate, MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

test.each(['made', 'moved'])(
  'a node that is to be %s under a taken name, in a folder that another client deletes then, is in the recreated folder',
  async (how) => {
    const world = new SyncWorld();
    const { service } = world;
    const folder = service.add('folder', MODEL_ROOT, 'd');
    service.add('file', MODEL_ROOT, 'f', Buffer.from('bytes'));
    world.learn();
    if (how === 'made') world.write('/d/f', 'bytes');
    else {
      world.pin('/f');
      world.rename('/f', '/d/f');
    }
    // Somebody makes one of that name, and then there is no folder any more.
    const theirs = service.add('file', folder, 'f', Buffer.from('theirs'));
    service.auto = (name) => {
      if (name === `list ${folder}`) for (const url of [theirs, folder]) service.resources.delete(url);
      return { type: 'answer' };
    };
    await world.settle();

    expect(world.sync.status().parked).toEqual([]);
    expect(service.tree().get('/d/f')).toBe('bytes');
  },
);

test('a file that is renamed over one in transfer, while its own name collision is resolved, continues that transfer', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  const file = service.add('file', MODEL_ROOT, 'file', Buffer.from('old'));
  world.learn();
  // Somebody is there already.
  service.add('file', MODEL_ROOT, 'new', Buffer.from('theirs'));
  world.write('/file', 'sent unheard');
  world.write('/new', 'what is saved');
  clock.advance(SETTLE_MS + 1);
  const settle = async (request: string, fate: Fate['type']): Promise<void> => {
    await world.quiet();
    const at = service.pending.findIndex(({ name }) => name.startsWith(request));
    service.pending.splice(at, 1)[0]?.settle({ type: fate } as Fate);
  };
  await settle('createVersion', 'answer');
  await settle('createFile', 'answer');
  await world.quiet();
  expect(service.pending.map(({ name }) => name).toSorted()).toEqual([`list ${MODEL_ROOT}`, 'putVersionData from 0']);
  world.rename('/new', '/file');
  await settle('list', 'answer');
  await settle('putVersionData', 'lose-reply');
  service.auto = () => ({ type: 'answer' });
  service.settleAll({ type: 'answer' });
  await world.settle();
  world.learn();

  expect([...service.tree()].toSorted()).toEqual([
    ['/file', 'what is saved'],
    ['/new', 'theirs'],
  ]);
  expect(world.node('/file').remote?.resource).toBe(file);
  expect(service.history(file).map(({ complete }) => complete)).toEqual([true, true, true]);
});

test('a folder of another client stays if ours of that name is removed while the service is asked about the name', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  world.mkdir('/d');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  const theirs = service.add('folder', MODEL_ROOT, 'd');
  service.settleAll({ type: 'answer' });
  await world.quiet();
  expect(service.pending.map(({ name }) => name)).toEqual([`list ${MODEL_ROOT}`]);
  world.remove('/d');
  service.settleAll({ type: 'answer' });
  await world.settle();
  world.learn();

  expect(service.isInTrash(theirs)).toBe(false);
  expect([...world.localTree()]).toEqual([['/d', null]]);
});

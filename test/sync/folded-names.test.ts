import { beforeEach, describe, expect, test } from 'vitest';
import { type Fate, MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** A service that takes `Photos` and `photos` for one name, and names that change hands here: each gets the one that it has. */

let world: SyncWorld;
beforeEach(() => {
  world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  world.service.foldsCase = true;
});

const there = () => Object.fromEntries(world.service.tree());

describe('a name that is refused because of one that is to leave it', () => {
  test('a file is moved into a folder of the same name', async () => {
    world.service.add('file', MODEL_ROOT, 'Makefile', Buffer.from('all:'));
    world.learn();
    world.mkdir('/makefile');
    world.rename('/Makefile', '/makefile/Makefile');
    await world.settle();
    expect(there()).toEqual({ '/makefile': null, '/makefile/Makefile': 'all:' });
  });

  test('all entries of a folder are moved into another one of its name, and the folder is removed', async () => {
    const folder = world.service.add('folder', MODEL_ROOT, 'Photos');
    for (const name of ['one', 'two']) world.service.add('file', folder, name, Buffer.from(name));
    world.learn();
    world.mkdir('/photos');
    for (const name of ['one', 'two']) world.rename(`/Photos/${name}`, `/photos/${name}`);
    world.remove('/Photos');
    await world.settle();
    expect(there()).toEqual({ '/photos': null, '/photos/one': 'one', '/photos/two': 'two' });
  });

  test.each(['both in one round', 'one after the other'])(
    'two entries exchange their names and change the case of them (%s)',
    async (how) => {
      for (const name of ['One', 'Two']) world.service.add('file', MODEL_ROOT, name, Buffer.from(name));
      world.learn();
      world.rename('/One', '/between');
      world.rename('/Two', '/one');
      if (how !== 'both in one round') world.clock.advance(1_000);
      world.rename('/between', '/two');
      await world.settle();
      expect(there()).toEqual({ '/one': 'Two', '/two': 'One' });
    },
  );

  test('a refused node does not wait for a holder that has another name by then', async () => {
    world.service.auto = (request) =>
      request === 'createFolder new' ? { type: 'refuse', status: 403 } : { type: 'answer' };
    world.service.add('file', MODEL_ROOT, 'Makefile', Buffer.from('all:'));
    world.learn();
    world.mkdir('/new');
    world.rename('/Makefile', '/new/Makefile');
    world.write('/makefile', 'x');
    world.clock.advance(SETTLE_MS);
    await world.quiet();
    expect(world.sync.status().parked.map(({ path }) => path)).toEqual(['new']);
    world.rename('/makefile', '/build.txt');
    for (let round = 0; round < 5; round++) {
      world.clock.advance(10 * SETTLE_MS);
      await world.quiet();
    }

    expect(there()).toEqual({ '/Makefile': 'all:', '/build.txt': 'x' });
  });

  test('if the holder is parked during the pause, the other node gets a name and is not reported as parked', async () => {
    world.service.add('folder', MODEL_ROOT, 'folder');
    world.service.add('file', MODEL_ROOT, 'Makefile', Buffer.from('all:'));
    world.learn();
    world.service.auto = null;
    const answer = async (request: string, fate: Fate): Promise<void> => {
      await world.quiet();
      const { pending } = world.service;
      const [asked] = pending.splice(
        pending.findIndex(({ name }) => name.startsWith(request)),
        1,
      );
      asked?.settle(fate);
      await world.quiet();
    };
    world.rename('/Makefile', '/folder/Makefile');
    world.write('/makefile', 'x');
    const syncing = world.sync.syncNow();
    await answer('createFile', { type: 'answer' });
    await answer('list', { type: 'answer' });
    await answer('relocate', { type: 'refuse', status: 403 });
    await answer('relocate', { type: 'refuse', status: 403 });
    expect(world.sync.status().parked.map(({ path }) => path)).toEqual(['folder/Makefile']);
    world.service.auto = () => ({ type: 'answer' });
    await world.converge();

    expect((await syncing).parked.map(({ path }) => path)).toEqual(['folder/Makefile']);
    expect(Object.values(there()).filter((text) => text === 'x')).toEqual(['x']);
  });
});

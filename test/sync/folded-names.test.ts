import { beforeEach, describe, expect, test } from 'vitest';
import { MODEL_ROOT } from './model-service.ts';
import { SyncWorld } from './sync-world.ts';

/** A service that takes `Photos` and `photos` for one name, and names that change hands here: each gets the one that it has. */

let world: SyncWorld;
beforeEach(() => {
  world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  world.service.foldsCase = true;
});

const there = () => Object.fromEntries(world.service.tree());

describe('a name that is refused because of one that is to leave it', () => {
  test('a file goes into a folder of its name', async () => {
    world.service.add('file', MODEL_ROOT, 'Makefile', Buffer.from('all:'));
    world.learn();
    world.mkdir('/makefile');
    world.rename('/Makefile', '/makefile/Makefile');
    await world.settle();
    expect(there()).toEqual({ '/makefile': null, '/makefile/Makefile': 'all:' });
  });

  test('all that is in a folder goes into another of its name, and the folder is removed', async () => {
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
    'two change names, and the case of them (%s)',
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
});

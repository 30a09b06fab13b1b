import { expect, test } from 'vitest';
import { MODEL_ROOT } from './model-service.ts';
import { SyncWorld } from './sync-world.ts';

test.each(['made', 'moved'])(
  'what is to be %s where its name is taken, in a folder that somebody deletes at that moment, goes with the folder that is made anew',
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

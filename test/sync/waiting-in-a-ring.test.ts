import { expect, test } from 'vitest';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** Changes that wait for each other, one of which is to give way: whatever they waited for before. */

test('a file being made when its folder is replaced by the one that it was moved to: all of it is pushed', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  service.add('folder', MODEL_ROOT, 'out');
  world.learn();
  world.write('/out/a', 'bytes');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  expect(service.pending.map(({ name }) => name)).toEqual(['createFile a']);

  clock.advance(10);
  world.mkdir('/out.new');
  world.rename('/out/a', '/out.new/a');
  world.rename('/out.new', '/out');
  // Its answer takes longer than a change settles, and so its change settles for as long.
  for (let round = 0; round < 3; round++) {
    clock.advance(SETTLE_MS + 1);
    await world.quiet();
  }
  await world.converge();

  expect([...service.tree()]).toEqual([
    ['/out', null],
    ['/out/a', 'bytes'],
  ]);
  expect(service.violations).toEqual([]);
});

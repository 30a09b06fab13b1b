import { expect, test } from 'vitest';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** The process dies while programs use the mount, and another one continues. They do not notice, and finish what they had begun. */

test.each([
  { isContinued: true, versions: 2, requests: [] },
  { isContinued: false, versions: 1, requests: ['resource'] },
])('a save that deletes the file first settles before it is pushed (continued: $isContinued)', async (expected) => {
  const world = new SyncWorld();
  const { service } = world;
  const file = service.add('file', MODEL_ROOT, 'f', Buffer.from('old'));
  world.learn();
  world.remove('/f');
  service.requests.length = 0;

  world.restart({ type: 'lose-reply' }, expected.isContinued);
  await world.quiet();
  expect(service.requests.map((name) => name.split(' ')[0])).toEqual(expected.requests);
  world.write('/f', 'saved');
  await world.settle();

  expect([...service.tree()]).toEqual([['/f', 'saved']]);
  expect(service.history(file)).toHaveLength(expected.versions);
});

test('what was changed before the death is pushed after one settle delay, and immediately by a request', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  world.write('/one', '1');
  world.write('/two', '2');
  world.restart({ type: 'lose-reply' }, true);
  clock.advance(SETTLE_MS - 1);
  await world.quiet();
  expect(service.pending).toEqual([]);

  const report = world.sync.syncNow(undefined, world.node('/one').ino);
  await world.quiet();
  expect(service.pending.map(({ name }) => name)).toEqual(['createFile one']);
  clock.advance(2);
  await world.quiet();
  expect(service.pending.map(({ name }) => name)).toEqual(['createFile one', 'createFile two']);
  await world.settle();
  await report;

  expect([...service.tree()]).toEqual([
    ['/one', '1'],
    ['/two', '2'],
  ]);
});

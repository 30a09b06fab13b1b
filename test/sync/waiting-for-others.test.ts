import { expect, test } from 'vitest';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** Changes that wait for others: each is pushed, whatever becomes of those, and whatever they waited for before. */

test('a file in creation is pushed completely when its folder is replaced by the folder that it was moved to', async () => {
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

test('a file that waits for a name is pushed when another client deletes the holder of the name, whose rename is parked', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  service.auto = (name) => (name.startsWith('relocate') ? { type: 'refuse', status: 403 } : { type: 'answer' });
  const url = service.add('file', MODEL_ROOT, 'x', Buffer.from('old'));
  world.learn();
  world.rename('/x', '/y');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  expect(world.sync.status().parked).toHaveLength(1);
  clock.advance(10_000);
  world.write('/x', 'new');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  expect(service.tree().get('/x')).toBe('old');
  await service.moveToTrash(url, 'file', 'x', new AbortController().signal);
  world.learn();
  await world.settle();

  expect([...service.tree()]).toEqual([['/x', 'new']]);
});
test('three files exchange their names in a cycle, two of them in a folder that is pushed at the same time', async () => {
  const world = new SyncWorld();
  const { service, sync } = world;
  service.auto = () => ({ type: 'answer' });
  const [a, b] = [service.add('folder', MODEL_ROOT, 'a'), service.add('folder', MODEL_ROOT, 'b')];
  for (const [folder, name] of [
    [a, 'w'],
    [a, 'y'],
    [b, 'x'],
  ] as const)
    service.add('file', folder, name, Buffer.from(name));
  world.learn();
  world.rename('/b/x', '/b/t');
  world.rename('/a/y', '/b/x');
  world.rename('/a/w', '/a/y');
  world.rename('/b/t', '/a/w');
  let isOver = false;
  void sync.syncNow(undefined, world.node('/a').ino).then(() => {
    isOver = true;
  });
  for (let round = 0; round < 5; round++) await world.quiet();

  expect(isOver).toBe(true);
  expect(Object.fromEntries(service.tree())).toMatchObject({ '/a/w': 'x', '/a/y': 'w', '/b/x': 'y' });
});

test('a refused name goes to a file that is renamed over its waiting owner', async () => {
  const world = new SyncWorld();
  const { service } = world;
  for (const name of ['a', 'b']) service.add('file', MODEL_ROOT, name, Buffer.from(name));
  world.learn();
  world.rename('/a', '/c');
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  const [asked] = service.pending.splice(0);
  expect(asked?.name).toMatch(/^relocate .* c$/);
  world.rename('/b', '/c');
  asked?.settle({ type: 'refuse', status: 409 });
  await world.quiet();
  world.clock.advance(SETTLE_MS + 1);
  await world.converge();

  expect(service.violations).toEqual([]);
  expect([...service.tree()]).toEqual([['/c', 'b']]);
});

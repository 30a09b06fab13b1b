import { expect, test } from 'vitest';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

const stateOf = async (world: SyncWorld, path: string): Promise<string> =>
  world.sync.stateOf(path === '/' ? ROOT_INODE : world.node(path).ino);

/** [S-xattr-5] */
test('the state of a folder is the worst below it, follows moves, and costs nothing where nothing is dirty', async () => {
  const world = new SyncWorld();
  for (const folder of ['/a', '/a/b', '/c']) world.mkdir(folder);
  world.write('/a/b/f', 'hello');
  expect(await stateOf(world, '/a')).toBe('pending');
  expect(await stateOf(world, '/')).toBe('pending');
  await world.settle();
  const clean = world.sync.stateOf(world.node('/a').ino);
  expect(clean).toBe('clean'); // no promise: nothing was looked at

  world.write('/a/b/f', 'again');
  expect(await stateOf(world, '/a')).toBe('pending');
  expect(await stateOf(world, '/c')).toBe('clean');
  world.rename('/a/b', '/c/b');
  expect(await stateOf(world, '/c')).toBe('pending');
  expect(await stateOf(world, '/a')).toBe('clean');
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  expect(await stateOf(world, '/c')).toBe('pushing');
});

/** [S-xattr-5] */
test('a parked change shows in every folder above it, whatever else is pending there', async () => {
  const world = new SyncWorld();
  world.mkdir('/a');
  for (let at = 0; at < 600; at++) world.write(`/a/f${at}`, 'x');
  const { ino } = world.node('/a/f300');
  const dirty = world.store.get('dirty', ino);
  if (dirty === undefined) throw new Error('not dirty');
  world.store.transact((tx) => tx.put('dirty', ino, { ...dirty, parked: { reason: 'quota', detail: '', atMs: 0 } }));
  world.sync.changed(ino);
  for (const folder of ['/a', '/']) expect(await stateOf(world, folder)).toBe('parked:quota');
  expect(await stateOf(world, '/a/f1')).toBe('pending');
});

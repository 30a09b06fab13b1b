import { expect, test } from 'vitest';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

const HOUR_MS = 3_600_000;
const types = (world: SyncWorld): string[] => world.events.map(({ type }) => type);

async function laterBy(world: SyncWorld, ms: number): Promise<void> {
  world.clock.advance(ms);
  await world.quiet();
}

/** [S-pushpause-1] */
test('while pushing is paused nothing is sent, and after the end of the pause everything is', async () => {
  const world = new SyncWorld();
  world.sync.pause(null);
  world.write('/f', 'hello');
  await laterBy(world, HOUR_MS);
  expect(world.service.requests).toEqual([]);
  expect(world.sync.status().pending).toBe(1);

  expect(world.sync.resume()).toBe(true);
  expect(world.sync.resume()).toBe(false);
  await world.converge();
  expect([...world.service.tree()]).toEqual([...world.localTree()]);
});

/** [S-pushpause-1] */
test('a retry, a person who signs in, and a service that is back do not end the pause', async () => {
  const world = new SyncWorld();
  world.write('/f', 'hello');
  world.sync.pause(null);
  world.sync.retry();
  world.health.reachable();
  world.health.retryNow();
  await laterBy(world, SETTLE_MS + 1);
  expect(world.service.requests).toEqual([]);
});

/** [S-pushpause-1] */
test('a pause aborts the push that is under way, and its end continues it', async () => {
  const world = new SyncWorld();
  world.write('/big', 'more than eight bytes');
  await laterBy(world, SETTLE_MS + 1);
  expect(world.service.pending.length).toBe(1);
  world.sync.pause(null);
  world.service.settleAll({ type: 'answer' });
  await laterBy(world, HOUR_MS);
  const sent = world.service.requests.length;
  await laterBy(world, HOUR_MS);
  expect(world.service.requests).toHaveLength(sent);
  expect(world.service.pending).toEqual([]);

  world.sync.resume();
  await world.converge();
  expect([...world.service.tree()]).toEqual([...world.localTree()]);
  expect(world.service.violations).toEqual([]);
});

/** [S-pushpause-2] */
test('a sync that waits ends with exit code 10 when a pause begins, and immediately while it lasts', async () => {
  const world = new SyncWorld();
  world.write('/f', 'hello');
  const waiting = world.sync.syncNow();
  world.sync.pause(null);
  await expect(waiting).rejects.toMatchObject({ exitCode: 10, message: expect.stringContaining('paused') });
  await expect(world.sync.syncNow()).rejects.toMatchObject({ exitCode: 10 });
});

/** [S-pushpause-3] */
test('a pause lasts over a restart', async () => {
  const world = new SyncWorld();
  world.sync.pause(null);
  world.write('/f', 'hello');
  world.restart();
  await laterBy(world, HOUR_MS);
  expect(world.service.requests).toEqual([]);
  expect(types(world)).toEqual(['paused', 'paused']);
});

/** [S-pushpause-3] */
test('a pause with an end ends at its time of the wall clock, also where that passed while nothing ran', async () => {
  const world = new SyncWorld();
  world.write('/f', 'hello');
  world.sync.pause(world.clock.nowMs() + HOUR_MS);
  await laterBy(world, HOUR_MS - 1);
  expect(world.service.requests).toEqual([]);
  expect(types(world)).toEqual(['paused']);
  await laterBy(world, 31_000);
  await world.converge();
  expect(world.sync.paused).toBeNull();
  expect(world.service.requests).not.toEqual([]);

  world.sync.pause(world.clock.nowMs() + HOUR_MS);
  await world.sync.stop();
  world.clock.advance(2 * HOUR_MS);
  world.restart();
  expect(world.sync.paused).toBeNull();
  expect(types(world).slice(-2)).toEqual(['paused', 'resumed']);
});

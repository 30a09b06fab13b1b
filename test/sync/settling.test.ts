import { expect, test } from 'vitest';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

const SECOND_MS = 1_000;

/** A first version of `/f` whose PUT takes so long. */
async function uploaded(world: SyncWorld, tookMs: number): Promise<void> {
  world.write('/f', 'one');
  world.clock.advance(SETTLE_MS + 1);
  for (let round = 0; round < 20; round++) {
    await world.quiet();
    if (world.service.pending.some(({ name }) => name.startsWith('putFileData'))) break;
    world.service.settleAll({ type: 'answer' });
  }
  expect(world.service.pending).toHaveLength(1);
  world.clock.advance(tookMs);
  await world.converge();
}

/** How long after a save the first request of its push is sent, to a second. */
async function secondsUntilPushed(world: SyncWorld, text: string): Promise<number> {
  const before = world.service.requests.length;
  world.write('/f', text);
  for (let second = 0; second < 400; second++) {
    await world.quiet();
    if (world.service.requests.length > before) return second;
    world.clock.advance(SECOND_MS);
  }
  throw new Error('never pushed');
}

test('after a long upload, the next save of the file settles for as long', async () => {
  const world = new SyncWorld();
  await uploaded(world, 30 * SECOND_MS);

  expect(await secondsUntilPushed(world, 'two')).toBeGreaterThanOrEqual(30);
});

test('a file that is saved repeatedly in its settle delay is sent once', async () => {
  const world = new SyncWorld();
  await uploaded(world, 30 * SECOND_MS);
  const before = world.service.requests.length;

  for (let save = 0; save < 10; save++) {
    world.write('/f', `draft ${save}`);
    world.clock.advance(25 * SECOND_MS);
    await world.quiet();
  }

  expect(world.service.requests.slice(before)).toEqual([]);
  await world.converge();
  expect([...world.service.tree().values()]).toEqual(['draft 9']);
});

test('a file settles for at most a minute, whatever the duration of its upload', async () => {
  const world = new SyncWorld();
  await uploaded(world, 3_600 * SECOND_MS);

  const seconds = await secondsUntilPushed(world, 'two');

  expect(seconds).toBeGreaterThanOrEqual(60);
  expect(seconds).toBeLessThanOrEqual(62);
});

test('a fast upload does not change the settle delay', async () => {
  const world = new SyncWorld();
  await uploaded(world, 100);

  expect(await secondsUntilPushed(world, 'two')).toBeLessThanOrEqual(SETTLE_MS / SECOND_MS + 1);
});

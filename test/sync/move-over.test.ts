import { expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/**
 * `mv big existing`, where nothing of `big` is here: no save, so both histories stay, one of them in the trash, and not a byte of
 * either is sent or fetched. Whatever request the line or the process dies at.
 */

interface Moved {
  readonly world: SyncWorld;
  readonly big: ResourceUrl;
  readonly existing: ResourceUrl;
}

function moved(): Moved {
  const world = new SyncWorld();
  const folder = world.service.add('folder', MODEL_ROOT, 'd');
  const existing = world.service.add('file', MODEL_ROOT, 'existing', Buffer.from('existing 1'));
  world.service.addVersion(existing, Buffer.from('existing 2'));
  const big = world.service.add('file', folder, 'big', Buffer.from('big 1'));
  world.service.addVersion(big, Buffer.from('big 2'));
  world.learn();
  world.service.requests.length = 0;
  world.rename('/d/big', '/existing');
  world.clock.advance(SETTLE_MS + 1);
  return { world, big, existing };
}

function historyOf({ world }: Moved, file: ResourceUrl): string[] {
  return (world.service.resources.get(file)?.versions ?? []).map(({ bytes }) => bytes.toString());
}

function expectBothHistories(now: Moved): void {
  const { world, big, existing } = now;
  expect(world.service.tree()).toEqual(
    new Map([
      ['/d', null],
      ['/existing', 'big 2'],
    ]),
  );
  expect(world.localTree()).toEqual(world.service.tree());
  expect(historyOf(now, big)).toEqual(['big 2', 'big 1']);
  expect(historyOf(now, existing)).toEqual(['existing 2', 'existing 1']);
  expect(world.service.isInTrash(existing)).toBe(true);
  expect(world.node('/existing').remote?.resource).toBe(big);
  expect(world.service.requests.filter((name) => /Data|ersion|copyFile|createFile/.test(name))).toEqual([]);
  expect(world.service.receivedBytes).toBe(0);
  expect(world.service.violations).toEqual([]);
}

test('a rename over another file costs three small requests', async () => {
  const now = moved();
  await now.world.converge();

  expectBothHistories(now);
  expect(now.world.service.requests.map((name) => name.split(' ')[0])).toEqual(['resource', 'trash', 'relocate']);
});

test.each([
  ['lose-request', 'the same process'],
  ['lose-reply', 'the same process'],
  ['lose-request', 'a new process'],
  ['lose-reply', 'a new process'],
] as const)('a rename over another file completes wherever the connection breaks: %s, then %s', async (type, next) => {
  for (let stopAt = 1, stopped = true; stopped; stopAt++) {
    const now = moved();
    const { world } = now;
    let asked = 0;
    world.service.auto = () => (++asked >= stopAt ? { type } : { type: 'answer' });
    await world.quiet();
    stopped = asked >= stopAt;
    if (stopped && next === 'a new process') world.restart();

    world.service.auto = null;
    await world.converge();

    expectBothHistories(now);
  }
});

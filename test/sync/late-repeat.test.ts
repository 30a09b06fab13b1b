import { expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** The process dies in the PUT of a file's first bytes. Its successor repeats the PUT, and the service stores the earlier one after that. */

const LATE_MS = 5_000;

/** Answers requests until one with this name waits. */
async function waitingFor(world: SyncWorld, name: string): Promise<void> {
  for (let round = 0; round < 100; round++) {
    await world.quiet();
    if (world.service.pending.some((request) => request.name.startsWith(name))) return;
    if (world.service.pending.length > 0) world.service.settleAll({ type: 'answer' });
    else world.clock.advance(SETTLE_MS);
  }
  throw new Error(`no ${name} after ${world.service.requests.join()}`);
}

test.each([
  { deaths: 1, isListed: false },
  { deaths: 1, isListed: true },
  { deaths: 2, isListed: false },
  { deaths: 2, isListed: true },
])(
  'a removed file stays removed, and is deleted on the service (deaths: $deaths, listed before: $isListed)',
  async ({ deaths, isListed }) => {
    const world = new SyncWorld();
    const { service, clock } = world;
    world.write('/file', 'bytes');
    for (let death = 0; death < deaths; death++) {
      await waitingFor(world, 'putFileData');
      world.restart({ type: 'lose-request' }); // it is on its way
    }
    await world.converge();
    const [file] = [...service.resources.values()].filter(({ name }) => name === 'file');
    const later = (): void => {
      service.nowMs += LATE_MS;
      clock.advance(LATE_MS);
    };
    later();
    if (isListed) world.learn();

    world.remove('/file');
    for (let death = 0; death < deaths; death++) {
      later();
      service.addVersion(file?.url as ResourceUrl, Buffer.from('bytes'));
      world.learn();
    }

    expect([...world.localTree()]).toEqual([]);
    await world.settle();
    world.learn();
    expect([...world.localTree()]).toEqual([]);
    expect([...service.tree()]).toEqual([]);
    expect(service.violations).toEqual([]);
  },
);

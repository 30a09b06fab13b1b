import { expect, test } from 'vitest';
import { ApiError } from '../../src/base/errors.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** A gateway in front of the service answers 404 for the service's own resources, and then does no more. */

/** 404 for twenty seconds, for all requests but those. */
function behindGateway({ service, clock }: SyncWorld, isLetThrough: (name: string) => boolean): void {
  const isDown = (): boolean => clock.elapsedMs() < 20_000;
  const ask = service.resource.bind(service);
  service.resource = async (...asked) => {
    try {
      return await ask(...asked);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null; // as the client reads it
      throw error;
    }
  };
  service.auto = (name) => (isDown() && !isLetThrough(name) ? { type: 'refuse', status: 404 } : { type: 'answer' });
}

async function pass(world: SyncWorld, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    world.clock.advance(1_000);
    await world.quiet();
  }
}

const changes: Record<string, (world: SyncWorld) => void> = {
  'a version': (world) => void world.write('/d/f', 'a second version'),
  'a new file': (world) => void world.write('/d/new', 'new'),
  'a new folder': (world) => void world.mkdir('/d/sub'),
  'a rename': (world) => void world.rename('/d/f', '/d/g'),
  'a removal': (world) => void world.remove('/d/f'),
};

test.each(Object.keys(changes))(
  'a push that gets a 404 from a gateway waits, and creates nothing twice (%s)',
  async (what) => {
    const world = new SyncWorld();
    const folder = world.service.add('folder', MODEL_ROOT, 'd');
    const file = world.service.add('file', folder, 'f', Buffer.from('before'));
    world.learn();
    changes[what]?.(world);
    // The listing of the top folder comes through: 404 for all below it.
    behindGateway(world, (name) => name === `list ${MODEL_ROOT}`);
    world.clock.advance(SETTLE_MS + 1);
    await pass(world, 3_600);

    expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });
    expect(world.service.childrenOf(MODEL_ROOT).map(({ url }) => url)).toEqual([folder]);
    const names = world.service.childrenOf(folder).map(({ name }) => name);
    const expected = { 'a new file': ['f', 'new'], 'a new folder': ['f', 'sub'], 'a rename': ['g'], 'a removal': [] };
    expect(names.toSorted()).toEqual(expected[what as keyof typeof expected] ?? ['f']);
    if (what === 'a version') expect(world.service.bytesOf(file)?.toString()).toBe('a second version');
  },
);

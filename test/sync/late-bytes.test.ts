import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { type Fate, MODEL_ROOT } from './model-service.ts';

/** The first bytes of a file, of which nothing was heard for so long that a version of its own is made: they are ours, whenever they are found. */

const ANSWER: Fate = { type: 'answer' };

let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build();
});
afterEach(() => world.close());

const shown = (): string[] => [...world.service.tree()].map(([path, bytes]) => `${path} ${bytes}`).toSorted();
const fileOf = (): ResourceUrl => world.service.childrenOf(MODEL_ROOT)[0]?.url as ResourceUrl;

test.each(['createVersion', 'putVersionData', 'versions'])(
  'a slow service that stores the bytes during another request gets them once (%s)',
  async (request) => {
    const { service, mount, clock } = world;
    let stage: 'sent' | 'refused' | 'stored' = 'sent';
    service.auto = (name) => {
      if (stage === 'sent' && name.startsWith('putFileData')) {
        stage = 'refused';
        clock.advance(60_000);
        return { type: 'refuse', status: 504 };
      }
      if (stage === 'refused' && name.startsWith(request)) {
        stage = 'stored';
        service.addVersion(fileOf(), Buffer.from('bytes'));
      }
      return ANSWER;
    };
    await mount.writeFile('file', Buffer.from('bytes'));
    await world.converge();
    for (let round = 0; round < 5; round++) await world.pass(60_000);

    expect(stage).toBe('stored');
    expect(shown()).toEqual(['/file bytes']);
  },
);

describe('they are parked because the file may not be looked at', () => {
  let isAllowed = false;
  beforeEach(async () => {
    const { service, mount, sync } = world;
    let isSent = false;
    isAllowed = false;
    service.auto = (name) => {
      if (!isSent && name.startsWith('putFileData')) {
        isSent = true;
        return { type: 'lose-reply' };
      }
      return isSent && !isAllowed && name.startsWith('resource') ? { type: 'refuse', status: 403 } : ANSWER;
    };
    await mount.writeFile('file', Buffer.from('bytes'));
    for (let round = 0; round < 60 && sync.status().parked.length === 0; round++) await world.pass(10_000);
    expect(sync.status().parked).toHaveLength(1);
    await world.pass(60_000);
  });

  test('bytes that arrived late count after a retry of the parked file', async () => {
    isAllowed = true;
    world.sync.retry();
    await world.converge();
    expect(shown()).toEqual(['/file bytes']);
  });

  test('bytes that arrived late count after a retry and a restart', async () => {
    const left = world;
    await left.close('keep');
    world = await SyncedSide.build({ left });
    isAllowed = true;
    world.sync.retry();
    await world.converge();
    expect(shown()).toEqual(['/file bytes']);
  });

  test('bytes that arrived late become a version below the next save', async () => {
    isAllowed = true;
    await world.mount.writeFile('file', Buffer.from('others'));
    await world.converge();
    expect(shown()).toEqual(['/file others']);
  });

  test('bytes that arrived late become a version below the next save, although the file cannot be read yet', async () => {
    await world.mount.writeFile('file', Buffer.from('others'));
    for (let round = 0; round < 10; round++) await world.pass(60_000);
    expect(shown()).toEqual(['/file others']);
  });

  test('bytes that arrived late are deleted with the file', async () => {
    isAllowed = true;
    await world.mount.unlink('file');
    await world.converge();
    expect(shown()).toEqual([]);
  });
});

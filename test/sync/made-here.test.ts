import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type ContentId, type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { SyncedTower } from '../harness/synced-tower.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { MODEL_ROOT } from './model-service.ts';

/** What was made here has room in the cache like what was fetched: it goes when the budget is spent, and comes back when read. */
const BUDGET_BYTES = 100_000;
let world: SyncedTower;
beforeEach(async () => {
  world = await SyncedTower.build({ contents: { cacheBytes: BUDGET_BYTES, inlineMaxBytes: 4096 } });
});
afterEach(() => world.close());

const random = new SeededRandom(20261120);
/** Some live beside their names, some in files. */
const LENGTHS = Array.from({ length: 60 }, (_, i) => (i % 3 === 0 ? 100 + i : 9_000 + i * 13));
const bytesOf = (length: number): Buffer => Buffer.from(Array.from({ length }, () => random.below(256)));

async function make(lengths: readonly number[]): Promise<Map<string, Buffer>> {
  const made = new Map<string, Buffer>();
  for (const [i, length] of lengths.entries()) {
    const bytes = bytesOf(length);
    made.set(`f${i}`, bytes);
    await world.mount.writeFile(`f${i}`, bytes);
  }
  await world.converge();
  return made;
}

function kept(): number {
  const { cacheBytes, draftBytes } = world.tower.contents.usage();
  return cacheBytes + draftBytes;
}

async function calm(): Promise<void> {
  for (let i = 0; i < 20; i++) await world.pass(1_000);
}

const historiesAsked = (): number => world.service.requests.filter((name) => name.startsWith('versions')).length;

describe('[S-cache-1] files that were made here', () => {
  test('go when the cache is over its budget, and are read again as they were', async () => {
    const made = await make(LENGTHS);
    await calm();
    expect(kept()).toBeLessThanOrEqual(BUDGET_BYTES);

    for (const [name, bytes] of made) {
      expect(Buffer.compare(await world.mount.readFile(name), bytes), name).toBe(0);
    }
    await calm();
    expect(kept()).toBeLessThanOrEqual(BUDGET_BYTES);
    expect(world.sync.status().pending).toBe(0);
  });

  test('cost no request for their names while there is room', async () => {
    await make([1_000, 20_000, 30_000]);
    await calm();

    expect(historiesAsked()).toBe(0);
    expect(kept()).toBe(51_000);
  });

  test('that somebody else changed are not taken for what they became', async () => {
    const made = await make([90_000]);
    const [file] = world.service.childrenOf(MODEL_ROOT);
    world.service.addVersion(file?.url as ResourceUrl, bytesOf(90_000));
    await world.mount.writeFile('more', bytesOf(70_000));
    await world.converge();
    await calm();
    expect(historiesAsked()).toBeGreaterThan(0);
    const ino = world.tower.store.get('resource', file?.url as ResourceUrl) ?? 0;
    const content = world.tower.store.get('node', ino as Inode)?.local?.content as ContentId;
    expect(world.tower.contents.record(content)).toMatchObject({ kind: 'draft', version: null });
    expect(Buffer.compare(await world.mount.readFile('f0'), made.get('f0') as Buffer)).toBe(0);
  });

  test('are not taken for what somebody else saved where the service keeps no old versions', async () => {
    world.service.keptVersions = 0;
    await make([20_000, 60_000]);
    await world.tower.freshness.refresh(ROOT_INODE);
    const file = world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === 'f1');
    const theirs = bytesOf(60_000);
    world.service.addVersion(file?.url as ResourceUrl, theirs);
    await world.mount.writeFile('more', bytesOf(30_000)); // room is needed for less than is there
    await world.converge();
    await calm();
    expect(historiesAsked()).toBe(3);

    await world.tower.freshness.refresh(ROOT_INODE);
    expect(Buffer.compare(await world.mount.readFile('f1'), theirs)).toBe(0);
  });

  test('are never given up before the service has them', async () => {
    world.service.auto = null;
    const made = new Map<string, Buffer>();
    for (let i = 0; i < 20; i++) {
      made.set(`f${i}`, bytesOf(10_000));
      await world.mount.writeFile(`f${i}`, made.get(`f${i}`) as Buffer);
    }
    await calm();
    expect(kept()).toBe(200_000);
    for (const [name, bytes] of made) expect(Buffer.compare(await world.mount.readFile(name), bytes), name).toBe(0);
  });
});

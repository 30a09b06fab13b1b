import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import type { ContentId, Inode } from '../../src/base/vocabulary.ts';
import { evictBelow } from '../../src/mount/evict-below.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { SeededRandom } from '../store/seeded-random.ts';

/** Bytes that were made here and pushed, whose version the service has not named: they are damaged on the disk, not lost. */

let world: SyncedSide;
afterEach(() => world.close());

const OPTIONS = { contents: { inlineMaxBytes: 4096 } };
const random = new SeededRandom(20261126);

/** Flips a bit of `bytes` in each file of the store that has them. */
function damage(directory: string, bytes: Buffer): void {
  let flipped = 0;
  for (const entry of readdirSync(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const file = readFileSync(path);
    const at = file.indexOf(bytes.subarray(0, 1000));
    if (at === -1) continue;
    file.writeUInt8(file.readUInt8(at + 500) ^ 1, at + 500);
    writeFileSync(path, file);
    flipped++;
  }
  expect(flipped).toBeGreaterThan(0);
}

/** [S-damage-1] */
test.each([
  ['small', 3_000],
  ['large', 400_000],
])(
  'damage of a %s file that was made here and pushed heals: its version is asked for, and fetched again',
  async (_, sizeBytes) => {
    const bytes = Buffer.from(random.bytes(sizeBytes));
    const first = await SyncedSide.build(OPTIONS);
    await first.mount.writeFile('made', bytes);
    await first.mount.writeFile('beside', bytes.subarray(0, 100));
    await first.converge();
    await first.pass(60_000);
    await first.close('keep');
    damage(first.side.directory, bytes);

    world = await SyncedSide.build({ ...OPTIONS, left: first });
    const asked = world.service.requests.length;
    await expect(world.mount.readFile('made')).rejects.toMatchObject({ errno: 'EIO' });
    await world.pass(1_000);
    expect(world.service.requests.slice(asked).filter((name) => name.startsWith('versions'))).toHaveLength(1);
    expect(Buffer.compare(await world.mount.readFile('made'), bytes)).toBe(0);
    expect(world.sync.status().pending).toBe(0);
  },
);

/** [S-damage-1] */
test('damage that was read while the service was away heals by cfs evict', async () => {
  const bytes = Buffer.from(random.bytes(3_000));
  const first = await SyncedSide.build(OPTIONS);
  await first.mount.writeFile('made', bytes);
  await first.converge();
  await first.close('keep');
  damage(first.side.directory, bytes);

  world = await SyncedSide.build({ ...OPTIONS, left: first });
  world.service.auto = () => ({ type: 'refuse', status: 503 });
  for (let round = 0; round < 2; round++) {
    await expect(world.mount.readFile('made')).rejects.toMatchObject({ errno: 'EIO' });
    await world.pass(1_000);
  }
  world.service.auto = () => ({ type: 'answer' });
  const { store, contents } = world.side;
  const makeEvictable = (ids: readonly ContentId[]): Promise<boolean> => world.sync.makeEvictable(ids);
  const ino = (await world.mount.stat('made')).ino as Inode;
  const evicting = evictBelow({ store, contents, pins: { kindOf: () => 'none' }, makeEvictable }, ino);
  await world.pass(1_000);
  expect((await evicting).kept).toEqual({ onlyHere: 0, unnamed: 0, pinned: 0, inUse: 0 });
  expect(Buffer.compare(await world.mount.readFile('made'), bytes)).toBe(0);
});

/** [S-damage-1] */
test('damage of a change that is not pushed stays EIO, and the service is asked nothing', async () => {
  const bytes = Buffer.from(random.bytes(3_000));
  const first = await SyncedSide.build(OPTIONS);
  first.service.auto = null;
  await first.mount.writeFile('made', bytes);
  await first.pass(1_000);
  await first.close('keep');
  damage(first.side.directory, bytes);

  world = await SyncedSide.build({ ...OPTIONS, left: first });
  for (let round = 0; round < 2; round++) {
    await expect(world.mount.readFile('made')).rejects.toMatchObject({ errno: 'EIO' });
    await world.pass(1_000);
  }
  expect(world.service.requests.filter((name) => name.startsWith('versions'))).toEqual([]);
});

import { afterEach, beforeEach, expect, test } from 'vitest';
import type { ContentId, Inode } from '../../src/base/vocabulary.ts';
import type { Evicted } from '../../src/control/status-model.ts';
import { evictBelow } from '../../src/mount/evict-below.ts';
import { SyncedSide } from '../harness/synced-side.ts';

let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build({ contents: { inlineMaxBytes: 4096 } });
});
afterEach(() => world.close());

const SMALL = Buffer.from('a few bytes');
const LARGE = Buffer.alloc(300_000, 'large');
const NOTHING_KEPT = { onlyHere: 0, unnamed: 0, pinned: 0, inUse: 0 };
const inodeOf = async (name: string): Promise<Inode> => (await world.mount.stat(name)).ino as Inode;
const historiesAsked = (): number => world.service.requests.filter((name) => name.startsWith('versions')).length;

/** Evicts in steps of the model's time. */
async function evict(name: string, pinned: readonly Inode[] = []): Promise<Evicted> {
  const { store, contents } = world.side;
  const parts = {
    store,
    contents,
    pins: { kindOf: (ino: Inode) => (pinned.includes(ino) ? ('itself' as const) : ('none' as const)) },
    makeEvictable: (ids: readonly ContentId[]) => world.sync.makeEvictable(ids),
  };
  let evicted: Evicted | null = null;
  const evicting = evictBelow(parts, await inodeOf(name)).then((end) => {
    evicted = end;
  });
  for (let step = 0; step < 100 && evicted === null; step++) await world.pass(10);
  await evicting;
  return evicted as unknown as Evicted;
}

/** [S-evict-3] */
test.each([
  ['small', SMALL],
  ['large', LARGE],
])('a %s file that was made here is evicted once it is pushed, and is read again unchanged', async (_, bytes) => {
  await world.mount.writeFile('made', bytes);
  await world.converge();
  const evicted = await evict('made');
  expect(evicted).toMatchObject({ files: 1, kept: NOTHING_KEPT });
  expect(evicted.bytes).toBeGreaterThanOrEqual(bytes.byteLength);
  expect(historiesAsked()).toBe(1);
  expect(await evict('made')).toEqual({ files: 0, bytes: 0, kept: NOTHING_KEPT });
  expect(Buffer.compare(await world.mount.readFile('made'), bytes)).toBe(0);
});

/** [S-evict-3] */
test('a folder of files that were made here is evicted with one request for each file', async () => {
  await world.mount.mkdir('folder');
  for (let i = 0; i < 20; i++) await world.mount.writeFile(`folder/f${i}`, i % 2 === 0 ? SMALL : LARGE);
  await world.mount.writeFile('folder/empty', Buffer.alloc(0));
  await world.converge();
  expect(await evict('folder')).toMatchObject({ files: 20, kept: NOTHING_KEPT });
  expect(historiesAsked()).toBe(20);
});

/** [S-evict-2] */
test('a change that is not pushed is kept as only here, and a pinned file as pinned, without a request', async () => {
  await world.mount.writeFile('pinned', SMALL);
  await world.converge();
  await world.mount.writeFile('changed', SMALL);
  expect((await evict('changed')).kept).toEqual({ ...NOTHING_KEPT, onlyHere: 1 });
  expect((await evict('pinned', [await inodeOf('pinned')])).kept).toEqual({ ...NOTHING_KEPT, pinned: 1 });
  expect(historiesAsked()).toBe(0);
});

/** [S-evict-3] */
test('pushed files whose version the service does not name are kept, and a service that is away is asked no further', async () => {
  await world.mount.mkdir('folder');
  for (let i = 0; i < 250; i++) await world.mount.writeFile(`folder/f${i}`, SMALL);
  await world.converge();
  world.service.auto = () => ({ type: 'refuse', status: 503 });
  expect(await evict('folder')).toEqual({ files: 0, bytes: 0, kept: { ...NOTHING_KEPT, unnamed: 250 } });
  // Four are asked at the same moment.
  expect(historiesAsked()).toBeLessThanOrEqual(4);
  for (let i = 0; i < 250; i += 50) expect(await world.mount.readFile(`folder/f${i}`)).toEqual(SMALL);

  world.service.auto = () => ({ type: 'answer' });
  expect(await evict('folder')).toMatchObject({ files: 250, kept: NOTHING_KEPT });
});

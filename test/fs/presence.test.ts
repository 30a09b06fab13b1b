import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { presenceBelow } from '../../src/fs/presence.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';

let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build({ contents: { inlineMaxBytes: 4096 } });
});
afterEach(() => world.close());

const SMALL = Buffer.from('a few bytes');
const inodeOf = async (path: string): Promise<Inode> => (await world.mount.stat(path)).ino as Inode;

/** @param entriesMax where it stops */
async function below(path: string, entriesMax?: number): Promise<string> {
  const { tree, contents } = world.side;
  const parts = { tree, contents, ...(entriesMax !== undefined && { entriesMax }) };
  return await presenceBelow(parts, await inodeOf(path), new AbortController().signal);
}

async function evict(path: string): Promise<void> {
  const { store, contents } = world.side;
  const content = store.get('node', await inodeOf(path))?.local?.content;
  if (content == null) throw new Error(`${path} has no bytes`);
  const making = world.sync.makeEvictable([content]);
  await world.pass(10);
  await making;
  for (const steps = contents.evictVersion(content); ; ) {
    const step = steps.next();
    if (step.done !== true) continue;
    expect(step.value).not.toBeNull();
    return;
  }
}

/** [S-xattr-7] */
test('a folder is here as a whole, in part, or not at all, as the files below it are', async () => {
  await world.mount.mkdir('top');
  await world.mount.mkdir('top/deep');
  expect(await below('top')).toBe('all');
  for (const name of ['top/a', 'top/deep/b']) await world.mount.writeFile(name, SMALL);
  await world.mount.writeFile('top/empty', Buffer.alloc(0));
  await world.converge();
  expect(await below('top')).toBe('all');

  await evict('top/deep/b');
  expect([await below('top'), await below('top/deep')]).toEqual(['part', 'none']);
  await evict('top/a');
  expect(await below('top')).toBe('none');
  await world.mount.readFile('top/a');
  expect(await below('top')).toBe('part');
  await world.mount.readFile('top/deep/b');
  expect(await below('top')).toBe('all');
});

/** [S-xattr-7] */
test('a folder that was never listed has none of its files here, and the question does not list it', async () => {
  world.service.add('file', world.service.add('folder', MODEL_ROOT, 'theirs'), 'f', SMALL);
  await world.mount.readdir('.');
  await world.pass(1_000);
  await world.mount.mkdir('mine');
  await world.mount.writeFile('mine/f', SMALL);
  await world.converge();
  const asked = world.service.requests.length;
  expect([await below('theirs'), await below('mine'), await below('.')]).toEqual(['none', 'all', 'part']);
  expect(world.service.requests.length).toBe(asked);
});

/** [S-xattr-7] */
test('a folder with more entries than one question looks at is unknown, unless they differ', async () => {
  await world.mount.mkdir('many');
  for (let i = 0; i < 350; i++) await world.mount.writeFile(`many/f${String(i).padStart(3, '0')}`, SMALL);
  await world.converge();
  expect([await below('many', 349), await below('many', 350)]).toEqual(['unknown', 'all']);
  await evict('many/f001');
  expect(await below('many', 349)).toBe('part');
});

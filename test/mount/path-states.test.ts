import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { pathStates } from '../../src/mount/path-states.ts';
import { SyncedSide } from '../harness/synced-side.ts';

let world: SyncedSide;
let pinned: readonly Inode[] = [];

beforeEach(async () => {
  world = await SyncedSide.build({});
});
afterEach(() => {
  pinned = [];
  return world.close();
});

function states(...paths: readonly string[]) {
  const { store, contents, tree } = world.side;
  const kindOf = (ino: Inode): 'itself' | 'none' => (pinned.includes(ino) ? 'itself' : 'none');
  return pathStates({ store, contents, tree, pinned: { kindOf }, sync: world.sync }, paths);
}

const CLEAN = { kind: 'file', state: 'clean', pinned: 'none', here: 'all', conflict: null };
const COPY = 'a (conflicted copy 2026-11-20 not from laptop).txt';

/** [S-xattr-4] */
test('the states of many paths are those of the attributes, in the order of the paths, without a request', async () => {
  await world.mount.mkdir('folder');
  await world.mount.writeFile('folder/a.txt', Buffer.from('a'));
  await world.mount.writeFile(`folder/${COPY}`, Buffer.from('b'));
  await world.converge();
  await world.mount.writeFile('folder/new', Buffer.from('new'));
  pinned = [(await world.mount.stat('folder')).ino as Inode];
  const before = world.service.requests.length;

  expect(await states('folder/a.txt', `folder/${COPY}`, 'folder/new', 'folder', 'nothing/here', '')).toEqual([
    { ...CLEAN, conflict: COPY },
    { ...CLEAN, conflict: 'a.txt' },
    { ...CLEAN, state: 'pending' },
    { kind: 'folder', state: 'pending', pinned: 'itself', here: null, conflict: null },
    null,
    { kind: 'folder', state: 'pending', pinned: 'none', here: null, conflict: null },
  ]);
  expect(world.service.requests.length).toBe(before);
});

test('a thousand paths are answered in turns that let other work pass', async () => {
  await world.mount.writeFile('a', Buffer.from('a'));
  await world.converge();
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);

  const found = await states(...Array.from({ length: 1_000 }, () => 'a'));
  isDone = true;

  expect(found).toEqual(Array.from({ length: 1_000 }, () => CLEAN));
  expect(turns).toBeGreaterThan(10);
});

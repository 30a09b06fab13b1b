import { beforeEach, expect, test } from 'vitest';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { checkStore } from '../tree/tree-fixture.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/**
 * Two folders that lie in each other, by what was heard of each: somebody else moves B into A and out again, then A into B, and
 * listings of A and B come between, one of each. Or the service says so itself, and means it.
 */
let world: SyncWorld;
let [a, b] = ['', ''] as ResourceUrl[] as [ResourceUrl, ResourceUrl];

beforeEach(() => {
  world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  a = world.service.add('folder', MODEL_ROOT, 'A');
  b = world.service.add('folder', MODEL_ROOT, 'B');
  world.service.add('folder', MODEL_ROOT, 'C');
  world.learn();
  move(b, a);
  list(a);
  move(b, MODEL_ROOT);
  move(a, b);
  list(b);
  const parentOf = (url: ResourceUrl) => world.store.get('node', inoOf(url))?.remote?.parent;
  expect([parentOf(a), parentOf(b)]).toEqual([inoOf(b), inoOf(a)]);
});

const inoOf = (url: ResourceUrl): Inode => world.store.get('resource', url) ?? ROOT_INODE;

/** Done by somebody else. */
function move(url: ResourceUrl, parent: ResourceUrl): void {
  const resource = world.service.resources.get(url);
  if (resource !== undefined) resource.parent = parent;
}

function list(folder: ResourceUrl): void {
  const sequence = world.fence.nextSequence();
  world.tree.merge(inoOf(folder), world.service.listing(folder), sequence, world.clock.nowMs(), null);
  world.fence.finish(sequence);
}

async function settle(): Promise<void> {
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
}

async function expectBothAlike(): Promise<void> {
  for (let round = 0; round < 3; round++) {
    world.learn();
    await world.converge();
  }
  expect(world.localTree()).toEqual(world.service.tree());
  expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });
  checkStore(world.store, 'by others too');
}

test('another node is moved into two folders with crossed moves', async () => {
  world.rename('/C', '/A/C');
  await settle();

  await expectBothAlike();
  expect([...world.localTree().keys()].some((path) => path.endsWith('/A/C'))).toBe(true);
});

test('two folders with crossed moves are both deleted here', async () => {
  world.removeAll('/A');
  await settle();

  await expectBothAlike();
  expect([...world.localTree().keys()]).toEqual(['/C']);
});

test('two folders with crossed moves are deleted here, and another client adds an entry to one of them', async () => {
  world.service.add('file', a, 'new', Buffer.from('new'));
  world.removeAll('/A');
  list(a);
  checkStore(world.store, 'by others too');
  await settle();

  await expectBothAlike();
  expect([...world.localTree().values()]).toContain('new');
});

test('the check for folders in each other ends although the service reports such a cycle and refuses a move', async () => {
  move(b, a);
  world.service.auto = (name) => (name.startsWith('relocate') ? { type: 'refuse', status: 403 } : { type: 'answer' });
  world.rename('/C', '/A/C');
  for (let round = 0; round < 5; round++) await settle();

  expect(world.sync.status().parked.map(({ reason }) => reason)).toContain('forbidden');
  expect(world.service.requests.length).toBeLessThan(100);
});

test('a folder that was never listed and is moved back does not count as empty', async () => {
  world = new SyncWorld();
  const { service, tree, fence, clock } = world;
  service.auto = () => ({ type: 'answer' });
  const unlisted = service.add('folder', MODEL_ROOT, 'A');
  const target = service.add('folder', MODEL_ROOT, 'B');
  service.add('file', unlisted, 'in a', Buffer.from('a'));
  const sequence = fence.nextSequence();
  tree.merge(ROOT_INODE, service.listing(MODEL_ROOT), sequence, clock.nowMs(), null);
  fence.finish(sequence);
  const { ino } = world.node('/A');
  world.rename('/A', '/B/A');
  move(target, unlisted);
  clock.advance(SETTLE_MS + 1);
  await world.quiet();

  expect(world.node('/A').ino).toBe(ino);
  expect(tree.isComplete(ino)).toBe(false);
});

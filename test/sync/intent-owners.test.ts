import { expect, test } from 'vitest';
import { SyncedSide } from '../harness/synced-side.ts';
import { type Fate, MODEL_ROOT, MODEL_TRASH } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/**
 * An operation in flight belongs to the node that has its resource, although names and resources pass to other nodes between two
 * requests of one push. `SyncWorld` and `SyncedSide` check that after each record.
 */

/** Settles the first pending request whose name begins so. */
async function settle(world: SyncWorld, request: string, fate: Fate = { type: 'answer' }): Promise<void> {
  const { pending } = world.service;
  const at = pending.findIndex(({ name }) => name.startsWith(request));
  expect(
    pending.map(({ name }) => name),
    request,
  ).toContain(pending[at]?.name);
  pending.splice(at, 1)[0]?.settle(fate);
  await world.quiet();
}

test('a move that gets a 404 does not look for a resource that a save took over during the request', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  const file = service.add('file', MODEL_ROOT, 'f', Buffer.from('old'));
  world.learn();
  world.rename('/f', '/g');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  world.write('/new', 'saved');
  world.rename('/new', '/g');
  await settle(world, 'relocate', { type: 'refuse', status: 404 });
  await world.settle();

  expect([...service.tree()]).toEqual([['/g', 'saved']]);
  expect(service.history(file)).toHaveLength(2);
});

test('a move that needs a temporary name first is planned again if a save took the file over meanwhile', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  service.foldsCase = true;
  const file = service.add('file', MODEL_ROOT, 'readme', Buffer.from('old'));
  world.learn();
  world.rename('/readme', '/README');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  // Only a service that calls the name of the file itself taken needs a temporary name.
  await settle(world, 'relocate', { type: 'refuse', status: 409 });
  world.write('/new', 'saved');
  world.rename('/new', '/README');
  await settle(world, 'list');
  await world.settle();

  expect([...service.tree()]).toEqual([['/README', 'saved']]);
  expect(service.history(file)).toHaveLength(2);
});

test.each<Fate['type']>(['answer', 'lose-request', 'lose-reply'])(
  'a file in deletion (%s) that another client saves and moves into a folder in deletion keeps its tombstone until the outcome is known',
  async (fate) => {
    const world = new SyncWorld();
    const { service, clock } = world;
    const file = service.add('file', MODEL_ROOT, 'f', Buffer.from('old'));
    const folder = service.add('folder', MODEL_ROOT, 'd');
    world.learn();
    world.remove('/f');
    clock.advance(SETTLE_MS + 1);
    await world.quiet();
    await settle(world, 'resource');
    expect(service.pending.map(({ name }) => name)).toEqual(['trash f']);
    const resource = service.resources.get(file);
    if (resource !== undefined) resource.parent = folder;
    service.addVersion(file, Buffer.from('saved elsewhere'));
    world.remove('/d');
    clock.advance(SETTLE_MS + 1);
    await world.quiet();
    await settle(world, 'list');
    await settle(world, 'trash f', { type: fate } as Fate);
    await world.settle();
    world.learn();

    const isTrashed = fate !== 'lose-request';
    expect(service.isInTrash(file)).toBe(isTrashed);
    expect([...world.localTree()]).toEqual(
      isTrashed
        ? [['/d', null]]
        : [
            ['/d', null],
            ['/d/f', 'saved elsewhere'],
          ],
    );
    expect([...world.localTree()]).toEqual([...service.tree()]);
  },
);

test('a file that is deleted during its upload, and moved by another client into a folder in deletion, keeps its tombstone until the upload ends', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  const file = service.add('file', MODEL_ROOT, 'f', Buffer.from('old'));
  const folder = service.add('folder', MODEL_ROOT, 'd');
  world.learn();
  world.write('/f', 'longer than one request');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  await settle(world, 'createVersion');
  world.remove('/d');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  world.remove('/f');
  const resource = service.resources.get(file);
  if (resource !== undefined) resource.parent = folder;
  service.addVersion(file, Buffer.from('saved elsewhere'));
  await settle(world, 'list');
  await settle(world, 'putVersionData');
  await world.settle();
  world.learn();

  // Our version was completed last. Theirs, which nobody here has seen, is kept as a copy.
  expect(service.isInTrash(file)).toBe(true);
  expect([...service.tree().values()]).toEqual([null, 'saved elsewhere']);
  expect(Object.fromEntries(world.localTree())).toEqual(Object.fromEntries(service.tree()));
});

test('a folder that is moved on while the service is asked about crossed moves keeps its new place', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  const [a, b] = ['a', 'b', 'c'].map((name) => service.add('folder', MODEL_ROOT, name));
  world.learn();
  world.rename('/a', '/b/a');
  const theirs = b === undefined ? undefined : service.resources.get(b);
  if (theirs !== undefined && a !== undefined) theirs.parent = a;
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  await settle(world, 'relocate');
  world.rename('/b/a', '/c/a');
  await settle(world, 'resource');
  await world.settle();
  world.learn();

  expect([...world.localTree().keys()].toSorted()).toEqual(['/c', '/c/a', '/c/a/b']);
  expect(Object.fromEntries(service.tree())).toEqual(Object.fromEntries(world.localTree()));
});

test('a save does not move a file that a listing shows again while the service is asked whether it is in the trash', async () => {
  const world = await SyncedSide.build();
  const { service, mount, side } = world;
  const file = service.add('file', MODEL_ROOT, 'f', Buffer.from('old'));
  const folder = service.add('folder', MODEL_ROOT, 'd');
  await mount.stat('f');
  await mount.readdir('d');
  await mount.unlink('f');
  await world.converge();
  service.requests.length = 0;

  // Another client restores it. The answer to our question is older, and comes later than the listing.
  const look = service.resource.bind(service);
  service.resource = async (url, kind, signal) => {
    const seen = await look(url, kind, signal);
    if (url !== file || seen?.parent !== MODEL_TRASH) return seen;
    const resource = service.resources.get(file);
    if (resource !== undefined) resource.parent = folder;
    await side.freshness.refresh();
    return seen;
  };
  await mount.writeFile('f', Buffer.from('saved here'));
  await world.converge();

  expect(service.requests.filter((name) => name.startsWith('relocate'))).toEqual([]);
  expect(Object.fromEntries(service.tree())).toEqual({ '/d': null, '/d/f': 'old', '/f': 'saved here' });
  expect((await mount.readFile('d/f')).toString()).toBe('old');
  await world.close();
});

test('a save that moves over a new file in creation and back, while the service is asked about the trash, keeps that operation', async () => {
  const world = new SyncWorld();
  const { service, clock } = world;
  const file = service.add('file', MODEL_ROOT, 'f', Buffer.from('old'));
  world.learn();
  world.remove('/f');
  await world.settle();
  world.write('/f', 'saved');
  world.write('/g', 'new');
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  world.rename('/f', '/g');
  world.rename('/g', '/f');
  await settle(world, 'resource');
  await world.settle();
  world.learn();

  expect([...world.localTree()]).toEqual([['/f', 'saved']]);
  expect([...service.tree()]).toEqual([['/f', 'saved']]);
  expect(service.isInTrash(file)).toBe(true);
});

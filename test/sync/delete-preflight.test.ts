import { describe, expect, test } from 'vitest';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { checkStore } from '../tree/tree-fixture.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** What is asked before a folder goes to the trash with all that is in it. */

const FOLDERS = 20;

/** `/a` with as many folders of one file each, all of it known here and then deleted. */
async function deleted(): Promise<{ world: SyncWorld; top: ResourceUrl; folders: readonly ResourceUrl[] }> {
  const world = new SyncWorld();
  const top = world.service.add('folder', MODEL_ROOT, 'a');
  const folders = Array.from({ length: FOLDERS }, (_, n) => world.service.add('folder', top, `d${n}`));
  for (const folder of folders) world.service.add('file', folder, 'f', Buffer.from('x'));
  world.learn();
  world.removeAll('/a');
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  return { world, top, folders };
}

test('the delete preflight lists each folder below once, several in parallel, before the topmost is deleted', async () => {
  const { world, top, folders } = await deleted();
  const first = world.service.pending.map(({ name }) => name);

  await world.converge();

  expect(first).toHaveLength(7);
  expect(world.service.requests.at(-1)).toBe('trash a');
  const looks = world.service.requests.slice(0, -1);
  expect(looks.toSorted()).toEqual([top, ...folders].map((url) => `list ${url}`).toSorted());
});

test('the delete preflight finds a new entry in any folder, whichever answers first, and trashes nothing', async () => {
  for (const at of [0, FOLDERS - 1]) {
    const { world, folders } = await deleted();
    const theirs = world.service.add('file', folders[at] as ResourceUrl, 'theirs', Buffer.from('y'));

    await world.converge();
    world.learn();

    expect(world.service.isInTrash(theirs)).toBe(false);
    expect([...world.localTree().keys()].sort()).toEqual(['/a', `/a/d${at}`, `/a/d${at}/theirs`]);
    expect(world.service.violations).toEqual([]);
  }
});

test('a folder that cannot be listed is not trashed, and no request of its preflight continues after the failure', async () => {
  const { world } = await deleted();
  const [one, ...others] = world.service.pending.splice(0);
  one?.settle({ type: 'refuse', status: 503 });
  await world.quiet();
  expect(world.service.pending).toEqual([]);
  for (const other of others) other.settle({ type: 'answer' });
  await world.quiet();

  expect(world.service.pending).toEqual([]);
  expect(world.service.requests.filter((request) => request.startsWith('trash'))).toEqual([]);
  await world.converge();
  expect(world.service.requests.at(-1)).toBe('trash a');
});

test.each(['the look sees what came into it', 'the look was answered before that came'])(
  'a folder that a listing restores during its preflight stays: %s',
  async (which) => {
    const world = new SyncWorld();
    const url = world.service.add('folder', MODEL_ROOT, 'a');
    world.learn();
    const { ino } = world.node('/a');
    world.removeAll('/a');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    const [look] = world.service.pending.splice(0);

    const come = () => {
      world.service.add('file', url, 'theirs', Buffer.from('y'));
      const sequence = world.fence.nextSequence();
      world.tree.merge(ino, world.service.listing(url), sequence, world.clock.nowMs(), null);
      world.fence.finish(sequence);
    };
    if (which.startsWith('the look sees')) come();
    look?.settle({ type: 'answer' });
    if (!which.startsWith('the look sees')) come();
    await world.quiet();
    await world.converge();

    expect([...world.localTree().keys()]).toEqual(['/a', '/a/theirs']);
    expect(world.service.isInTrash(url)).toBe(false);
    checkStore(world.store, 'by others too');
  },
);

describe.each(['trash', 'forever'] as const)('a file that is deleted by itself (%s)', (deletion) => {
  function deletedFile(): { world: SyncWorld; file: ResourceUrl } {
    const world = new SyncWorld({ deletion });
    const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from('x'));
    world.learn();
    world.remove('/f');
    world.clock.advance(SETTLE_MS + 1);
    return { world, file };
  }

  test('a single deleted file is deleted on the service after one preflight request', async () => {
    const { world } = deletedFile();
    world.service.requests.length = 0;

    await world.converge();

    expect(world.service.requests.map((name) => name.split(' ')[0])).toEqual([
      'resource',
      deletion === 'trash' ? 'trash' : 'delete',
    ]);
    expect(world.service.tree()).toEqual(new Map());
  });

  test('a deleted file that was saved elsewhere meanwhile comes back with the remote version', async () => {
    const { world, file } = deletedFile();
    world.service.addVersion(file, Buffer.from('theirs'));

    await world.converge();
    world.learn();

    expect(world.service.tree()).toEqual(new Map([['/f', 'theirs']]));
    expect([...world.localTree().keys()]).toEqual(['/f']);
    expect(world.service.requests.filter((name) => /^(trash|delete)/.test(name))).toEqual([]);
    expect(world.sync.status().pending).toBe(0);
  });

  test('a deleted file that was saved elsewhere stays on the service although its folder was deleted here', async () => {
    const world = new SyncWorld({ deletion });
    const folder = world.service.add('folder', MODEL_ROOT, 'a');
    const file = world.service.add('file', folder, 'f', Buffer.from('x'));
    world.learn();
    const { ino } = world.node('/a');
    world.remove('/a/f');
    world.service.addVersion(file, Buffer.from('theirs'));
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    const [look] = world.service.pending.splice(0);

    expect(world.tree.resolveAbsence(ino, null, world.fence.nextSequence(), true)).toBe('removed');
    look?.settle({ type: 'answer' });
    await world.quiet();

    expect(look?.name).toBe(`resource ${file}`);
    expect([...world.store.all('folder')].map(([listed]) => world.store.get('node', listed)?.kind)).toEqual(['folder']);
  });

  test('a deleted file stays on the service if its preflight fails', async () => {
    const { world, file } = deletedFile();
    await world.quiet();

    expect(world.service.pending.map(({ name }) => name)).toEqual([`resource ${file}`]);
    world.service.pending.splice(0)[0]?.settle({ type: 'refuse', status: 503 });
    await world.quiet();

    expect([...world.service.tree().keys()]).toEqual(['/f']);
    await world.converge();
    expect(world.service.tree()).toEqual(new Map());
  });
});

test.each(['a listing', 'the check before the deletion'] as const)(
  'a file that is deleted after a discard stays deleted although the discarded upload is forgotten: %s is first',
  async (first) => {
    const world = new SyncWorld();
    world.write('/f', 'one');
    world.clock.advance(SETTLE_MS + 1);
    await world.converge();
    world.write('/f', 'two');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    world.service.pending.splice(0)[0]?.settle({ type: 'answer' }); // the version; its bytes are lost
    await world.quiet();
    const discard = world.sync.discard(world.node('/f').ino, 'discard');
    for (const sent of world.service.pending.splice(0)) sent.settle({ type: 'lose-request' });
    await discard;
    const { resource } = world.node('/f').remote ?? {};
    world.store.transact((tx) => world.intents.forgetAbandoned(tx, resource as ResourceUrl));

    world.remove('/f');
    if (first === 'a listing') world.learn();
    world.clock.advance(SETTLE_MS + 1);
    await world.converge();
    world.learn();

    expect([...world.localTree()]).toEqual([]);
    expect([...world.service.tree()]).toEqual([]);
  },
);

test('a file is deleted without a look at its history after a discard of a save of which no byte was sent', async () => {
  const world = new SyncWorld();
  world.write('/f', 'one');
  world.clock.advance(SETTLE_MS + 1);
  await world.converge();
  world.write('/f', 'two');
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  const discard = world.sync.discard(world.node('/f').ino, 'discard');
  for (const sent of world.service.pending.splice(0)) sent.settle({ type: 'lose-request' });
  await discard;
  const before = world.service.requests.length;

  world.remove('/f');
  world.clock.advance(SETTLE_MS + 1);
  await world.converge();

  expect(world.service.requests.slice(before).map((name) => name.split(' ')[0])).toEqual(['resource', 'trash']);
});

test('a permanently deleted file is removed although its older version, a conflicted copy, is a file of its own', async () => {
  const world = new SyncWorld({ deletion: 'forever' });
  const { service } = world;
  service.auto = () => ({ type: 'answer' });
  const file = service.add('file', MODEL_ROOT, 'report', Buffer.from('first'));
  world.learn();
  service.addVersion(file, Buffer.from('theirs'));
  world.write('/report', 'ours');
  service.auto = (name) => ({
    type: name.startsWith('createVersion') && !name.endsWith(file) ? 'lose-request' : 'answer',
  });
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  world.remove('/report');
  for (let round = 0; round < 3; round++) {
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
  }
  service.auto = () => ({ type: 'answer' });
  await world.settle();

  expect([...service.tree().values()]).toEqual(['theirs']);
});

import { describe, expect, test } from 'vitest';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { checkStore } from '../tree/tree-fixture.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** `/a/old` and `/b/other` on the service, known and clean here. */
function knownWorld(): SyncWorld {
  const world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  const a = world.service.add('folder', MODEL_ROOT, 'a');
  const b = world.service.add('folder', MODEL_ROOT, 'b');
  world.service.add('file', a, 'old', Buffer.from('old bytes'));
  world.service.add('file', b, 'other', Buffer.from('other bytes'));
  world.learn();
  return world;
}

/** Of `/a/old` a version was sent whole, nothing was heard of it, and it was given up. */
async function givenUpUnheard(): Promise<SyncWorld> {
  const world = knownWorld();
  const { service, sync, clock } = world;
  world.write('/a/old', 'given up here');
  service.auto = (name) => ({ type: name.startsWith('putVersion') ? 'lose-reply' : 'answer' });
  clock.advance(SETTLE_MS + 1);
  await world.quiet();
  await sync.discard(ROOT_INODE, 'discard');
  expect(service.tree().get('/a/old')).toBe('given up here');
  service.auto = () => ({ type: 'answer' });
  return world;
}

/** What is here is what the service has, and nothing is to be pushed. */
async function expectNothingLeft(world: SyncWorld): Promise<void> {
  world.learn();
  expect(world.localTree()).toEqual(world.service.tree());
  expect([...world.store.all('dirty')]).toEqual([]);
  checkStore(world.store, 'by others too');
  const asked = world.service.requests.length;
  world.clock.advance(10 * SETTLE_MS);
  await world.quiet();
  expect(world.service.requests.slice(asked)).toEqual([]);
}

describe('[S-discard-1] changes that are given up', () => {
  test('a discard of every kind of change restores the state of the service', async () => {
    const world = knownWorld();
    world.write('/a/old', 'changed here');
    world.mkdir('/new');
    world.write('/new/made', 'made here');
    world.rename('/b', '/new/moved');
    world.write('/gone', 'soon deleted');
    world.remove('/gone');
    await world.sync.discard(ROOT_INODE, 'discard');

    await expectNothingLeft(world);
  });

  test('a discarded deletion restores the nodes together with their deleted folder', async () => {
    const world = knownWorld();
    world.remove('/a/old');
    world.remove('/a');
    await world.sync.discard(ROOT_INODE, 'discard');

    expect(world.localTree().get('/a/old')).toBe('old bytes');
    await expectNothingLeft(world);
  });

  test('a discarded new file whose bytes were not sent is deleted on the service too', async () => {
    const world = knownWorld();
    world.service.auto = (name) => ({ type: name.startsWith('putFileData') ? 'lose-request' : 'answer' });
    world.write('/a/made', 'here');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    expect(world.service.tree().get('/a/made')).toBe('stub');
    const { ino } = world.node('/a/made');
    expect(await world.sync.discard(ino, 'preview')).toEqual([{ path: 'a/made', change: 'made', lostBytes: 4 }]);
    world.service.auto = () => ({ type: 'answer' });
    await world.sync.discard(ino, 'discard');

    expect(world.find('/a/made')).toBeUndefined();
    world.health.reachable();
    await world.settle();
    expect(world.service.tree().has('/a/made')).toBe(false);
    await expectNothingLeft(world);
  });

  test('a discard of running pushes waits for each of them, whatever their durations', async () => {
    const world = knownWorld();
    const { service, sync } = world;
    let begun = 0;
    service.createVersion = (_, signal) => {
      const turns = 3 + 2 * (++begun % 2);
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', async () => {
          for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
          reject(signal.reason as Error);
        });
      });
    };
    world.write('/a/old', 'changed here');
    world.write('/b/other', 'changed here, too');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    expect(sync.status().pushing).toBe(2);
    let given = 0;
    void sync.discard(ROOT_INODE, 'discard').then((all) => {
      given = all.length;
    });
    for (let turn = 0; turn < 100 && given === 0; turn++) await new Promise((resolve) => setImmediate(resolve));

    expect(given).toBe(2);
    expect(begun).toBe(2);
    await expectNothingLeft(world);
  });

  test('a discard undoes an exchange of names and folders that were moved into each other', async () => {
    const world = knownWorld();
    world.rename('/a', '/b', 'exchange');
    world.rename('/a/other', '/b/other');
    world.rename('/a', '/b/inside');
    await world.sync.discard(ROOT_INODE, 'discard');

    await expectNothingLeft(world);
  });

  test('a discarded move out of a remotely deleted folder leaves the file visible', async () => {
    const world = knownWorld();
    const a = world.node('/a').remote?.resource as ResourceUrl;
    world.rename('/a/old', '/b/moved');
    world.service.resources.delete(a);
    const sequence = world.fence.nextSequence();
    world.tree.resolveAbsence(world.node('/a').ino, null, sequence, true);
    world.fence.finish(sequence);
    expect(world.find('/a')).toBeUndefined();
    await world.sync.discard(world.node('/b/moved').ino, 'discard');

    expect(world.localTree().get('/old')).toBe('old bytes');
    checkStore(world.store, 'by others too');
  });

  test('a discard of one file leaves the changes of the others to be pushed', async () => {
    const world = knownWorld();
    world.write('/a/old', 'given up');
    world.write('/b/other', 'kept');
    await world.sync.discard(world.node('/a/old').ino, 'discard');
    await world.converge();

    expect(world.service.tree().get('/a/old')).toBe('old bytes');
    expect(world.service.tree().get('/b/other')).toBe('kept');
  });

  test('a discard removes refused and parked changes', async () => {
    const world = knownWorld();
    world.service.auto = () => ({ type: 'refuse', status: 413 });
    world.write('/a/old', 'too much');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    expect(world.sync.status().parked).toHaveLength(1);
    await world.sync.discard(world.node('/a/old').ino, 'discard');

    world.service.auto = () => ({ type: 'answer' });
    expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });
    await expectNothingLeft(world);
  });

  test('a discard ends a running push first', async () => {
    const world = knownWorld();
    world.service.auto = null;
    world.write('/a/old', 'on its way');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    expect(world.sync.status().pushing).toBe(1);
    await world.sync.discard(ROOT_INODE, 'discard');

    world.service.auto = () => ({ type: 'answer' });
    expect(world.sync.status()).toMatchObject({ pending: 0, pushing: 0 });
    await expectNothingLeft(world);
  });

  test.each(['before', 'after'])(
    'the version of a discarded upload with a lost response makes no conflicted copy of a remote save %s the next listing',
    async (when) => {
      const world = await givenUpUnheard();
      const { service, clock } = world;
      if (when === 'after') world.learn();
      world.write('/a/old', 'what is saved then');
      clock.advance(600_000);
      await world.settle();
      await expectNothingLeft(world);

      expect([...service.tree()].filter(([path]) => path.startsWith('/a/'))).toEqual([
        ['/a/old', 'what is saved then'],
      ]);
    },
  );

  const deletions = ['the file', 'its folder'].flatMap((what) =>
    [false, true].map((isOthers) => ({
      what,
      isOthers,
      then: isOthers ? 'comes back with the save of another client' : 'stays deleted',
    })),
  );
  test.each(deletions)(
    '$what that is deleted after a discarded upload with a lost response $then',
    async ({ what, isOthers }) => {
      const world = await givenUpUnheard();
      const { service } = world;
      const { remote } = world.node('/a/old');
      if (isOthers) service.addVersion(remote?.resource as ResourceUrl, Buffer.from('somebody else'));
      if (what === 'the file') world.remove('/a/old');
      else world.removeAll('/a');
      await world.settle();
      await expectNothingLeft(world);

      expect(service.tree().get('/a/old')).toBe(isOthers ? 'somebody else' : undefined);
    },
  );

  const orders = ['the file', 'its folder'].flatMap((what) =>
    [false, true].flatMap((isRestarted) =>
      ['the check of the deletion', 'a listing'].flatMap((first) =>
        ['stays deleted', 'comes back with the save of another client'].map((end) => ({
          what,
          isRestarted,
          first,
          end,
        })),
      ),
    ),
  );
  test.each(orders)(
    '[S-discard-3] $what $end if it is deleted after a discarded upload completed unnoticed ($first first; restarted: $isRestarted)',
    async ({ what, isRestarted, first, end }) => {
      const world = await givenUpUnheard();
      const { service } = world;
      const { remote } = world.node('/a/old');
      const isOthers = end !== 'stays deleted';
      if (isRestarted) world.restart();
      if (isOthers) service.addVersion(remote?.resource as ResourceUrl, Buffer.from('somebody else'));
      if (what === 'the file') world.remove('/a/old');
      else world.removeAll('/a');
      if (first === 'a listing') world.learn();
      if (!isOthers) expect(world.find('/a/old')).toBeUndefined();
      await world.settle();
      await expectNothingLeft(world);

      expect(service.tree().get('/a/old')).toBe(isOthers ? 'somebody else' : undefined);
    },
  );

  const moves = [false, true].flatMap((isRestarted) => [false, true].map((isListed) => ({ isRestarted, isListed })));
  test.each(moves)(
    'a file that is moved to another URL and saved gets no copy of a discarded upload (restarted: $isRestarted, listed: $isListed)',
    async ({ isRestarted, isListed }) => {
      const world = await givenUpUnheard();
      const { service, clock } = world;
      service.newAddresses = true;
      if (isRestarted) world.restart();
      world.rename('/a/old', '/b/old');
      await world.settle();
      if (isListed) world.learn();
      world.write('/b/old', 'what is saved then');
      clock.advance(600_000);
      await world.settle();
      await expectNothingLeft(world);

      expect([...service.tree()].filter(([path]) => path.includes('old'))).toEqual([['/b/old', 'what is saved then']]);
    },
  );

  test('a file whose deletion is discarded owns the unacknowledged move of the deleted one', async () => {
    const world = knownWorld();
    const { service, clock, sync } = world;
    service.auto = null;
    world.rename('/a/old', '/b/new');
    clock.advance(SETTLE_MS + 1);
    await world.quiet();
    service.settleAll({ type: 'lose-reply' });
    await world.quiet();
    world.remove('/b/new');
    await sync.discard(ROOT_INODE, 'discard');

    expect(world.intents.ownedBy(world.node('/a/old').ino)).toMatchObject({ action: 'relocate' });
    service.auto = () => ({ type: 'answer' });
    service.settleAll({ type: 'answer' });
    await world.settle();
    await expectNothingLeft(world);
  });

  test('a discard of a file that was renamed over one in transfer ends that transfer too', async () => {
    const world = knownWorld();
    const { service, clock } = world;
    world.write('/a/old', 'changed here');
    service.auto = null;
    clock.advance(SETTLE_MS + 1);
    await world.quiet();
    expect(service.pending.map(({ name }) => name.split(' ')[0])).toEqual(['createVersion']);
    world.write('/a/new', 'saved anew');
    world.rename('/a/new', '/a/old');
    const discarded = world.sync.discard(world.node('/a/old').ino, 'discard');
    service.auto = () => ({ type: 'answer' });
    service.settleAll({ type: 'answer' });
    await discarded;
    clock.advance(SETTLE_MS + 1);
    await world.quiet();
    await expectNothingLeft(world);

    expect(service.tree().get('/a/old')).toBe('old bytes');
  });

  const arrivals = ['bytes', 'more bytes than go in one request'].flatMap((bytes) =>
    ['', ', and the mount starts anew'].map((then) => [bytes, then] as const),
  );
  test.each(arrivals)(
    'a discarded new file whose bytes arrived without a response (%s) is deleted on the service too%s',
    async (bytes, then) => {
      const world = knownWorld();
      const { service, clock } = world;
      world.write('/a/new', bytes);
      service.auto = (name) => ({ type: name.startsWith('put') ? 'lose-reply' : 'answer' });
      clock.advance(SETTLE_MS + 1);
      await world.quiet();
      expect(service.tree().get('/a/new')).toBe(bytes);
      if (then !== '') world.restart();
      await world.sync.discard(ROOT_INODE, 'discard');
      service.auto = () => ({ type: 'answer' });
      await world.settle();
      await expectNothingLeft(world);

      expect(service.tree().has('/a/new')).toBe(false);
    },
  );

  test('a file that a program is writing cannot be discarded', async () => {
    const world = knownWorld();
    const { ino } = world.write('/a/old', 'half');
    world.beingWritten.add(ino);

    await expect(world.sync.discard(ROOT_INODE, 'discard')).rejects.toThrow(/open for writing/);
    expect(world.sync.status().pending).toBe(1);
  });

  test('a file that is open for writing cannot be discarded, even if its bytes may be pushed', async () => {
    const world = knownWorld();
    const { ino } = world.write('/a/old', 'synced, and kept open');
    world.openForWriting.add(ino);

    await expect(world.sync.discard(ROOT_INODE, 'discard')).rejects.toThrow(/open for writing/);
    expect(world.bytesOf(world.node('/a/old'))).toBe('synced, and kept open');
    await world.settle();
    expect(world.service.tree().get('/a/old')).toBe('synced, and kept open');
  });

  test('a preview lists the losses and changes nothing', async () => {
    const world = knownWorld();
    world.write('/a/old', 'changed');
    world.rename('/a/old', '/a/new name');
    world.write('/made', '12345');
    world.remove('/b/other');

    const told = [...(await world.sync.discard(ROOT_INODE, 'preview'))].sort((x, y) => (x.path < y.path ? -1 : 1));
    expect(told).toEqual([
      { path: 'a/new name', change: 'changed', lostBytes: 7 },
      { path: 'a/new name', change: 'moved', lostBytes: 0 },
      { path: 'b/other', change: 'deleted', lostBytes: 0 },
      { path: 'made', change: 'made', lostBytes: 5 },
    ]);
    expect(world.sync.status().pending).toBe(3);
  });

  test.each(Array.from({ length: 60 }, (_, seed) => seed))(
    'a discard of any set of changes restores the state of the service (SEED=%i)',
    async (seed) => {
      const random = new SeededRandom(seed);
      const world = knownWorld();
      for (let step = 0; step < 25; step++) {
        const paths = [...world.localTree()];
        if (paths.length === 0) break;
        const folders = ['', ...paths.filter(([, bytes]) => bytes === null).map(([path]) => path)];
        const place = (): string => `${random.pick(folders)}/${random.pick(['a', 'b', 'c', 'old'])}`;
        const [path] = random.pick(paths);
        const to = place();
        try {
          const act = random.below(6);
          if (act === 0) world.mkdir(to);
          else if (act === 1 && world.find(to)?.kind !== 'folder') world.write(to, `step ${step}`);
          else if (act === 2) world.remove(path);
          else if (act === 3) world.rename(path, to, 'exchange');
          else world.rename(path, to);
        } catch (error) {
          expect(error).toMatchObject({ errno: expect.any(String) });
        }
        if (random.below(12) === 0) {
          world.clock.advance(SETTLE_MS + 1);
          await world.quiet();
        }
      }
      await world.sync.discard(ROOT_INODE as Inode, 'discard');
      await expectNothingLeft(world);
    },
  );
});

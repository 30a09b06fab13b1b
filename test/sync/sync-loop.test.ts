import { describe, expect, test } from 'vitest';
import { SignInError, StorageError, TransportError } from '../../src/base/errors.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { checkStore } from '../tree/tree-fixture.ts';
import { MODEL_ROOT, MODEL_TRASH, type ModelResource } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** Both trees, compared as text. */
function expectEqualTrees(world: SyncWorld): void {
  expect(Object.fromEntries([...world.service.tree()].sort())).toEqual(
    Object.fromEntries([...world.localTree()].sort()),
  );
  expect(world.service.violations).toEqual([]);
}

describe('what is made here', () => {
  test('a small new file costs two requests, and its folder one', async () => {
    const world = new SyncWorld();
    world.mkdir('/a');
    world.write('/a/f', 'hello');

    await world.settle();

    expectEqualTrees(world);
    expect(world.service.requests).toHaveLength(3);
  });

  test('nothing is sent before the end of the settle delay', async () => {
    const world = new SyncWorld();
    world.write('/f', 'one');
    world.clock.advance(SETTLE_MS - 1);
    await world.quiet();
    world.write('/f', 'two');
    world.clock.advance(SETTLE_MS - 1);
    await world.quiet();

    expect(world.service.requests).toEqual([]);
  });

  test('a file that is made and deleted before its push causes no request', async () => {
    const world = new SyncWorld();
    world.mkdir('/a');
    world.write('/a/f', 'hello');
    world.rename('/a/f', '/a/g');
    world.removeAll('/a');

    await world.settle();

    expect(world.service.requests).toEqual([]);
    expect(world.sync.status().pending).toBe(0);
  });

  test('a file above the limit of one request becomes a version that is read back from the history', async () => {
    const world = new SyncWorld();
    world.write('/big', 'more than eight bytes');

    await world.settle();

    expectEqualTrees(world);
    expect(world.service.requests.map((request) => request.split(' ')[0])).toEqual([
      'createFile',
      'createVersion',
      'putVersionData',
      'versions',
    ]);
  });

  test('a file that is being written is pushed after its last release', async () => {
    const world = new SyncWorld();
    const { ino } = world.write('/f', 'half');
    world.beingWritten.add(ino);
    world.clock.advance(60_000);
    await world.quiet();
    expect(world.service.requests).toEqual([]);

    world.beingWritten.delete(ino);
    world.sync.changed(ino);
    await world.settle();

    expectEqualTrees(world);
  });
});

describe('what is asked for at once', () => {
  test('a sync request for one file pushes its new folders first, and nothing else', async () => {
    const world = new SyncWorld();
    world.mkdir('/a');
    world.mkdir('/a/b');
    const { ino } = world.write('/a/b/f', 'wanted');
    world.write('/a/g', 'beside');

    const asked = world.sync.syncNow(undefined, ino);
    await world.quiet();
    while (world.service.pending.length > 0) {
      world.service.settleAll({ type: 'answer' });
      await world.quiet();
    }

    expect(await asked).toMatchObject({ pushed: 1, parked: [], open: 0 });
    expect([...world.service.tree().keys()].sort()).toEqual(['/a', '/a/b', '/a/b/f']);
  });
});

describe('what is changed here', () => {
  test('a second save becomes a second version of the same file', async () => {
    const world = new SyncWorld();
    world.write('/f', 'one');
    await world.settle();
    world.write('/f', 'two');
    await world.settle();

    expectEqualTrees(world);
    const [file] = world.service.childrenOf(MODEL_ROOT);
    expect(file?.versions.map((version) => version.bytes.toString())).toEqual(['two', 'one']);
  });

  test('a save that changes no byte causes no version and no request', async () => {
    const world = new SyncWorld();
    world.write('/small', 'same');
    world.write('/large', 'more than eight bytes');
    await world.settle();
    const before = world.service.requests.length;

    world.write('/small', 'same');
    world.write('/large', 'more than eight bytes');
    await world.settle();
    world.patch('/large', 5, 'than');
    await world.settle();

    expect(world.service.requests.slice(before)).toEqual([]);
    expect(world.sync.status().pending).toBe(0);
    expect(world.node('/large').local?.content).toBe(world.node('/large').remote?.content);
    expectEqualTrees(world);

    world.patch('/large', 5, 'then');
    await world.settle();
    world.write('/small', 'sane');
    await world.settle();
    expectEqualTrees(world);
    for (const file of world.service.childrenOf(MODEL_ROOT)) expect(file.versions).toHaveLength(2);
  });

  test('a save that changes no byte causes no version, even if its record is read again during the comparison', async () => {
    const world = new SyncWorld();
    world.write('/large', 'more than eight bytes');
    await world.settle();
    const before = world.service.requests.length;

    world.write('/large', 'more than eight bytes');
    world.store.forget();
    await world.settle();

    expect(world.service.requests.slice(before)).toEqual([]);
    expectEqualTrees(world);
  });

  test('bytes that are not cached are not fetched for the comparison', async () => {
    const world = new SyncWorld();
    world.service.add('file', MODEL_ROOT, 'f', Buffer.from('more than eight bytes'));
    world.learn();
    world.patch('/f', 0, 'm');
    world.contents.evict();
    world.write('/f', 'more than eight bytes');
    world.contents.evict();
    await world.settle();

    expectEqualTrees(world);
    expect(world.service.childrenOf(MODEL_ROOT)[0]?.versions).toHaveLength(2);
  });

  test('an exchange of names uses a temporary name', async () => {
    const world = new SyncWorld();
    world.service.add('folder', MODEL_ROOT, 'a');
    world.service.add('folder', MODEL_ROOT, 'b');
    world.learn();
    world.mkdir('/a/of-a');
    world.rename('/a', '/b', 'exchange');

    await world.settle();

    expectEqualTrees(world);
  });

  test('a folder takes the name of a file that was moved into it', async () => {
    const world = new SyncWorld();
    world.service.add('file', MODEL_ROOT, 'a', Buffer.from('x'));
    world.learn();
    world.rename('/a', '/tmp');
    world.mkdir('/a');
    world.rename('/tmp', '/a/a');

    await world.settle();

    expectEqualTrees(world);
  });

  test('a folder and a folder in it change places', async () => {
    const world = new SyncWorld();
    const a = world.service.add('folder', MODEL_ROOT, 'a');
    world.service.add('folder', a, 'b');
    world.learn();
    world.rename('/a/b', '/b');
    world.rename('/a', '/b/a');

    await world.settle();

    expectEqualTrees(world);
  });

  test('a rename of a folder is one request, whatever it contains', async () => {
    const world = new SyncWorld();
    const a = world.service.add('folder', MODEL_ROOT, 'a');
    for (let n = 0; n < 30; n++) world.service.add('file', a, `f${n}`, Buffer.from('x'));
    world.learn();
    world.rename('/a', '/b');

    await world.settle();

    expectEqualTrees(world);
    expect(world.service.requests).toHaveLength(1);
  });
});

describe('what is deleted here', () => {
  test('a folder is moved to the trash as a whole after one preflight', async () => {
    const world = new SyncWorld();
    const a = world.service.add('folder', MODEL_ROOT, 'a');
    for (let n = 0; n < 30; n++) world.service.add('file', a, `f${n}`, Buffer.from('x'));
    world.learn();
    world.removeAll('/a');

    await world.settle();

    expectEqualTrees(world);
    expect(world.service.requests).toEqual([`list ${a}`, 'trash a']);
  });

  test('an entry that another client put into a deleted folder is not trashed with it', async () => {
    const world = new SyncWorld();
    const a = world.service.add('folder', MODEL_ROOT, 'a');
    world.service.add('file', a, 'ours', Buffer.from('x'));
    world.learn();
    world.service.add('file', a, 'theirs', Buffer.from('y'));
    world.removeAll('/a');

    await world.settle();
    world.learn();

    expectEqualTrees(world);
    expect([...world.localTree().keys()].sort()).toEqual(['/a', '/a/theirs']);
  });

  test('permanent deletions are made one by one, and never remove a folder that is not empty', async () => {
    const world = new SyncWorld({ deletion: 'forever' });
    const a = world.service.add('folder', MODEL_ROOT, 'a');
    world.service.add('file', a, 'f', Buffer.from('x'));
    world.learn();
    world.removeAll('/a');

    await world.settle();

    expectEqualTrees(world);
    expect(world.service.childrenOf(MODEL_TRASH)).toEqual([]);
  });

  test('an open deleted file is deleted on the service after its last release, and its name is free before', async () => {
    const world = new SyncWorld();
    const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from('x'));
    world.learn();
    const { ino } = world.node('/f');
    world.open.add(ino);
    world.remove('/f');
    world.clock.advance(10_000);
    await world.quiet();
    expect(world.service.isInTrash(file)).toBe(false);
    world.mkdir('/f');
    world.clock.advance(SETTLE_MS + 1);
    for (let turn = 0; turn < 6; turn++) {
      await world.quiet();
      world.service.settleAll({ type: 'answer' });
      world.clock.advance(1_000);
    }
    expect(world.service.tree().get('/f')).toBe(null);
    expect(world.service.isInTrash(file)).toBe(false);

    world.open.delete(ino);
    world.sync.changed(ino);
    await world.settle();

    expect(world.service.isInTrash(file)).toBe(true);
    expectEqualTrees(world);
  });
});

describe('when things go wrong', () => {
  test('while offline nothing is lost, one push at a time tries, and the first response releases all', async () => {
    const world = new SyncWorld();
    for (let n = 0; n < 20; n++) world.write(`/f${n}`, 'x');
    world.service.auto = () => ({ type: 'lose-request' });
    for (let second = 0; second < 120; second++) {
      world.clock.advance(1_000);
      await world.quiet();
    }
    const tried = world.service.requests.length;
    expect(tried).toBeLessThan(40);
    expect(world.health.failure).toBeInstanceOf(TransportError);

    world.service.auto = null;
    await world.converge();

    expectEqualTrees(world);
    expect(world.health.failure).toBeNull();
  });

  test('a push that fails for a local reason does not end the pause of an unreachable service', async () => {
    const world = new SyncWorld();
    const { service, health } = world;
    service.auto = () => ({ type: 'lose-request' });
    const create = service.createFile.bind(service);
    service.createFile = async (parent, name, ...rest) => {
      if (name === 'damaged') throw new StorageError('cannot be read');
      return create(parent, name, ...rest);
    };
    const answers: string[] = [];
    health.onReachable(() => answers.push('reachable'));
    for (const name of ['first', 'damaged', 'second']) world.write(`/${name}`, 'x');
    await pass(world, 120);

    expect(world.sync.status()).toMatchObject({ pending: 3, parked: [{ path: 'damaged', reason: 'local-damage' }] });
    expect([answers, health.answers, health.isProbing]).toEqual([[], 0, true]);
    expect(health.failure).toBeInstanceOf(TransportError);
  });

  test.each([
    [403, 'forbidden'],
    [413, 'quota'],
    [400, 'name-refused'],
  ])('a refusal with %i parks one node as %s, and the others continue', async (status, reason) => {
    const world = new SyncWorld();
    world.write('/bad', 'x');
    world.write('/good', 'y');
    world.service.auto = (name) => (name === 'createFile bad' ? { type: 'refuse', status } : { type: 'answer' });
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();

    expect(world.service.tree().get('/good')).toBe('y');
    expect(world.sync.status().parked.map((parked) => [parked.path, parked.reason])).toEqual([['bad', reason]]);

    world.service.auto = null;
    world.sync.retry();
    await world.converge();
    expectEqualTrees(world);
  });

  /** [S-network-1] */
  describe('a refusal of every request', () => {
    const REFUSED = () => Promise.reject(new TransportError('every request is refused here'));

    test.each([400, 403, 404, 409, 413, 451])(
      '%i to every request parks nothing, and everything is pushed afterwards',
      async (status) => {
        const world = new SyncWorld();
        const { service } = world;
        world.write('/old', 'old');
        world.mkdir('/folder');
        await world.settle();
        world.write('/old', 'new');
        world.write('/folder/small', 'x');
        world.write('/folder/large', 'more than eight bytes');
        world.mkdir('/made');
        world.write('/made/in it', 'y');
        world.rename('/old', '/renamed');
        service.probe = REFUSED;
        service.auto = () => ({ type: 'refuse', status });
        await pass(world, 120);

        expect(world.sync.status()).toMatchObject({ parked: [] });
        expect(world.health.failure).toBeInstanceOf(TransportError);
        expect(world.events.filter(({ type }) => type === 'parked')).toEqual([]);

        service.probe = () => Promise.resolve();
        service.auto = null;
        await world.converge();
        expectEqualTrees(world);
      },
    );

    test('a refusal is confirmed while other pushes run, and before any node is parked', async () => {
      const world = new SyncWorld({ transfers: 1 });
      const { service } = world;
      let confirm = (): void => {};
      service.probe = () => new Promise((resolve) => (confirm = resolve));
      world.write('/bad', 'x');
      for (let file = 0; file < 10; file++) world.write(`/${file}`, 'x');
      service.auto = (name) => (name === 'createFile bad' ? { type: 'refuse', status: 403 } : { type: 'answer' });
      await pass(world, 20);

      expect(world.sync.status()).toMatchObject({ pending: 1, parked: [] });
      expect(service.requests.filter((name) => name === 'createFile bad')).toHaveLength(1);
      confirm();
      await world.quiet();
      expect(world.sync.status().parked.map(({ path }) => path)).toEqual(['bad']);
    });

    test('a single refusal parks nothing, however soon the service accepts another request', async () => {
      const world = new SyncWorld();
      let refusals = 0;
      world.write('/f', 'x');
      world.service.auto = () => (refusals++ === 0 ? { type: 'refuse', status: 403 } : { type: 'answer' });
      await pass(world, 10);

      expect(refusals).toBeGreaterThan(1);
      expect(world.sync.status()).toMatchObject({ pending: 0 });
      expect(world.events.filter(({ type }) => type === 'parked')).toEqual([]);
      expectEqualTrees(world);
    });

    test('a refusal that ended before the service could be asked is repeated, and parks nothing', async () => {
      const world = new SyncWorld();
      const { service } = world;
      let confirm = (): void => {};
      service.probe = () => new Promise((resolve) => (confirm = resolve));
      world.write('/f', 'x');
      service.auto = () => ({ type: 'refuse', status: 403 });
      await pass(world, 10);
      service.auto = () => ({ type: 'answer' });
      confirm();
      await pass(world, 10);

      expect(world.sync.status()).toMatchObject({ pending: 0 });
      expect(world.events.filter(({ type }) => type === 'parked')).toEqual([]);
      expectEqualTrees(world);
    });

    test.each([
      ['tried again', (world: SyncWorld) => void world.sync.retry()],
      ['given up', (world: SyncWorld) => void world.sync.discard(world.node('/bad').ino, 'discard')],
      ['written anew', (world: SyncWorld) => void world.write('/bad', 'other')],
    ])('a refusal does not apply to a node that was %s before its origin was known', async (_, act) => {
      const world = new SyncWorld();
      const { service } = world;
      world.write('/bad', 'x');
      await world.settle();
      let confirm = (): void => {};
      service.probe = () => new Promise((resolve) => (confirm = resolve));
      world.write('/bad', 'y');
      service.auto = () => ({ type: 'refuse', status: 403 });
      await pass(world, 5);
      service.auto = () => ({ type: 'answer' });
      act(world);
      confirm();
      await pass(world, 60);

      expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });
      expectEqualTrees(world);
    });
  });

  describe('what is parked stays parked, and is tried when it is said', () => {
    /** A folder, or file, `x` whose new name the service does not want. */
    async function parkedRename(kind: 'folder' | 'file'): Promise<SyncWorld> {
      const world = new SyncWorld();
      world.service.add(kind, MODEL_ROOT, 'x', kind === 'file' ? Buffer.from('1') : undefined);
      world.learn();
      world.rename('/x', '/y');
      world.service.auto = (name) =>
        name.startsWith('relocate') ? { type: 'refuse', status: 403 } : { type: 'answer' };
      await world.settle();
      expect(world.sync.status().parked).toHaveLength(1);
      return world;
    }

    test.each([
      [
        'somebody else puts something into the folder',
        'folder',
        (world: SyncWorld) => {
          const [x] = world.service.childrenOf(MODEL_ROOT);
          world.service.add('folder', x?.url as ResourceUrl, 'theirs');
          world.learn();
        },
      ],
      ['something is put into the folder here', 'folder', (world: SyncWorld) => world.mkdir('/y/ours')],
      ['which version the file is was learnt by reading it', 'file', (world: SyncWorld) => world.pin('/y')],
    ] as const)('%s', async (_, kind, act) => {
      const world = await parkedRename(kind);
      world.clock.advance(1_000);
      act(world);
      for (let round = 0; round < 3; round++) {
        world.clock.advance(SETTLE_MS + 1);
        await world.quiet();
      }
      expect(world.sync.status().parked.map(({ path }) => path)).toEqual(['y']);
      expect(world.service.requests.filter((name) => name.startsWith('relocate'))).toHaveLength(2);

      world.service.auto = null;
      expect(world.sync.retry()).toBe(1);
      await world.converge();
      expectEqualTrees(world);
    });
  });

  describe('the root folder is gone on the service, and comes back', () => {
    const changes: [string, (world: SyncWorld) => void][] = [
      ['a file that is made', (world) => void world.write('/f', 'one')],
      ['a folder that is made', (world) => void world.mkdir('/f')],
      ['a file that is moved there', (world) => world.rename('/d/f', '/f')],
    ];
    test.each(changes)('%s is parked, and the change is pushed after a retry by the user', async (_what, change) => {
      const world = new SyncWorld();
      const { service } = world;
      service.auto = () => ({ type: 'answer' });
      service.add('file', service.add('folder', MODEL_ROOT, 'd'), 'f', Buffer.from('one'));
      world.learn();
      const root = service.resources.get(MODEL_ROOT) as ModelResource;
      service.resources.delete(MODEL_ROOT);
      change(world);
      await world.settle();

      expect(world.sync.status().parked).toMatchObject([{ path: 'f', reason: 'not-found' }]);
      service.resources.set(MODEL_ROOT, root);
      world.sync.retry();
      await world.settle();
      expect(world.sync.status()).toMatchObject({ pending: 0 });
      expectEqualTrees(world);
    });

    test('a change whose response was lost is parked as well, and is pushed after a retry', async () => {
      const world = new SyncWorld();
      const { service } = world;
      world.write('/f', 'one');
      world.clock.advance(SETTLE_MS + 1);
      await world.quiet();
      service.settleAll({ type: 'lose-request' });
      const root = service.resources.get(MODEL_ROOT) as ModelResource;
      service.resources.delete(MODEL_ROOT);
      await world.settle();

      expect(world.sync.status().parked).toMatchObject([{ path: 'f', reason: 'not-found' }]);
      service.resources.set(MODEL_ROOT, root);
      world.sync.retry();
      await world.settle();
      expectEqualTrees(world);
    });
  });

  test('an error of the service is retried as long as it lasts', async () => {
    const world = new SyncWorld();
    world.write('/f', 'x');
    let left = 6;
    world.service.auto = () => (left-- > 0 ? { type: 'refuse', status: 500 } : { type: 'answer' });
    for (let minute = 0; minute < 30; minute++) {
      world.clock.advance(60_000);
      await world.quiet();
    }
    expectEqualTrees(world);
  });

  test('a refused sign-in is a state, and queued changes continue after the next sign-in', async () => {
    const world = new SyncWorld();
    world.write('/f', 'x');
    world.service.auto = () => ({ type: 'refuse', status: 401 });
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    expect(world.sync.status()).toMatchObject({ pending: 1, parked: [] });
    expect(world.health.failure).toBeInstanceOf(SignInError);

    world.service.auto = null;
    world.health.reachable();
    await world.converge();

    expectEqualTrees(world);
    expect(world.health.failure).toBeNull();
  });
});

test('a name that differs only by case is given by way of a temporary one on a service that folds case', async () => {
  const world = new SyncWorld();
  world.service.foldsCase = true;
  world.service.add('file', MODEL_ROOT, 'readme', Buffer.from('x'));
  world.learn();
  world.rename('/readme', '/README');

  await world.settle();

  expect(world.service.tree()).toEqual(new Map([['/README', 'x']]));
  expect(world.sync.status().pending).toBe(0);
});

test('two names that differ only by case stay two files on a service that folds case', async () => {
  const world = new SyncWorld();
  world.service.foldsCase = true;
  world.write('/readme', 'one');
  await world.settle();
  world.write('/README', 'two');

  await world.settle();

  expect([...world.service.tree().values()].sort()).toEqual(['one', 'two']);
  expect(world.localTree()).toEqual(
    new Map([
      ['/README', 'two'],
      ['/readme', 'one'],
    ]),
  );
  expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });
});

test.each([
  ['parked', 'longer than one request'],
  ['open', 'short'],
])('the second of two such names does not wait for the bytes of the first one, which is %s', async (how, text) => {
  const world = new SyncWorld();
  const { service } = world;
  service.foldsCase = true;
  service.auto = (name) => (name.startsWith('putVersionData') ? { type: 'refuse', status: 413 } : { type: 'answer' });
  const { ino } = world.write('/readme', text);
  await world.settle();
  if (how === 'open') {
    world.beingWritten.add(ino);
    world.write('/readme', 'more');
  }
  world.write('/README', 'two');
  const { parked, open } = await world.sync.syncNow(AbortSignal.timeout(5_000));

  expect([parked.length, open]).toEqual(how === 'parked' ? [1, 0] : [0, 1]);
  expect([...service.tree().values()]).toContain('two');
  expect(world.localTree().get('/README')).toBe('two');
});

test('the second of two such names does not wait for the close of the first one, which is deleted', async () => {
  const world = new SyncWorld();
  const { service, sync } = world;
  service.foldsCase = true;
  service.auto = () => ({ type: 'answer' });
  const { ino } = world.write('/readme', 'one');
  await world.settle();
  world.open.add(ino);
  world.remove('/readme');
  world.clock.advance(10 * SETTLE_MS); // no save of it
  world.write('/README', 'two');
  let open: number | null = null;
  void sync.syncNow().then((report) => {
    open = report.open;
  });
  for (let round = 0; round < 10 && open === null; round++) {
    await world.quiet();
    world.clock.advance(SETTLE_MS);
  }

  expect(open).toBe(1);
  expect(service.tree().get('/README')).toBe('two');
  expect([...service.tree().values()].sort()).toEqual(['one', 'two']);
  world.open.delete(ino);
  sync.changed(ino);
  await world.settle();
  expect(service.tree()).toEqual(new Map([['/README', 'two']]));
  expect(sync.status()).toMatchObject({ pending: 0, parked: [] });
});

test('the second of two such names is reported as waiting for the parked node if the first one cannot leave', async () => {
  const world = new SyncWorld();
  const { service, sync } = world;
  service.foldsCase = true;
  service.auto = () => ({ type: 'answer' });
  world.write('/readme', 'one');
  await world.settle();
  service.auto = (name) => (name.startsWith('createFolder') ? { type: 'refuse', status: 403 } : { type: 'answer' });
  world.mkdir('/folder');
  world.rename('/readme', '/folder/readme');
  world.write('/README', 'two');
  let parked: readonly string[] | null = null;
  void sync.syncNow().then((report) => {
    parked = report.parked.map(({ path }) => path).sort();
  });
  for (let round = 0; round < 20 && parked === null; round++) {
    await world.quiet();
    world.clock.advance(SETTLE_MS);
  }

  expect(parked).toEqual(['README', 'folder', 'folder/readme']);
  service.auto = () => ({ type: 'answer' });
  sync.retry();
  await world.settle();
  expect(service.tree()).toEqual(world.localTree());
});

test('a push without a response is the first of its kind after a recovery of the previous one', async () => {
  const world = new SyncWorld();
  const { service, sync } = world;
  const losing = (request: string): void => {
    let isLost = false;
    service.auto = (name) => {
      if (isLost || !name.startsWith(request)) return { type: 'answer' };
      isLost = true;
      return { type: 'lose-reply' };
    };
  };
  losing('createFolder');
  world.mkdir('/folder');
  await world.settle();
  world.mkdir('/other');
  await world.settle();
  losing('relocate');
  world.rename('/folder', '/renamed');
  await world.settle();

  expect([...service.tree().keys()].sort()).toEqual(['/other', '/renamed']);
  expect(sync.status().postponed).toBe(0);
});

test('a file that is renamed over one whose creation got no response continues that creation', async () => {
  const world = new SyncWorld();
  world.write('/f', 'one');
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  world.write('/new', 'two');
  world.rename('/new', '/f');
  world.service.settleAll({ type: 'lose-reply' });

  await world.settle();

  expect(world.service.tree()).toEqual(new Map([['/f', 'two']]));
  expect(world.service.childrenOf(MODEL_TRASH)).toEqual([]);
  expect([...world.store.all('intent')]).toEqual([]);
});

test('a new resource whose reported address belongs to another one is rejected', async () => {
  const world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  const there = world.service.add('file', MODEL_ROOT, 'there', Buffer.from('theirs'));
  world.learn();
  world.service.createFile = async () => there;
  world.write('/new', 'ours');
  await world.settle();

  expect(world.sync.status().parked.map(({ reason }) => reason)).toEqual(['refused']);
  expect([...world.localTree()].sort()).toEqual([
    ['/new', 'ours'],
    ['/there', 'theirs'],
  ]);
  checkStore(world.store, 'by others too');
});

test('of two folders that are moved into each other, the remote move wins without user action', async () => {
  const world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  const a = world.service.add('folder', MODEL_ROOT, 'A');
  const b = world.service.add('folder', MODEL_ROOT, 'B');
  world.service.add('file', a, 'in a', Buffer.from('a'));
  world.service.add('file', b, 'in b', Buffer.from('b'));
  world.learn();

  world.rename('/A', '/B/A');
  const theirs = world.service.resources.get(b);
  if (theirs !== undefined) theirs.parent = a;
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();
  expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });

  world.learn();
  await world.converge();
  const both = new Map<string, string | null>([
    ['/A', null],
    ['/A/in a', 'a'],
    ['/A/B', null],
    ['/A/B/in b', 'b'],
  ]);
  expect(world.localTree()).toEqual(both);
  expect(world.service.tree()).toEqual(both);
  expect(world.service.requests.filter((name) => name.startsWith('relocate'))).toHaveLength(1);
});

test.each([403, 400])(
  'a name collision is resolved although the folder above the share cannot be read (%i)',
  async (status) => {
    const world = new SyncWorld();
    const shared = world.service.resources.get(MODEL_ROOT);
    const above = 'm:folder/of-its-owner' as ResourceUrl;
    world.service.resources.set(above, { ...(shared as ModelResource), url: above });
    if (shared !== undefined) shared.parent = above;
    world.service.auto = (name) => (name.includes('of-its-owner') ? { type: 'refuse', status } : { type: 'answer' });
    world.service.add('folder', MODEL_ROOT, 'x');
    const target = world.service.add('folder', MODEL_ROOT, 'target');
    world.learn();
    world.service.add('folder', target, 'x'); // nobody has seen it yet
    world.rename('/x', '/target/x');
    await world.converge();

    expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });
    expect(world.service.childrenOf(target)).toHaveLength(2);
  },
);

test('a folder whose move was blocked only briefly by other clients is moved and not parked', async () => {
  const world = new SyncWorld();
  const c = world.service.add('folder', MODEL_ROOT, 'c');
  const a = world.service.add('folder', MODEL_ROOT, 'a');
  world.service.add('folder', c, 'a');
  world.learn();
  const theirs = world.service.resources.get(c);
  if (theirs !== undefined) theirs.parent = a;
  world.rename('/a', '/c/a/a');
  world.rename('/c/a', '/b');
  await world.settle();
  await world.converge();

  expect(world.sync.status()).toMatchObject({ pending: 0, parked: [] });
  world.learn();
  await world.converge();
  expect(world.localTree()).toEqual(world.service.tree());
});

describe('syncNow', () => {
  test('syncNow pushes all closed changes immediately, and reports the parked ones', async () => {
    const world = new SyncWorld();
    world.write('/f', 'x');
    world.write('/bad', 'y');
    const { ino } = world.write('/open', 'z');
    world.beingWritten.add(ino);
    world.service.auto = (name) => (name === 'createFile bad' ? { type: 'refuse', status: 403 } : { type: 'answer' });

    const report = await world.sync.syncNow();

    expect(report).toMatchObject({ pushed: 1, open: 1, parked: [{ path: 'bad', reason: 'forbidden' }] });
    expect(world.service.tree().get('/f')).toBe('x');
  });

  test('syncNow resolves immediately without changes', async () => {
    expect(await new SyncWorld().sync.syncNow()).toEqual({ pushed: 0, parked: [], open: 0 });
  });

  test('drain ends after its time limit and returns the number of remaining changes', async () => {
    const world = new SyncWorld();
    world.write('/f', 'x');
    const drained = world.sync.drain(1_000);
    await world.quiet();
    world.clock.advance(1_001);

    expect(await drained).toEqual({ left: 1 });
  });

  test('drain ends immediately when another process wants the store', async () => {
    const world = new SyncWorld();
    world.write('/f', 'x');
    const enough = new AbortController();
    const drained = world.sync.drain(1_800_000, undefined, enough.signal);
    await world.quiet();
    enough.abort();

    expect(await drained).toEqual({ left: 1 });
  });
});

test('pushes of small files run in parallel, two for each place', async () => {
  const world = new SyncWorld({ transfers: 3 });
  for (let n = 0; n < 10; n++) world.write(`/f${n}`, 'x');
  world.clock.advance(SETTLE_MS + 1);
  await world.quiet();

  expect(world.service.pending).toHaveLength(6);
});

/** [S-patience-1] */
describe('a service that answers with an error for an hour', () => {
  const CHANGES: readonly (readonly [string, (world: SyncWorld) => void])[] = [
    ['a small file is made', (world) => void world.write('/new', 'new')],
    ['a large file is made', (world) => void world.write('/new', 'more than eight bytes')],
    ['a small file is changed', (world) => void world.write('/small', 'else')],
    ['a large file is changed', (world) => void world.write('/large', 'another more than eight bytes')],
    ['a folder is made', (world) => void world.mkdir('/new')],
    ['a file is renamed', (world) => world.rename('/small', '/renamed')],
    ['two files change their names', (world) => world.rename('/small', '/large', 'exchange')],
    ['a file is deleted', (world) => world.remove('/small')],
    ['a folder is deleted', (world) => world.removeAll('/folder')],
  ];
  const isLook = (name: string): boolean => /^(list|resource|versions|versionProgress)/.test(name);
  /** Which requests it refuses; `nth` from 1 on. */
  const WHICH: readonly (readonly [string, (nth: number, name: string) => boolean])[] = [
    ...[0, 1, 2, 3].map((from) => [`from answer ${from} on`, (nth: number) => nth > from] as const),
    ['to what changes something', (_nth, name) => !isLook(name)],
    ['to what asks', (_nth, name) => isLook(name)],
    ['to bytes', (_nth, name) => name.startsWith('put')],
  ];
  const cases = CHANGES.flatMap(([what, change]) =>
    WHICH.flatMap(([which, isRefused]) =>
      [500, 503].map((status) => [what, which, status, change, isRefused] as const),
    ),
  );

  test.each(cases)(
    'a service that refuses for an hour gets few requests: %s, %s, %i',
    async (_what, _which, status, change, isRefused) => {
      const world = await worldWithAll();
      const { service } = world;
      const before = service.requests.length;
      let told = 0;
      // In the end it answers: who asks all the time would never come to the end of the hour.
      service.auto = (name) =>
        isRefused(++told, name) && told < 500 ? { type: 'refuse', status } : { type: 'answer' };

      change(world);
      await pass(world, 3600);
      expect(service.requests.length - before).toBeLessThan(200);

      service.auto = null;
      await world.settle();
      expectEqualTrees(world);
    },
  );

  test.each([500, 502, 503, 504])(
    'pushes against a failing service are retried at growing intervals: %i',
    async (status) => {
      const world = new SyncWorld();
      for (let file = 0; file < 500; file++) world.write(`/${file}`, 'new');
      const { service } = world;
      service.auto = () => (service.requests.length < 3000 ? { type: 'refuse', status } : { type: 'answer' });

      await pass(world, 3600);
      expect(service.requests.length).toBeLessThan(400);

      service.auto = null;
      await world.settle();
      expectEqualTrees(world);
    },
  );

  test('refused files do not delay the push of other files', async () => {
    const world = new SyncWorld();
    for (let file = 0; file < 200; file++) world.write(`/${file}`, 'new');
    const { service } = world;
    const isRefused = (name: string): boolean => /^createFile \d$/.test(name);
    service.auto = (name) => (isRefused(name) ? { type: 'refuse', status: 502 } : { type: 'answer' });

    await pass(world, 45);
    expect(world.sync.status().pending).toBe(10);

    service.auto = null;
    await world.settle();
    expectEqualTrees(world);
  });

  test('a Retry-After pause is not shortened by other responses', async () => {
    const world = new SyncWorld();
    for (let file = 0; file < 40; file++) world.write(`/${file}`, 'new');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    world.service.settleAll({ type: 'refuse', status: 503, retryAfterMs: 120_000 });
    await world.quiet();
    const asked = world.service.requests.length;

    world.health.reachable();
    await pass(world, 119);
    expect(world.service.requests.length).toBe(asked);

    await world.settle();
    expectEqualTrees(world);
  });
});

/** A file that is made, and that the service has lost when its bytes come. */
test('a service that loses each new file is asked at growing intervals', async () => {
  const world = new SyncWorld();
  const { service } = world;
  let lost = 0;
  service.auto = (name) => {
    const [, url] = /^putFileData (.*)/.exec(name) ?? [];
    if (url !== undefined && lost < 500) {
      lost += 1;
      service.resources.delete(url as ResourceUrl);
    }
    return { type: 'answer' };
  };
  world.write('/new', 'new');

  await pass(world, 3600);
  expect(lost).toBeGreaterThan(1);
  expect(service.requests.length).toBeLessThan(300);

  lost = 500;
  await world.settle();
  expectEqualTrees(world);
});

/** [S-patience-1] */
describe('one file that never gets an answer', () => {
  test.each([
    ['a large one', '/large', 'more than eight bytes'],
    ['a small one', '/other', 'other'],
  ])('a file without any response does not delay other pushes: %s', async (_what, path, text) => {
    const world = await worldWithAll();
    const { service } = world;
    world.write(path, text === 'other' ? 'else' : 'another more than eight bytes');
    const refused = path === '/large' ? /^putVersionData/ : /^putFileData|^createFile other/;
    service.auto = (name) => ({ type: refused.test(name) ? 'lose-request' : 'answer' });
    await pass(world, 60);
    const before = service.requests.length;

    world.mkdir('/later');
    world.rename('/small', '/later/small');
    await pass(world, 60);
    expect(service.tree().get('/later/small')).toBe('small');

    await pass(world, 3600);
    expect(service.requests.length - before).toBeLessThan(700); // as one who is offline tries, twice a minute or more
    service.auto = null;
    await world.settle();
    expectEqualTrees(world);
  });
});

async function worldWithAll(): Promise<SyncWorld> {
  const world = new SyncWorld();
  world.write('/small', 'small');
  world.write('/large', 'more than eight bytes');
  world.mkdir('/folder');
  world.write('/folder/in it', 'in it');
  await world.settle();
  return world;
}

/** Time passes; what is asked is answered by `auto`. */
async function pass(world: SyncWorld, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    world.clock.advance(1_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test.each(['before its version has a URL', 'while its bytes are sent', 'after the response was lost'])(
  'a file that is deleted and created again during an upload that began long ago keeps its history (%s)',
  async (when) => {
    const world = new SyncWorld();
    const { service, clock } = world;
    const url = service.add('file', MODEL_ROOT, 'f', Buffer.from('first'));
    world.learn();
    service.auto = null;
    world.write('/f', 'the second save');
    clock.advance(SETTLE_MS + 1);
    await world.quiet();
    if (!when.startsWith('before')) {
      service.settleAll({ type: 'answer' });
      await world.quiet();
    }
    if (when.startsWith('after')) {
      service.settleAll({ type: 'lose-reply' });
      await world.quiet();
    }
    clock.advance(10 * SETTLE_MS);
    await world.quiet();
    world.remove('/f');
    world.write('/f', 'the third save');
    await world.settle();

    expect(service.tree()).toEqual(new Map([['/f', 'the third save']]));
    expect(
      service
        .history(url)
        .map((version) => version.url)
        .map((version) => service.bytesOfVersion(version)?.toString()),
    ).toEqual(['the third save', 'the second save', 'first']);
    expect(service.violations).toEqual([]);
  },
);

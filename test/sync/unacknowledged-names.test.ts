import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ProtocolError, UsageError } from '../../src/base/errors.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { folderOf } from '../../src/sync/outcome.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { type Fate, MODEL_ROOT } from './model-service.ts';

/** Names that were made, moved or removed on the service without our hearing of it, and what happens before that is found out. */

const ANSWER: Fate = { type: 'answer' };

let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build();
});
afterEach(() => world.close());

async function untilParked(): Promise<void> {
  for (let round = 0; round < 60 && world.sync.status().parked.length === 0; round++) await world.pass(10_000);
  expect(world.sync.status().parked).toHaveLength(1);
}

/** The first request that begins so takes effect unheard; `then` happens beside it, and says what comes after it. */
function unheard(prefix: string, then: (name: string) => Fate = () => ANSWER): void {
  let isOver = false;
  world.service.auto = (name) => {
    if (isOver) return then(name);
    if (!name.startsWith(prefix)) return ANSWER;
    isOver = true;
    return { type: 'lose-reply' };
  };
}

const files = async (path = ''): Promise<string[]> =>
  (await world.mount.readdir(path)).map(({ name }) => name).toSorted();
const shown = (): (string | null)[] => [...world.service.tree().values()].toSorted();

test('another client’s empty file, found at the requested place, does not count as made here', async () => {
  const { service, mount } = world;
  let stage: 'made' | 'found' | 'over' = 'made';
  service.auto = (name) => {
    if (stage === 'made' && name.startsWith('createFile')) {
      stage = 'found';
      // Theirs was there before: whatever the answer was, it was not heard.
      service.add('file', MODEL_ROOT, 'file');
      return { type: 'lose-reply' };
    }
    if (stage === 'found' && /^(putFileData|createVersion)/.test(name)) {
      stage = 'over';
      service.addVersion(service.childrenOf(MODEL_ROOT)[0]?.url ?? MODEL_ROOT, Buffer.from('theirs!'));
    }
    return ANSWER;
  };
  await mount.writeFile('file', Buffer.from('ours'));
  await world.converge();
  for (let round = 0; round < 10; round++) await world.pass(60_000);

  expect(stage).toBe('over');
  expect(shown()).toEqual(['ours', 'theirs!']);
});

test('a service that names a file as a parent folder is not believed', async () => {
  const { service, mount, side } = world;
  await mount.mkdir('dir');
  await mount.writeFile('file', Buffer.from('bytes'));
  await world.converge();
  const folderNamed = (wanted: string) =>
    folderOf(side.store, service.childrenOf(MODEL_ROOT).find(({ name }) => name === wanted)?.url);

  expect([folderNamed('dir'), folderNamed('file'), folderNamed('none')]).toEqual([
    (await mount.stat('dir')).ino,
    undefined,
    undefined,
  ]);
});

test('a folder that is found at the requested place may have contents', async () => {
  const { service, mount } = world;
  service.auto = (name) => {
    if (!name.startsWith('createFolder')) return ANSWER;
    service.auto = () => ANSWER;
    // Theirs was there before: whatever the answer was, it was not heard.
    service.add('file', service.add('folder', MODEL_ROOT, 'dir'), 'theirs', Buffer.from('theirs'));
    return { type: 'lose-reply' };
  };
  await mount.mkdir('dir');
  await world.converge();

  expect(await files('dir')).toEqual(['theirs']);
});

describe.each([
  ['where names are unique', true],
  ['where they are not', false],
])(
  'a file whose creation got no response, and which is parked because its folder cannot be read, %s',
  (_, uniqueNames) => {
    beforeEach(async () => {
      world.service.uniqueNames = uniqueNames;
      unheard('createFile', (name) => (name.startsWith('list') ? { type: 'refuse', status: 403 } : ANSWER));
      await world.mount.writeFile('file', Buffer.from('bytes'));
      await untilParked();
    });

    test('a file whose creation got no response is filled after a retry by the user', async () => {
      world.service.auto = () => ANSWER;
      world.sync.retry();
      await world.converge();
      expect([...world.service.tree()]).toEqual([['/file', 'bytes']]);
    });

    test('a file whose creation got no response is deleted on the service if it is deleted here', async () => {
      const { service, mount } = world;
      await mount.unlink('file');
      const before = service.requests.length;
      for (let round = 0; round < 10; round++) await world.pass(60_000);
      // Nobody is told that it is still refused: asked again, with pauses that grow.
      const asked = service.requests.length - before;
      expect(asked).toBeGreaterThan(2);
      expect(asked).toBeLessThan(30);
      service.auto = () => ANSWER;
      for (let round = 0; round < 10; round++) await world.pass(60_000);
      expect([...service.tree()]).toEqual([]);
    });
  },
);

test('a file whose creation got an unreadable response exists once, and nothing is parked', async () => {
  const { service, mount, sync } = world;
  const createFile = service.createFile.bind(service);
  let created = 0;
  service.createFile = async (...asked) => {
    created += 1;
    await createFile(...asked);
    throw new ProtocolError('not XML');
  };
  await mount.writeFile('file', Buffer.from('bytes'));
  for (let round = 0; round < 60; round++) await world.pass(10_000);

  expect(sync.status()).toMatchObject({ parked: [], pending: 0 });
  expect(created).toBe(1);
  expect([...service.tree()]).toEqual([['/file', 'bytes']]);
});

test('a file that was found after a lost creation counts as a save when it is renamed over another one', async () => {
  const { service, mount } = world;
  await mount.writeFile('report', Buffer.from('first'));
  await world.converge();
  unheard('createFile');
  await mount.writeFile('report.part', Buffer.from('second, longer'));
  await world.converge();
  await mount.rename('report.part', 'report');
  await world.converge();

  expect([...service.tree()]).toEqual([['/report', 'second, longer']]);
  const [report] = service.childrenOf(MODEL_ROOT);
  expect(report?.versions.map(({ bytes }) => bytes.toString())).toEqual(['second, longer', 'first']);
});

describe('what is discarded before it is known what became of it', () => {
  const served = (): string[] => [...world.service.tree()].map(([path, bytes]) => `${path} ${bytes}`);

  async function offlineAfter(request: string): Promise<void> {
    unheard(request, () => ({ type: 'lose-request' }));
    for (let round = 0; round < 3; round++) await world.pass(2_000);
  }

  async function onlineAgain(): Promise<void> {
    world.service.auto = () => ANSWER;
    world.side.health.reachable();
    await world.converge();
    for (let round = 0; round < 5; round++) {
      await world.pass(600_000);
      await files();
      await world.side.freshness.refresh();
    }
  }

  function dirty(): Inode {
    const [first] = world.side.store.all('dirty');
    return first?.[0] ?? ROOT_INODE;
  }

  test('a discarded creation with an unknown outcome is removed on both sides', async () => {
    await world.mount.writeFile('file', Buffer.from('bytes'));
    await offlineAfter('createFile');
    await world.sync.discard(dirty(), 'discard');
    expect(await files()).toEqual([]);
    await onlineAgain();
    expect([await files(), served()]).toEqual([[], []]);
  });

  test.each(['discarded', 'deleted'])(
    'a discarded creation stays removed after it was %s without bytes',
    async (how) => {
      const { service, mount, sync } = world;
      service.auto = (name) => (name.startsWith('putFileData') ? { type: 'refuse', status: 500 } : ANSWER);
      await mount.writeFile('file', Buffer.from('bytes'));
      for (let round = 0; round < 3; round++) await world.pass(2_000);
      service.auto = () => ({ type: 'lose-request' });
      if (how === 'deleted') await mount.unlink('file');
      else await sync.discard(dirty(), 'discard');
      expect(await sync.discard(ROOT_INODE, 'discard')).toEqual([]);
      expect(await files()).toEqual([]);
      await onlineAgain();
      expect([await files(), served()]).toEqual([[], []]);
    },
  );

  test('a discarded rename with an unknown outcome restores the name of the service', async () => {
    await world.mount.writeFile('before', Buffer.from('bytes'));
    await world.converge();
    await world.mount.rename('before', 'after');
    await offlineAfter('relocate');
    await world.sync.discard(dirty(), 'discard');
    const kept = await files();
    await onlineAgain();
    expect(await files()).toEqual(kept);
    expect(served()).toEqual(kept.map((name) => `/${name} bytes`));
  });

  test.each(['a file', 'a folder'])(
    'a discarded deletion with an unknown outcome does not bring the node back yet: %s',
    async (what) => {
      const [path, request] = what === 'a file' ? ['file', 'trash file'] : ['dir', 'trash dir'];
      if (what === 'a file') await world.mount.writeFile(path, Buffer.from('bytes'));
      else await world.mount.mkdir(path);
      await world.converge();
      if (what === 'a file') await world.mount.unlink(path);
      else await world.mount.rmdir(path);
      await offlineAfter(request);
      await expect(world.sync.discard(dirty(), 'discard')).rejects.toThrow(UsageError);
      await onlineAgain();
      expect([await files(), served()]).toEqual([[], []]);
    },
  );

  test('a discarded deletion restores the node if the user was informed that its outcome is unknown', async () => {
    await world.mount.writeFile('file', Buffer.from('bytes'));
    await world.converge();
    await world.mount.unlink('file');
    unheard('trash', (name) => (name.startsWith('resource') ? { type: 'refuse', status: 403 } : ANSWER));
    await untilParked();
    await world.sync.discard(dirty(), 'discard');
    expect(await files()).toEqual(['file']);
    await onlineAgain();
    // It had been deleted.
    expect([await files(), served()]).toEqual([[], []]);
  });
});

import { describe, expect, test } from 'vitest';
import { SignInError } from '../../src/base/errors.ts';
import type { ContentId, ResourceUrl } from '../../src/base/vocabulary.ts';
import type { Fate } from './model-service.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/**
 * The table in src/sync/upload-session.ts, a row each. The session runs inside the sync loop, which tries again after each
 * failure; `plainPutMaxBytes` is 8, so that ten bytes go as a version.
 */

const OLD = 'before';
const NEW = '0123456789';

/** A file with one version on the service, changed here, its push due. */
function changed(): { world: SyncWorld; file: ResourceUrl } {
  const world = new SyncWorld();
  const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from(OLD));
  world.learn();
  world.write('/f', NEW);
  world.clock.advance(SETTLE_MS + 1);
  return { world, file };
}

/** A file made here, its push due. */
function made(text: string): SyncWorld {
  const world = new SyncWorld();
  world.write('/f', text);
  world.clock.advance(SETTLE_MS + 1);
  return world;
}

/** The bytes of all complete versions, newest first. */
function versionsOf(world: SyncWorld, file: ResourceUrl): string[] {
  const versions = world.service.resources.get(file)?.versions ?? [];
  return versions.filter((version) => version.complete).map((version) => version.bytes.toString());
}

/** The first request with that name gets `fate`, all others are answered. */
function once(world: SyncWorld, name: string, fate: Fate, nth = 1): void {
  let left = nth;
  world.service.auto = (asked) => (asked.startsWith(name) && --left === 0 ? fate : { type: 'answer' });
}

/** Answers one request after the other until one of that name waits. */
async function until(world: SyncWorld, name: string): Promise<void> {
  for (let round = 0; round < 20; round++) {
    await world.quiet();
    if (world.service.pending.some((request) => request.name.startsWith(name))) return;
    world.service.pending.shift()?.settle({ type: 'answer' });
  }
  throw new Error(`nobody asks for ${name}`);
}

async function pass(world: SyncWorld): Promise<void> {
  for (let round = 0; round < 40; round++) {
    await world.quiet();
    world.clock.advance(1_000);
  }
  await world.quiet();
  expect(world.sync.status()).toMatchObject({ pending: 0, pushing: 0 });
  expect([...world.intents.open()]).toEqual([]);
  expect(world.service.violations).toEqual([]);
}

describe('wherever the line dies', () => {
  /**
   * The n-th request is lost, on its way there or on its way back, and every one after it until the line is back; with and
   * without a SIGKILL in between. Each n until an attempt gets through untouched.
   */
  test.each([
    ['lose-request', 'the same process'],
    ['lose-reply', 'the same process'],
    ['lose-request', 'a new process'],
    ['lose-reply', 'a new process'],
  ] as const)('one version is made wherever the connection breaks: %s, then %s', async (type, next) => {
    for (let stopAt = 1, stopped = true; stopped; stopAt++) {
      const { world, file } = changed();
      let asked = 0;
      world.service.auto = () => (++asked >= stopAt ? { type } : { type: 'answer' });
      await world.quiet();
      stopped = asked >= stopAt;
      if (stopped && next === 'a new process') world.restart();

      world.service.auto = () => ({ type: 'answer' });
      await pass(world);

      expect(versionsOf(world, file), `stopped at ${stopAt}`).toEqual([NEW, OLD]);
      expect(world.bytesOf(world.node('/f'))).toBe(NEW);
    }
  });

  test.each(['the same process', 'a new process'])(
    'the rest is sent after a cut at every byte, by %s',
    async (next) => {
      for (let afterBytes = 0; afterBytes <= NEW.length; afterBytes++) {
        const { world, file } = changed();
        once(world, 'putVersionData', { type: 'cut', afterBytes });
        await world.quiet();
        if (next === 'a new process') world.restart();
        await pass(world);

        expect(versionsOf(world, file), `cut after ${afterBytes}`).toEqual([NEW, OLD]);
        // Not a byte twice: the version was asked what it holds.
        expect(world.service.receivedBytes).toBe(NEW.length);
      }
    },
  );

  test.each([
    ['lose-request', 'the same process'],
    ['lose-reply', 'the same process'],
    ['lose-request', 'a new process'],
    ['lose-reply', 'a new process'],
  ] as const)(
    'a new small file is made once and filled, wherever the connection breaks: %s, then %s',
    async (type, next) => {
      for (let stopAt = 1, stopped = true; stopped; stopAt++) {
        const world = made('small');
        let asked = 0;
        world.service.auto = () => (++asked >= stopAt ? { type } : { type: 'answer' });
        await world.quiet();
        stopped = asked >= stopAt;
        if (stopped && next === 'a new process') world.restart();

        world.service.auto = () => ({ type: 'answer' });
        await pass(world);

        const files = world.service.childrenOf(MODEL_ROOT);
        expect(
          files.map(({ name }) => name),
          `stopped at ${stopAt}`,
        ).toEqual(['f']);
        expect(versionsOf(world, files[0]?.url as ResourceUrl)).toEqual(['small']);
      }
    },
  );
});

describe('whatever request of it is under way', () => {
  /** Before the n-th request is answered, each n until one finds the upload done. */
  async function atEach(begin: () => SyncWorld, act: (world: SyncWorld, file: ResourceUrl) => void) {
    const ended: SyncWorld[] = [];
    for (let nth = 1, isLate = false; !isLate; nth++) {
      const world = begin();
      let asked = 0;
      world.service.auto = () => {
        const file = world.node('/f').remote?.resource;
        if (++asked === nth && file !== undefined) act(world, file);
        return { type: 'answer' };
      };
      await pass(world);
      isLate = asked < nth;
      if (!isLate) ended.push(world);
    }
    expect(ended.length).toBeGreaterThan(1);
    return ended;
  }

  test('local changes of a file that is deleted elsewhere are recreated', async () => {
    const worlds = await atEach(
      () => changed().world,
      (world, file) => world.service.resources.delete(file),
    );
    for (const world of worlds) expect(world.service.tree()).toEqual(new Map([['/f', NEW]]));
  });

  test.each(['small', NEW])('a new file (%s) that is deleted elsewhere is recreated', async (text) => {
    const worlds = await atEach(
      () => made(text),
      (world, file) => world.service.resources.delete(file),
    );
    for (const world of worlds) expect(world.service.tree()).toEqual(new Map([['/f', text]]));
  });

  test('a file that is saved elsewhere is kept in both versions, with at most one copy', async () => {
    const worlds = await atEach(
      () => changed().world,
      (world, file) => world.service.addVersion(file, Buffer.from('theirs')),
    );
    for (const world of worlds) {
      expect([...world.service.allBytes()]).toEqual(expect.arrayContaining([NEW, 'theirs']));
      expect(world.service.tree().size).toBeLessThanOrEqual(2);
      expect(world.localTree()).toEqual(world.service.tree());
    }
  });
});

describe('what the service answers', () => {
  test('after a 416 the progress of our version is read again after a pause, and no byte is sent twice', async () => {
    const { world, file } = changed();
    once(world, 'putVersionData', { type: 'refuse', status: 416 });
    await pass(world);

    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
    expect(world.service.requests.filter((request) => request.startsWith('createVersion'))).toHaveLength(1);
  });

  test('after a 404 of the version another one is made', async () => {
    const { world, file } = changed();
    once(world, 'putVersionData', { type: 'refuse', status: 404 });
    await pass(world);

    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
    expect(world.service.requests.filter((request) => request.startsWith('createVersion'))).toHaveLength(2);
  });

  test.each(['createVersion', 'versions'])(
    'after a 404 of the file at %s the local changes are recreated',
    async (name) => {
      const { world, file } = changed();
      let isGone = false;
      world.service.auto = (asked) => {
        if (asked.startsWith(name) && !isGone) {
          isGone = true;
          world.service.resources.delete(file);
        }
        return { type: 'answer' };
      };
      await pass(world);

      expect(world.service.tree()).toEqual(new Map([['/f', NEW]]));
    },
  );

  test('a 413 parks the file with its bytes, and a retry continues the same version', async () => {
    const { world, file } = changed();
    let refusals = 0;
    world.service.auto = (asked) =>
      asked.startsWith('putVersionData') && refusals++ < 2 ? { type: 'refuse', status: 413 } : { type: 'answer' };
    await world.settle();
    expect(world.sync.status().parked).toMatchObject([{ path: 'f', reason: 'quota' }]);
    expect(world.bytesOf(world.node('/f'))).toBe(NEW);

    world.sync.retry();
    await pass(world);

    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
    expect(world.service.requests.filter((request) => request.startsWith('createVersion'))).toHaveLength(1);
  });

  test.each([500, 502, 503, 429])('%i: tried again, with the same version', async (status) => {
    const { world, file } = changed();
    once(world, 'putVersionData', { type: 'refuse', status });
    await pass(world);

    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
  });

  test('an upload continues after a 401 and a new sign-in', async () => {
    const { world, file } = changed();
    once(world, 'putVersionData', { type: 'refuse', status: 401 });
    await world.quiet();
    expect(world.health.failure).toBeInstanceOf(SignInError);
    world.health.reachable();
    await pass(world);

    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
  });

  test('a complete version of another length is never taken for ours', async () => {
    const { world, file } = changed();
    once(world, 'putVersionData', { type: 'lose-request' });
    await world.quiet();
    const half = world.service.resources.get(file)?.versions[0];
    if (half === undefined) throw new Error('no version was made');
    half.bytes = Buffer.from('someone');
    half.complete = true;
    world.service.auto = () => ({ type: 'answer' });
    await pass(world);

    expect(versionsOf(world, file)[0]).toBe(NEW);
    expect(world.bytesOf(world.node('/f'))).toBe(NEW);
  });
});

describe('what happens meanwhile', () => {
  test('a write during the upload does not change the frozen draft: both become versions', async () => {
    const { world, file } = changed();
    await world.quiet();
    world.patch('/f', 0, 'X');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);

    expect(versionsOf(world, file)).toEqual([`X${NEW.slice(1)}`, NEW, OLD]);
  });

  test('a file that is deleted during its upload is trashed and does not come back', async () => {
    const { world, file } = changed();
    await world.quiet();
    world.remove('/f');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);

    expect(world.service.isInTrash(file)).toBe(true);
    expect(world.localTree()).toEqual(new Map());
  });

  test('a removal aborts the running transfer of the file', async () => {
    const { world, file } = changed();
    await until(world, 'putVersionData');
    world.remove('/f');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();

    expect(world.service.pending.map(({ name }) => name)).not.toContain('putVersionData from 0');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);
    expect(world.service.receivedBytes).toBe(0);
    expect(world.service.isInTrash(file)).toBe(true);
    expect(world.localTree()).toEqual(new Map());
  });

  test('a removal ends the transfer that the file took over with its name', async () => {
    const { world, file } = changed();
    await until(world, 'putVersionData');
    world.write('/g', 'another one');
    world.rename('/g', '/f');
    world.remove('/f');
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();

    expect(world.service.pending.map(({ name }) => name)).not.toContain('putVersionData from 0');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);
    expect(world.service.receivedBytes).toBe(0);
    expect(world.service.isInTrash(file)).toBe(true);
  });

  test('a removal whose version arrives whole nevertheless stays a removal', async () => {
    const { world, file } = changed();
    await until(world, 'putVersionData');
    world.remove('/f');
    world.clock.advance(SETTLE_MS + 1);
    await until(world, `resource ${file}`);
    const [version] = world.service.resources.get(file)?.versions ?? [];
    if (version) Object.assign(version, { bytes: Buffer.from(NEW), complete: true });
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);

    expect(world.service.isInTrash(file)).toBe(true);
    expect(world.service.tree()).toEqual(new Map());
  });

  test('the version of an aborted transfer is known as ours after a restart, and a new file of that name follows it', async () => {
    const { world, file } = changed();
    await until(world, 'putVersionData');
    world.remove('/f');
    world.clock.advance(SETTLE_MS + 1);
    await until(world, `resource ${file}`);
    const [version] = world.service.resources.get(file)?.versions ?? [];
    if (version) Object.assign(version, { bytes: Buffer.from(NEW), complete: true });
    world.write('/f', 'made anew');
    world.restart();
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);

    expect([...world.service.tree()]).toEqual([['/f', 'made anew']]);
    expect([...world.localTree()]).toEqual([['/f', 'made anew']]);
  });

  test.each([
    ['writes over it', (world: SyncWorld): unknown => world.write('/f', 'the next one')],
    [
      'removes it and makes it anew',
      (world: SyncWorld): unknown => {
        world.remove('/f');
        return world.write('/f', 'the next one');
      },
    ],
    [
      'renames another over it',
      (world: SyncWorld): void => {
        world.write('/g', 'the next one');
        world.rename('/g', '/f');
      },
    ],
  ])('a save that %s aborts no transfer: the bytes in transit become a version', async (_how, save) => {
    const { world } = changed();
    await until(world, 'putVersionData');
    save(world);
    for (let round = 0; round < 5; round++) {
      world.clock.advance(SETTLE_MS);
      await world.quiet();
    }

    expect(world.service.pending.map(({ name }) => name)).toContain('putVersionData from 0');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);
    expect([...world.service.allBytes()]).toEqual(expect.arrayContaining(['the next one', NEW, OLD]));
    expect(world.service.tree()).toEqual(new Map([['/f', 'the next one']]));
  });

  test('a file that is renamed during its upload stays one file with the new name', async () => {
    const { world, file } = changed();
    await world.quiet();
    world.rename('/f', '/g');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);

    expect(world.service.tree()).toEqual(new Map([['/g', NEW]]));
    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
  });

  test('missing bytes of the base of a draft are fetched before the upload', async () => {
    const world = new SyncWorld();
    const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from(NEW));
    world.learn();
    world.patch('/f', 2, 'XY');
    world.service.auto = () => ({ type: 'answer' });
    world.clock.advance(SETTLE_MS + 1);
    await pass(world);

    expect(versionsOf(world, file)).toEqual(['01XY456789', NEW]);
  });

  /** A file of which a part was changed here, whose version the service dropped for eight of somebody else's meanwhile. */
  async function baseLost() {
    const world = new SyncWorld();
    const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from(NEW));
    world.learn();
    world.patch('/f', 2, 'XY');
    for (let n = 0; n < 8; n++) world.service.addVersion(file, Buffer.from(`theirs ${n}`));
    world.service.auto = () => ({ type: 'answer' });
    world.clock.advance(SETTLE_MS + 1);
    await world.quiet();
    return { world, file };
  }

  test('a draft whose base version is deleted is parked as base-lost, and no byte is invented', async () => {
    const { world, file } = await baseLost();

    expect(world.sync.status().parked).toMatchObject([{ path: 'f', reason: 'base-lost' }]);
    expect(versionsOf(world, file)[0]).toBe('theirs 7');
  });

  test('a rewritten file whose base version is deleted is pushed, and the remote version becomes a copy', async () => {
    const { world, file } = await baseLost();
    expect(world.sync.status().parked).toMatchObject([{ reason: 'base-lost' }]);

    world.write('/f', 'written anew');
    await pass(world);

    expect(world.sync.status().parked).toEqual([]);
    expect(versionsOf(world, file)[0]).toBe('written anew');
    expect([...world.service.tree().values()]).toEqual(expect.arrayContaining(['written anew', 'theirs 7']));
  });
});

describe('changed here and elsewhere', () => {
  test('if our version is the newest, the remote one is kept as exactly one conflicted copy', async () => {
    const { world, file } = changed();
    world.service.addVersion(file, Buffer.from('theirs 1'));
    world.service.addVersion(file, Buffer.from('theirs 2'));
    world.service.auto = () => ({ type: 'answer' });
    await pass(world);

    expect(world.service.tree()).toEqual(
      new Map([
        ['/f', NEW],
        ['/f (conflicted copy 2023-11-14 not from host)', 'theirs 2'],
      ]),
    );
    expect(world.localTree()).toEqual(world.service.tree());
    expect(world.events.filter((event) => event.type === 'conflict')).toHaveLength(1);
  });

  /** Longer than the whole seconds of a Date header and clocks that differ are allowed for (src/store/service-time.ts). */
  const LATER_MS = 2_500;

  /** The first bytes of a file are acknowledged; before its folder is listed again the service has others, or none. */
  async function acknowledged(has: (world: SyncWorld, file: ResourceUrl) => void): Promise<SyncWorld> {
    const world = made('ours');
    world.service.auto = () => ({ type: 'answer' });
    await pass(world);
    has(world, world.node('/f').remote?.resource as ResourceUrl);
    world.learn();
    return world;
  }

  test.each(['ou', 'ours and more', null])(
    'an acknowledged file that the next listing reports with another length (%s) is kept and sent again',
    async (kept) => {
      const world = await acknowledged(({ service }, file) => {
        const resource = service.resources.get(file);
        if (resource === undefined) throw new Error('no file was made');
        resource.versions = [];
        if (kept !== null) service.addVersion(file, Buffer.from(kept));
      });
      expect(world.bytesOf(world.node('/f'))).toBe('ours');
      await pass(world);

      const tree = world.service.tree();
      expect(tree.get('/f')).toBe('ours');
      // It may be what somebody else saved in the same moment.
      expect([...tree.values()].sort()).toEqual(kept === null ? ['ours'] : ['ours', kept].sort());
      world.learn();
      expect(world.localTree()).toEqual(tree);
    },
  );

  test('a plain PUT that is cut by SIGKILL and still arriving when its outcome is queried is not sent twice', async () => {
    const world = made('ours');
    world.service.auto = null;
    await world.quiet();
    world.service.settleAll({ type: 'answer' });
    await world.quiet();
    const [underWay] = world.service.pending.splice(0);
    expect(underWay?.name).toMatch(/^putFileData/);
    world.restart();
    const [file] = world.service.childrenOf(MODEL_ROOT);
    world.service.auto = () => ({ type: 'answer' });
    await world.quiet();
    expect(world.service.requests.at(-1), 'asked by the new process').toBe(`resource ${file?.url}`);
    underWay?.settle({ type: 'lose-reply' });
    await pass(world);

    expect(versionsOf(world, file?.url as ResourceUrl)).toEqual(['ours']);
  });

  test('after a lost response of the plain PUT and another length of the file, a new version is made and the remote one is kept', async () => {
    const world = made('ours');
    world.service.auto = null;
    await world.quiet();
    world.service.settleAll({ type: 'answer' });
    await world.quiet();
    expect(world.service.pending.map(({ name }) => name.split(' ')[0])).toEqual(['putFileData']);
    world.service.settleAll({ type: 'lose-request' });
    const [file] = world.service.childrenOf(MODEL_ROOT);
    world.service.addVersion(file?.url as ResourceUrl, Buffer.from('ou'));
    world.service.auto = () => ({ type: 'answer' });
    await pass(world);

    expect(versionsOf(world, file?.url as ResourceUrl)).toEqual(['ours', 'ou']);
    expect([...world.service.tree().values()].sort()).toEqual(['ou', 'ours']);
  });

  test('a file made here and filled elsewhere during an outage gets a new version, and the remote one is kept', async () => {
    const world = made('ours');
    world.service.auto = (name) => ({ type: name.startsWith('createFile') ? 'answer' : 'lose-request' });
    await world.quiet();
    const [file] = world.service.childrenOf(MODEL_ROOT);
    world.clock.advance(60_000);
    await world.quiet();
    world.service.auto = (name) => {
      if (/^(putFileData|createVersion)/.test(name) && world.service.bytesOf(file?.url as ResourceUrl) === null)
        world.service.addVersion(file?.url as ResourceUrl, Buffer.from('theirs'));
      return { type: 'answer' };
    };
    await pass(world);

    expect([...world.service.tree().values()].sort()).toEqual(['ours', 'theirs']);
  });

  // By its time alone it cannot be told from a service that was set back to a backup.
  test('a remote save by a clock that was set back is shown, and ours becomes a copy', async () => {
    const world = await acknowledged((confirmed, file) => {
      confirmed.learn();
      confirmed.service.nowMs -= LATER_MS;
      confirmed.service.addVersion(file, Buffer.from('their longer one'));
    });
    await pass(world);

    expect(world.localTree().get('/f')).toBe('their longer one');
    expect([...world.localTree().values()].toSorted()).toEqual(['ours', 'their longer one']);
    expect(world.service.tree()).toEqual(world.localTree());
  });

  test('a remote save of another length before the first listing of a file made here is shown, and nothing is sent', async () => {
    const world = await acknowledged(({ service }, file) => {
      service.nowMs += LATER_MS;
      service.addVersion(file, Buffer.from('their longer one'));
    });
    const { receivedBytes } = world.service;
    await pass(world);

    expect(world.service.tree()).toEqual(new Map([['/f', 'their longer one']]));
    expect(world.localTree()).toEqual(world.service.tree());
    expect(world.service.receivedBytes).toBe(receivedBytes);
  });

  test('a remote save of equal length before the first listing of a file made here is shown', async () => {
    const world = made('ours');
    world.service.auto = () => ({ type: 'answer' });
    await pass(world);
    world.service.nowMs += LATER_MS;
    world.service.addVersion(world.node('/f').remote?.resource as ResourceUrl, Buffer.from('them'));

    world.learn();

    expect(world.bytesOf(world.node('/f'))).toBe('them');
    expect(world.sync.status().pending).toBe(0);
  });

  test('a remote save of equal length before the first listing of a file made and changed here is kept beside ours', async () => {
    const world = made('ours');
    world.service.auto = () => ({ type: 'answer' });
    await pass(world);
    world.service.nowMs += LATER_MS;
    world.service.addVersion(world.node('/f').remote?.resource as ResourceUrl, Buffer.from('them'));

    world.write('/f', NEW);
    await pass(world);

    expect(world.service.tree()).toEqual(
      new Map([
        ['/f', NEW],
        ['/f (conflicted copy 2023-11-14 not from host)', 'them'],
      ]),
    );
  });

  test('a remote version after ours is adopted, and its client makes the copy', async () => {
    const { world, file } = changed();
    world.service.auto = (name) => {
      if (name.startsWith('versions')) world.service.addVersion(file, Buffer.from('theirs'));
      return { type: 'answer' };
    };
    await pass(world);

    expect(world.service.tree()).toEqual(new Map([['/f', 'theirs']]));
    expect(world.localTree()).toEqual(world.service.tree());
  });

  test('a remote version that began after ours and completed before it wins, and ours is kept as a conflicted copy', async () => {
    const { world, file } = changed();
    world.service.asBegun = true;
    once(world, 'putVersionData', { type: 'cut', afterBytes: 3 });
    await world.quiet();
    world.service.addVersion(file, Buffer.from('theirs'));
    await pass(world);

    expect(world.service.tree()).toEqual(
      new Map([
        ['/f', 'theirs'],
        ['/f (conflicted copy 2023-11-14 host)', NEW],
      ]),
    );
    expect(world.localTree()).toEqual(world.service.tree());
  });

  test('a remote save of a file that was deleted here during its upload is shown again', async () => {
    const { world, file } = changed();
    let isFirst = true;
    world.service.auto = (name) => {
      if (name.startsWith('versions') && isFirst) {
        isFirst = false;
        world.remove('/f');
        world.service.addVersion(file, Buffer.from('theirs'));
      }
      return { type: 'answer' };
    };
    await pass(world);
    world.learn();

    expect(world.service.tree()).toEqual(new Map([['/f', 'theirs']]));
    expect([...world.localTree().keys()]).toEqual(['/f']);
  });

  test('our version is kept as a copy if it has left the history before the first look', async () => {
    const { world, file } = changed();
    let isLate = true;
    world.service.auto = (name) => {
      if (name.startsWith('versions') && isLate) {
        isLate = false;
        for (let n = 0; n < 8; n++) world.service.addVersion(file, Buffer.from(`theirs ${n}`));
      }
      return { type: 'answer' };
    };
    await pass(world);

    expect(world.service.tree()).toEqual(
      new Map([
        ['/f', 'theirs 7'],
        ['/f (conflicted copy 2023-11-14 host)', NEW],
      ]),
    );
    expect(world.localTree()).toEqual(world.service.tree());
  });

  test.each([
    ['a whole new content', (world: SyncWorld) => world.write('/f', NEW)],
    ['some bytes over the version', (world: SyncWorld) => world.patch('/f', 0, 'X')],
  ])('a remote version that was listed before our push (%s) is kept beside ours', async (_what, change) => {
    const world = new SyncWorld();
    const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from(OLD));
    world.learn();
    change(world);
    const ours = world.bytesOf(world.node('/f'));
    world.service.addVersion(file, Buffer.from('theirs'));
    world.learn();
    world.service.auto = () => ({ type: 'answer' });
    world.clock.advance(SETTLE_MS + 1);
    await pass(world);

    expect(world.service.tree()).toEqual(
      new Map([
        ['/f', ours],
        ['/f (conflicted copy 2023-11-14 not from host)', 'theirs'],
      ]),
    );
    expect(world.localTree()).toEqual(world.service.tree());
  });

  test('two files made under one name on two clients are both kept', async () => {
    const world = new SyncWorld();
    world.write('/f', NEW);
    world.service.add('file', MODEL_ROOT, 'f', Buffer.from('theirs'));
    world.learn();
    world.service.auto = () => ({ type: 'answer' });
    world.clock.advance(SETTLE_MS + 1);
    await pass(world);

    expect([...world.service.tree().values()].sort()).toEqual([NEW, 'theirs']);
    expect(world.localTree()).toEqual(world.service.tree());
  });

  test('a lost response of the history request makes no second copy', async () => {
    const { world, file } = changed();
    world.service.addVersion(file, Buffer.from('theirs'));
    once(world, 'versions', { type: 'lose-reply' });
    await world.quiet();
    world.restart();
    await pass(world);

    expect([...world.service.tree().keys()].sort()).toEqual(['/f', '/f (conflicted copy 2023-11-14 not from host)']);
  });
});

describe('bytes that are here when they become another file', () => {
  /** As an editor saves: the old file is renamed away, a new one takes its name and its history. */
  async function backup(text: string): Promise<SyncWorld> {
    const world = new SyncWorld();
    const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from(text));
    world.learn();
    const content = world.pin('/f').local?.content as ContentId;
    world.contents.landed(content, { start: 0, end: text.length }, Buffer.from(text));
    world.rename('/f', '/f~');
    world.write('/f', 'saved');
    await world.settle();
    expect(world.service.tree()).toEqual(
      new Map([
        ['/f', 'saved'],
        ['/f~', text],
      ]),
    );
    expect(versionsOf(world, file)).toEqual(['saved', text]);
    return world;
  }

  test.each(['short', NEW])('cached bytes that become another file’s are read without a fetch (%s)', async (text) => {
    const world = await backup(text);
    const { local, remote } = world.node('/f~');
    expect(local?.content).toBe(remote?.content);
    const bytes = world.contents.readAll(local?.content as ContentId, { start: 0, end: text.length });
    expect(Buffer.from(bytes ?? []).toString()).toBe(text);
  });

  test.each(['short', NEW])(
    'cached bytes stay the new file’s, whatever happens to the history of the old one (%s)',
    async (text) => {
      const world = await backup(text);
      for (const { name, url } of world.service.childrenOf(MODEL_ROOT))
        if (name === 'f') world.service.resources.delete(url);
      world.contents.evict();
      expect(world.bytesOf(world.node('/f~'))).toBe(text);
    },
  );
});

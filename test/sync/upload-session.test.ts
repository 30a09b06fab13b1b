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
  ] as const)('one version comes of it: %s, then %s', async (type, next) => {
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
  ] as const)('a new small file is made once and filled: %s, then %s', async (type, next) => {
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
  });
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

  test('the file is deleted elsewhere: what was changed here is made anew', async () => {
    const worlds = await atEach(
      () => changed().world,
      (world, file) => world.service.resources.delete(file),
    );
    for (const world of worlds) expect(world.service.tree()).toEqual(new Map([['/f', NEW]]));
  });

  test.each(['small', NEW])('a new file (%s) is deleted elsewhere: it is made anew', async (text) => {
    const worlds = await atEach(
      () => made(text),
      (world, file) => world.service.resources.delete(file),
    );
    for (const world of worlds) expect(world.service.tree()).toEqual(new Map([['/f', text]]));
  });

  test('the file is saved elsewhere: both are kept, and one copy at most', async () => {
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
  test('416: our version is asked again after a pause, nothing is spliced', async () => {
    const { world, file } = changed();
    once(world, 'putVersionData', { type: 'refuse', status: 416 });
    await pass(world);

    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
    expect(world.service.requests.filter((request) => request.startsWith('createVersion'))).toHaveLength(1);
  });

  test('404 of the version: another one is made', async () => {
    const { world, file } = changed();
    once(world, 'putVersionData', { type: 'refuse', status: 404 });
    await pass(world);

    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
    expect(world.service.requests.filter((request) => request.startsWith('createVersion'))).toHaveLength(2);
  });

  test.each(['createVersion', 'versions'])(
    '404 of the file at %s: what was changed here is made anew',
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

  test('401 in the middle: goes on after somebody signed in', async () => {
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
  test('written during the upload: the frozen draft becomes a version, and what came after the next', async () => {
    const { world, file } = changed();
    await world.quiet();
    world.patch('/f', 0, 'X');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);

    expect(versionsOf(world, file)).toEqual([`X${NEW.slice(1)}`, NEW, OLD]);
  });

  test('deleted here during the upload: it goes to the trash, nothing comes back', async () => {
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

  test('a removal whose version arrives whole all the same stays a removal', async () => {
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

  test('a version that a removal ended is known as ours after a restart, and a new file of that name follows it', async () => {
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

  test('renamed during the upload: one file, with the new name', async () => {
    const { world, file } = changed();
    await world.quiet();
    world.rename('/f', '/g');
    world.service.auto = () => ({ type: 'answer' });
    world.service.settleAll({ type: 'answer' });
    await pass(world);

    expect(world.service.tree()).toEqual(new Map([['/g', NEW]]));
    expect(versionsOf(world, file)).toEqual([NEW, OLD]);
  });

  test('a draft over a version whose bytes are not here: they are fetched, then sent', async () => {
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

  test('the version it lies over is gone: parked as base-lost, nothing is made up', async () => {
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

  test('a lost answer of the plain PUT, and the file holds another length: a version of its own is made, and theirs is kept', async () => {
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

  test('made here, and filled elsewhere while the service was away: a version of its own is made, and theirs is kept', async () => {
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
  test('made here and confirmed, then saved elsewhere by a clock that was set back: theirs is seen, ours is a copy', async () => {
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

  test('made here, saved elsewhere with another length before anybody listed it: theirs is seen, and nothing is sent', async () => {
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

  test('made here, saved elsewhere with the same length before anybody listed it: theirs is seen', async () => {
    const world = made('ours');
    world.service.auto = () => ({ type: 'answer' });
    await pass(world);
    world.service.nowMs += LATER_MS;
    world.service.addVersion(world.node('/f').remote?.resource as ResourceUrl, Buffer.from('them'));

    world.learn();

    expect(world.bytesOf(world.node('/f'))).toBe('them');
    expect(world.sync.status().pending).toBe(0);
  });

  test('made here, saved elsewhere with the same length, changed here before anybody listed it: both are kept', async () => {
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

  test('theirs came after ours: it is taken over, and whoever made it makes the copy', async () => {
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

  test('deleted here while it was sent, and saved elsewhere since: it is theirs', async () => {
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

  test('ours has left the history before we looked: it is kept as a copy', async () => {
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
  ])('theirs was listed before ours was pushed (%s): both are kept all the same', async (_what, change) => {
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

  test('made here and elsewhere under one name: both are kept', async () => {
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

  test('a lost answer of the history makes no second copy', async () => {
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

  test.each(['short', NEW])('stay here: nothing is fetched to read them (%s)', async (text) => {
    const world = await backup(text);
    const { local, remote } = world.node('/f~');
    expect(local?.content).toBe(remote?.content);
    const bytes = world.contents.readAll(local?.content as ContentId, { start: 0, end: text.length });
    expect(Buffer.from(bytes ?? []).toString()).toBe(text);
  });

  test.each(['short', NEW])('are the new file’s, whatever becomes of the old one’s history (%s)', async (text) => {
    const world = await backup(text);
    for (const { name, url } of world.service.childrenOf(MODEL_ROOT))
      if (name === 'f') world.service.resources.delete(url);
    world.contents.evict();
    expect(world.bytesOf(world.node('/f~'))).toBe(text);
  });
});

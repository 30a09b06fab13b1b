import { constants } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { decodeValue, encodeValue } from '../../src/store/record-codec.ts';
import { encodeKey } from '../../src/store/row-key.ts';
import type { StoreWriter } from '../../src/store/tables.ts';
import { SETTLE_MS, SyncedSide } from '../harness/synced-side.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SyncWorld } from './sync-world.ts';

/** With one client there is nobody to be in conflict with: what it finds in a history is its own, however bytes wandered. */
let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build();
});
afterEach(() => world.close());

function names(): string[] {
  return world.service.childrenOf(MODEL_ROOT).map(({ name }) => name);
}

/** A change in place: what the file holds stays under it. */
async function patch(name: string, position: number, text: string): Promise<void> {
  const { mount } = world;
  const fd = await mount.open(name, constants.O_RDWR);
  await mount.write(fd, position, Buffer.from(text));
  await mount.close(fd);
}

/** Whatever would be waited for otherwise. */
async function pushNow(name: string): Promise<void> {
  const { ino } = await world.mount.stat(name);
  const pushed = world.sync.syncNow(undefined, ino as Inode);
  await world.pass(0);
  await pushed;
}

/** As a start does: what is known of a node is what its row says. */
function readAnew(store: StoreWriter): void {
  store.transact((tx) => {
    for (const [ino, node] of [...tx.all('node')]) {
      const key = encodeKey('node', ino);
      const read = decodeValue('node', ino, key, encodeValue('node', ino, key, node));
      if (read === undefined) throw new Error(`the row of ${ino} cannot be read`);
      tx.put('node', ino, read);
    }
  });
}

describe('one client alone makes no conflicted copy', () => {
  test('one client makes no conflicted copy when a pushed file replaces another and a new file takes its old name', async () => {
    const { mount } = world;
    await mount.writeFile('f', Buffer.from('first bytes of f'));
    await mount.writeFile('g', Buffer.from('first bytes of g'));
    await world.converge();

    await mount.rename('f', 'g');
    await world.pass(SETTLE_MS - 1);
    // Before f has gone from the service; the save of g goes first, with what f still holds there.
    await mount.writeFile('f', Buffer.from('a second f, longer'));
    await world.pass(1);
    await world.converge();

    expect(names().sort()).toEqual(['f', 'g']);
    expect((await mount.readFile('g')).toString()).toBe('first bytes of f');
  });

  const comings = ['changed', 'changed once it is back', 'as it was'].flatMap((how) =>
    ['', ', and its folder is listed', ', and the mount starts anew'].map((then) => [how, then] as const),
  );
  test.each(comings)(
    'one client makes no conflicted copy when a file is moved away, its name is saved and pushed, and the file comes back over it %s%s',
    async (how, then) => {
      const { mount } = world;
      await mount.writeFile('f', Buffer.from('first bytes of f'));
      await world.converge();
      await mount.writeFile('f', Buffer.from('second bytes of f'));
      await world.converge();
      const before = await mount.readFile('f');

      if (how === 'changed') await patch('f', 0, 'SECOND');
      await mount.rename('f', 'f.aside');
      await mount.writeFile('f', Buffer.from('what is there meanwhile'));
      await pushNow('f');
      await mount.rename('f.aside', 'f');
      if (how.endsWith('is back')) await patch('f', 0, 'SECOND');
      if (then.includes('listed')) await world.side.freshness.refresh();
      if (then.includes('starts')) readAnew(world.side.store);
      await world.converge();

      expect(names()).toEqual(['f']);
      const expected = how.startsWith('changed') ? 'SECOND bytes of f' : before.toString();
      expect((await mount.readFile('f')).toString()).toBe(expected);
      expect(world.service.bytesOf(world.service.childrenOf(MODEL_ROOT)[0]?.url as never)?.toString()).toBe(expected);
    },
  );

  const firsts = ['changed', 'as it was'].flatMap((how) =>
    ['', ', once the mount has started anew'].map((then) => [how, then] as const),
  );
  test.each(firsts)(
    'one client makes no conflicted copy when a file comes back over its replacement, %s, and is replaced again in transfer%s',
    async (how, then) => {
      for (const text of ['first bytes of f', 'second bytes of f']) {
        await world.mount.writeFile('f', Buffer.from(text));
        await world.converge();
      }
      await world.mount.readFile('f');
      if (how === 'changed') await patch('f', 0, 'SECOND');
      await world.mount.rename('f', 'f.aside');
      await world.mount.writeFile('f', Buffer.from('what is there meanwhile'));
      await pushNow('f');
      await world.mount.rename('f.aside', 'f');

      const { service } = world;
      service.auto = (name) => ({ type: name.startsWith('putVersion') ? 'lose-reply' : 'answer' });
      await world.pass(SETTLE_MS);
      await world.mount.writeFile('another', Buffer.from('what another one holds'));
      await world.mount.rename('another', 'f');
      if (then !== '') {
        await world.close('keep');
        world = await SyncedSide.build({ left: world });
      }
      service.auto = () => ({ type: 'answer' });
      await world.converge();

      expect([...service.tree()]).toEqual([['/f', 'what another one holds']]);
      const kept = service.childrenOf(MODEL_ROOT)[0]?.versions.map(({ bytes }) => bytes.toString());
      expect(kept?.slice(0, 3)).toEqual([
        'what another one holds',
        how === 'changed' ? 'SECOND bytes of f' : 'second bytes of f',
        'what is there meanwhile',
      ]);
    },
  );

  test('one client makes no conflicted copy when a file is renamed back over its replacement and an older descriptor writes to it', async () => {
    const { mount } = world;
    for (const text of ['first bytes of f', 'second bytes of f']) {
      await mount.writeFile('f', Buffer.from(text));
      await world.converge();
    }
    const fd = await mount.open('f', constants.O_RDWR);
    await mount.read(fd, 0, 6);
    await mount.rename('f', 'f.aside');
    await mount.writeFile('f', Buffer.from('what is there meanwhile'));
    await pushNow('f');
    await mount.rename('f.aside', 'f');
    await pushNow('f');
    await world.converge();
    await mount.write(fd, 0, Buffer.from('SECOND'));
    await mount.close(fd);
    await world.converge();

    expect([...world.service.tree()]).toEqual([['/f', 'SECOND bytes of f']]);
  });

  test.each([1, 2, 3, 4])(
    'one client makes no conflicted copy by random operations on a few names (SEED=%i)',
    async (seed) => {
      const random = new SeededRandom(seed);
      const { mount } = world;
      const pick = () => random.pick(['a', 'b', 'c']);
      for (let step = 0; step < 150; step++) {
        const [one, other] = [pick(), pick()];
        const act = random.below(7);
        const doing =
          act < 2
            ? mount.writeFile(one, Buffer.from(`${step} `.repeat(1 + random.below(9))))
            : act < 4
              ? mount.rename(one, other)
              : act < 6
                ? patch(one, random.below(9), `${step}`)
                : mount.unlink(one);
        await doing.catch((error: unknown) => expect(error).toMatchObject({ errno: 'ENOENT' }));
        await world.pass(random.pick([0, 0, 10, SETTLE_MS / 2, SETTLE_MS, 10 * SETTLE_MS]));
      }
      await world.converge();

      expect(names().filter((name) => name.includes('conflicted'))).toEqual([]);
      for (const { name, url } of world.service.childrenOf(MODEL_ROOT)) {
        expect((await mount.readFile(name)).toString()).toBe(world.service.bytesOf(url)?.toString());
      }
      expect(world.service.violations).toEqual([]);
    },
  );
});

test('one client makes no conflicted copy when a backup gets its name back while the deleted save in its place is being sent', async () => {
  const alone = new SyncWorld();
  const { service, clock } = alone;
  service.auto = () => ({ type: 'answer' });
  alone.write('/doc', 'the first version');
  await alone.settle();
  // The backup is open for writing: it is not pushed yet.
  alone.rename('/doc', '/doc~');
  const backup = alone.node('/doc~').ino;
  alone.beingWritten.add(backup);
  alone.write('/doc', 'the second one, sent');
  service.auto = null;
  const isSent = (): boolean => service.pending.some(({ name }) => name.startsWith('putVersion'));
  for (let round = 0; round < 20 && !isSent(); round++) {
    clock.advance(SETTLE_MS + 1);
    await alone.quiet();
    for (const request of service.pending.splice(0)) {
      if (request.name.startsWith('putVersion')) service.pending.push(request);
      else request.settle({ type: 'answer' });
    }
  }
  expect(isSent()).toBe(true);
  alone.remove('/doc');
  alone.rename('/doc~', '/doc');
  alone.beingWritten.delete(backup);
  service.auto = () => ({ type: 'answer' });
  service.settleAll({ type: 'answer' });
  await alone.settle();
  await alone.settle();

  expect([...service.tree()]).toEqual([['/doc', 'the first version']]);
});

import { expect, test } from 'vitest';
import { type Fate, MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/** [S-names-3] At each request of its push, and with a new process or the same one. */
test.each(['the same process', 'a new process'])(
  'a file that is renamed over a local-only one during its upload keeps its bytes as a draft and is deleted on the service (%s)',
  async (next) => {
    for (let stopAt = 0, stopped = true; stopped; stopAt++) {
      const world = new SyncWorld();
      world.write('/desktop.ini', 'old');
      world.write('/save', 'more than one request takes');
      world.clock.advance(SETTLE_MS + 1);
      let asked = 0;
      const answer = (): Fate => {
        if (++asked >= stopAt) world.service.auto = null;
        return { type: 'answer' };
      };
      if (stopAt > 0) world.service.auto = answer;
      await world.quiet();
      stopped = world.service.pending.length > 0;
      // What the service has acknowledged may be given up by the cache: that rename is EXDEV.
      if (!stopped) {
        expect(stopAt).toBeGreaterThan(2);
        await world.sync.stop();
        break;
      }
      world.rename('/save', '/desktop.ini');
      if (next === 'a new process') world.restart({ type: 'lose-reply' });
      else for (const request of world.service.pending.splice(0)) request.settle({ type: 'answer' });
      world.service.auto = null;
      await world.converge();

      const node = world.node('/desktop.ini');
      expect(node).toMatchObject({ localOnly: true, remote: null });
      const content = node.local?.content ?? null;
      if (content === null) throw new Error('a local file has bytes');
      expect(world.store.get('content', content)?.kind).toBe('draft');
      world.contents.evict();
      expect(world.bytesOf(node)).toBe('more than one request takes');
      expect(world.service.tree()).toEqual(new Map());
      await world.sync.stop();
    }
  },
);

/** [S-names-5] */
test('a file of the service whose name a local-only file has is shown with a number, and with its name once that is free', async () => {
  const world = new SyncWorld();
  world.write('/desktop.ini', 'ours');
  world.service.add('file', MODEL_ROOT, 'desktop.ini', Buffer.from('theirs'));
  world.learn();
  expect(Object.fromEntries(world.localTree())).toEqual({ '/desktop.ini': 'ours', '/desktop (2).ini': 'theirs' });
  world.remove('/desktop.ini');
  world.learn();
  expect(Object.fromEntries(world.localTree())).toEqual({ '/desktop.ini': 'theirs' });
  await world.sync.stop();
});

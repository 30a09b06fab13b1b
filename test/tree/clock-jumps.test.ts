import { expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Freshness } from '../../src/tree/freshness.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { file, LookedAtService, makeTree, namesIn, ROOT_URL } from './tree-fixture.ts';

/** The wall clock is set while the mount is there: by hand, by NTP, after a sleep. */
const DAY_MS = 24 * 3_600_000;
const JUMPS_MS = [-DAY_MS, -1_000, 1_000, DAY_MS];
const TTL_MS = 30_000;
const never = new AbortController().signal;

async function quiet(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

test.each(JUMPS_MS)('after a clock jump of %i ms a folder in use is refreshed as often as before', async (jumpMs) => {
  const { tree, fence, clock } = makeTree();
  const service = new LookedAtService();
  const options = { dirTtlMs: TTL_MS, openWaitMs: 500, readTimeoutMs: 30_000 };
  const freshness = new Freshness({
    ...{ tree, listing: service, fence, clock, log: silentLogger, options },
    health: new ServiceHealth({ clock }),
  });
  service.put(ROOT_URL, file('1', 'before'));
  await freshness.ensureListed(ROOT_INODE as Inode, never);
  // A refresh by hand has a moment of the wall clock, too.
  await freshness.refresh();
  clock.skewMs += jumpMs;
  service.put(ROOT_URL, file('2', 'after'));
  const before = service.requests.length;

  // Nobody looks: the kernel answers from what it remembers.
  for (let ttl = 0; ttl < 4; ttl++) {
    clock.advance(TTL_MS);
    await quiet();
  }
  expect(namesIn(tree, ROOT_INODE)).toContain('after');

  // A program lists the folder again and again.
  for (let look = 0; look < 50; look++) {
    freshness.isListed(ROOT_INODE);
    await quiet();
  }
  expect(service.requests.length - before).toBeLessThanOrEqual(6);
  freshness.stop();
});

test.each(JUMPS_MS)('saves around a jump of %i ms are versions in their order, and no conflict', async (jumpMs) => {
  const side = await SyncedSide.build();
  try {
    const { mount, clock, service } = side;
    await mount.readdir('.');
    await mount.writeFile('file', Buffer.from('first'));
    await side.converge();
    await mount.writeFile('file', Buffer.from('second'));
    clock.skewMs += jumpMs;
    await mount.writeFile('other', Buffer.from('made after it'));
    await side.converge();
    await mount.writeFile('file', Buffer.from('third'));
    await side.converge();
    clock.skewMs -= jumpMs;
    await mount.rename('other', 'renamed');
    await side.converge();

    expect([...service.tree()].sort()).toEqual([
      ['/file', 'third'],
      ['/renamed', 'made after it'],
    ]);
    expect((await mount.readFile('file')).toString()).toBe('third');
    expect(service.violations).toEqual([]);
  } finally {
    await side.close();
  }
});

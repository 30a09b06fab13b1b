import { describe, expect, test } from 'vitest';
import type { RemoteVersion } from '../../src/base/resources.ts';
import type { Inode, VersionUrl } from '../../src/base/vocabulary.ts';
import { judgeHistory } from '../../src/sync/conflict.ts';
import { PushQueue } from '../../src/sync/push-queue.ts';
import { VersionThrottle } from '../../src/sync/version-throttle.ts';
import { conflictMark, conflictName, conflictPrefix } from '../../src/tree/conflict-name.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

const nowMs = Date.UTC(2026, 10, 20);

describe('the name of a conflicted copy', () => {
  const name = (of: string, taken: readonly string[] = []): string =>
    conflictName(of, { nowMs, host: 'host', bytes: 'own', isTaken: (other) => taken.includes(other) });

  test.each([
    ['report.pdf', 'report (conflicted copy 2026-11-20 host).pdf'],
    ['Makefile', 'Makefile (conflicted copy 2026-11-20 host)'],
    ['.bashrc', '.bashrc (conflicted copy 2026-11-20 host)'],
    ['archive.tar.gz', 'archive.tar (conflicted copy 2026-11-20 host).gz'],
  ])('%s becomes %s', (of, expected) => expect(name(of)).toBe(expected));

  test('a conflicted copy has a number from the second one on', () => {
    expect(name('a.txt', ['a (conflicted copy 2026-11-20 host).txt'])).toBe(
      'a (conflicted copy 2026-11-20 host 2).txt',
    );
  });

  /** [S-conflict-1] */
  test.each([
    ['report.pdf', 'own'],
    ['archive.tar.gz', 'others'],
    ['Makefile', 'others'],
    ['.bashrc', 'own'],
    ['a (conflicted copy 2026-01-01 other).txt', 'others'],
  ] as const)('says whose bytes a copy of %s holds, and is read back with the name of its file', (of, bytes) => {
    const taken: string[] = [];
    for (let copies = 0; copies < 3; copies++) {
      const copy = conflictName(of, { nowMs, host: 'laptop-7', bytes, isTaken: (other) => taken.includes(other) });
      taken.push(copy);
      expect(copy.includes('not from laptop-7')).toBe(bytes === 'others');
      expect(copy.startsWith(conflictPrefix(of))).toBe(true);
      expect(conflictMark(copy)).toEqual({ original: of, day: '2026-11-20', host: 'laptop-7', bytes });
    }
  });

  test.each([
    'report.pdf',
    'a (conflicted copy)',
    '(conflicted copy 2026-11-20 host)',
    'a (conflicted copy x host).txt',
  ])('the name of a conflicted copy is not recognized in %s', (other) => expect(conflictMark(other)).toBeNull());

  test('the name of a conflicted copy fits into 255 bytes and is cut between characters', () => {
    const long = name(`${'ä'.repeat(125)}.txt`);
    expect(Buffer.byteLength(long)).toBeLessThanOrEqual(255);
    expect(long).toMatch(/^ä+ \(conflicted copy 2026-11-20 host\)\.txt$/u);
  });
});

describe('who wins by the history', () => {
  const version = (url: string, complete = true, sizeBytes = 3, lastModifiedMs: number | null = 1): RemoteVersion => ({
    url: url as VersionUrl,
    sizeBytes,
    complete,
    lastModifiedMs,
    mediaType: null,
  });
  const ours = 'ours' as VersionUrl;
  const base = { version: 'base' as VersionUrl, sizeBytes: 3, modified: { ms: 1, certainty: 'exact' } } as const;

  test.each([
    ['ours over its base', ['ours', 'base'], 'ours -'],
    ['ours over the first of theirs', ['ours', 'theirs', 'base'], 'ours theirs'],
    ['one copy only, of the newest', ['ours', 'newer', 'older', 'base'], 'ours newer'],
    ['ours pushed out', ['theirs', 'base'], 'theirs lost -'],
    ['ours over the first of theirs, and another over ours', ['last', 'ours', 'theirs', 'base'], 'theirs lost theirs'],
    ['ours over its base, and another over ours', ['last', 'ours', 'base'], 'theirs lost -'],
  ])('%s', (_what, history, expected) => {
    const verdict = judgeHistory(
      history.map((url) => version(url)),
      ours,
      base,
    );
    const said =
      verdict.type === 'ours'
        ? `ours ${verdict.under?.url ?? '-'}`
        : verdict.type === 'theirs'
          ? `theirs ${verdict.oursIsKept ? 'kept' : 'lost'} ${verdict.under?.url ?? '-'}`
          : 'unknown';
    expect(said).toBe(expected);
  });

  test.each([
    ['later', 8, 7, true],
    ['earlier: begun after ours, and complete before it', 6, 7, false],
    ['at the same moment', 7, 7, false],
    ['at a moment that nobody tells', null, 7, false],
    ['at some moment, ours at one that nobody tells', 7, null, false],
  ])(
    'the remote version above ours is complete %s, and decides who makes the copy',
    (_what, theirsMs, oursMs, oursIsKept) => {
      const history = [
        version('last', true, 3, 9),
        version('theirs', true, 3, theirsMs),
        version('ours', true, 3, oursMs),
      ];

      expect(judgeHistory(history, ours, base)).toMatchObject({ type: 'theirs', version: { url: 'last' }, oursIsKept });
    },
  );

  test('a version under upload does not count', () => {
    const history = [version('half', false), version('ours'), version('base')];
    expect(judgeHistory(history, ours, base)).toMatchObject({ type: 'ours', under: null });
  });

  test('a base without a URL is identified by the length and time of the listing', () => {
    const unnamed = { version: null, sizeBytes: 3, modified: null };
    expect(judgeHistory([version('ours'), version('x', true, 3)], ours, unnamed)).toMatchObject({ under: null });
    expect(judgeHistory([version('ours'), version('x', true, 4)], ours, unnamed)).toMatchObject({
      under: { url: 'x' },
    });
  });
});

describe('the queue of pushes', () => {
  const ino = (number: number): Inode => number as Inode;
  const take = (queue: PushQueue): Inode | undefined => {
    const next = queue.next();
    if (next !== undefined) queue.start(next);
    return next;
  };

  test('small pushes go first, but a large one does not wait behind them', () => {
    const queue = new PushQueue(4);
    queue.add(ino(1), 'large');
    queue.add(ino(2), 'large');
    for (let n = 10; n < 20; n++) queue.add(ino(n), 'small');

    expect([take(queue), take(queue), take(queue)]).toEqual([1, 10, 11]);
  });

  test('two small pushes share a place, and a large one needs a whole one', () => {
    const queue = new PushQueue(3);
    for (let n = 10; n < 20; n++) queue.add(ino(n), 'small');
    queue.add(ino(1), 'large');

    const taken = Array.from({ length: 6 }, () => take(queue));
    expect(taken).toEqual([1, 10, 11, 12, 13, undefined]);
    queue.ended('large');
    expect([take(queue), take(queue), take(queue)]).toEqual([14, 15, undefined]);
  });

  test('a push that is added again keeps its place, except in another lane', () => {
    const queue = new PushQueue(4);
    for (const n of [1, 2]) queue.add(ino(n), 'small');
    queue.add(ino(1), 'small');
    expect(queue.next()).toBe(1);
    queue.add(ino(1), 'large');
    expect([queue.start(ino(1)), queue.start(ino(2)), queue.size]).toEqual(['large', 'small', 0]);
  });

  test('large pushes never take every place', () => {
    const queue = new PushQueue(4);
    for (let n = 0; n < 10; n++) queue.add(ino(n), 'large');

    expect([take(queue), take(queue), take(queue)]).toEqual([0, 1, undefined]);
  });
});

test('40 saves in 20 minutes make at most 8 versions, and a sync request makes one immediately', async () => {
  const world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  const file = world.service.add('file', MODEL_ROOT, 'f', Buffer.from('before'));
  world.learn();
  const count = (): number => (world.service.resources.get(file)?.versions.length ?? 0) - 1;
  world.service.keptVersions = 100;
  for (let save = 0; save < 40; save++) {
    world.write('/f', `save ${save}`);
    for (let second = 0; second < 30; second++) {
      world.clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  await world.quiet();
  expect(count()).toBeLessThanOrEqual(8);
  expect(count()).toBeGreaterThan(3);

  world.write('/f', 'the last one');
  await world.sync.syncNow();
  expect(world.service.bytesOf(file)?.toString()).toBe('the last one');
});

test('the version throttle is as before after an hour without saves', () => {
  const clock = new ManualClock();
  const pace = new VersionThrottle(clock);
  for (let n = 0; n < 5; n++) pace.note(1 as Inode);
  expect(pace.notBeforeMs(1 as Inode)).toBeGreaterThan(clock.elapsedMs() + 100_000);

  clock.advance(3_600_001);

  expect(pace.notBeforeMs(1 as Inode)).toBe(0);
});

test('contents without references are removed once no push is running', async () => {
  const world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  world.write('/f', 'one');
  world.remove('/f');
  expect([...world.store.all('garbage')]).not.toEqual([]);

  world.clock.advance(SETTLE_MS);
  await world.quiet();

  expect([...world.store.all('garbage')]).toEqual([]);
});

test('without changes there are no timers', async () => {
  const world = new SyncWorld();
  world.service.auto = () => ({ type: 'answer' });
  world.write('/f', 'one');
  world.clock.advance(60_000);
  await world.quiet();
  world.clock.advance(60_000);
  await world.quiet();
  const asked = world.service.requests.length;
  world.clock.advance(86_400_000);
  await world.quiet();

  expect(world.service.requests).toHaveLength(asked);
});

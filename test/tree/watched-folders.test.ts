import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Freshness } from '../../src/tree/freshness.ts';
import { checkStore, type Fixture, folder, LookedAtService, makeTree, ROOT_URL } from './tree-fixture.ts';

/** The folders that programs watch by inotify(7): how long they are in use, and when watchers are looked for. */

const never = new AbortController().signal;

let fixture: Fixture;
let service: LookedAtService;
let freshness: Freshness;
let watchers: Inode[];
/** Of each look for watchers: when, and whether `d1` was in use then. */
let looks: { readonly atMs: number; readonly isInUse: boolean }[];
/** Ticks of the automatic refresh: each reads the open files. */
let ticks: number;

beforeEach(async () => {
  watchers = [];
  looks = [];
  ticks = 0;
  fixture = makeTree();
  service = new LookedAtService();
  const { tree, fence, clock } = fixture;
  freshness = new Freshness({
    ...{ tree, listing: service, fence, clock, log: silentLogger },
    health: new ServiceHealth({ clock }),
    openFiles: () => {
      ticks += 1;
      return [];
    },
    options: { dirTtlMs: 30_000, openWaitMs: 500, readTimeoutMs: 7_000 },
  });
  freshness.followWatched(async () => {
    looks.push({ atMs: clock.elapsedMs(), isInUse: freshness.isInUse(ino('d1')) });
    return watchers;
  });
  service.put(ROOT_URL, ...Array.from({ length: 20 }, (_, n) => folder(`d${n}`, `d${n}`)));
  await freshness.ensureListed(ROOT_INODE, never);
});

afterEach(() => {
  freshness.stop();
  checkStore(fixture.store);
});

const ino = (name: string) => fixture.tree.child(ROOT_INODE, name)?.ino as Inode;
/** Until everything in the background is done. */
const quiet = async () => {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
};
const minutes = async (count: number) => {
  for (let tick = 0; tick < count * 2; tick++) {
    fixture.clock.advance(30_000);
    await quiet();
  }
};
const requestsFor = (name: string) =>
  service.requests.filter((request) => request.startsWith(`list ${folder(name, name).url} `)).length;
/** Shortest time between two looks. */
const shortestMs = () => Math.min(...looks.slice(1).map(({ atMs }, n) => atMs - (looks[n]?.atMs ?? 0)));

/** [S-fresh-5] */
test('a watched folder stays in use after its last access, and is listed at most every two minutes', async () => {
  await freshness.ensureListed(ino('d1'), never);
  watchers = [ino('d1')];
  await minutes(20);
  const before = requestsFor('d1');
  for (let minute = 0; minute < 60; minute++) {
    await minutes(1);
    expect(freshness.isInUse(ino('d1'))).toBe(true);
  }
  expect(requestsFor('d1') - before).toBeGreaterThanOrEqual(28);
  expect(requestsFor('d1') - before).toBeLessThanOrEqual(31);
});

/** [S-fresh-5] */
test('a folder is let go within eight minutes after its watcher has ended, and then nothing is looked for', async () => {
  await freshness.ensureListed(ino('d1'), never);
  watchers = [ino('d1')];
  await minutes(20);
  watchers = [];
  await minutes(8);
  const before = [service.requests.length, looks.length, ticks];
  await minutes(60);
  expect(freshness.isInUse(ino('d1'))).toBe(false);
  expect([service.requests.length, looks.length, ticks]).toEqual(before);
});

test('a watched folder comes back after a walk through more folders than can be in use', async () => {
  await freshness.ensureListed(ino('d1'), never);
  watchers = [ino('d1')];
  for (let n = 2; n < 20; n++) await freshness.ensureListed(ino(`d${n}`), never);
  expect(freshness.isInUse(ino('d1'))).toBe(false);
  await minutes(1);
  expect(freshness.isInUse(ino('d1'))).toBe(true);
});

/** [S-fresh-5] */
test('watchers are looked for before their folder would be dropped, and at most every two minutes', async () => {
  await freshness.ensureListed(ino('d1'), never);
  watchers = [ino('d1')];
  await minutes(60);
  expect(looks.filter(({ isInUse }) => !isInUse)).toEqual([]);

  watchers = [];
  await minutes(8);
  for (let walk = 0; walk < 20; walk++) {
    for (let n = 0; n < 20; n++) await freshness.ensureListed(ino(`d${n}`), never);
    await minutes(0.5);
  }
  expect(shortestMs()).toBeGreaterThanOrEqual(2 * 60_000);
  expect(shortestMs()).toBeLessThanOrEqual(3 * 60_000);
});

test('no watcher is looked for while programs use every folder in use', async () => {
  for (let n = 0; n < 20; n++) await freshness.ensureListed(ino(`d${n}`), never);
  await minutes(8);
  await freshness.ensureListed(ino('d1'), never);
  const before = looks.length;
  for (let half = 0; half < 60; half++) {
    freshness.isListed(ino('d1'));
    await minutes(0.5);
  }
  expect(looks).toHaveLength(before);
});

test('a folder in use is refreshed although the watchers cannot be known', async () => {
  freshness.followWatched(() => Promise.reject(new Error('no /proc')));
  await freshness.ensureListed(ino('d1'), never);
  await minutes(3);
  const before = requestsFor('d1');
  await minutes(2);
  expect(requestsFor('d1') - before).toBeGreaterThanOrEqual(1);
});

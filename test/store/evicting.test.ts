import { closeSync, openSync, writeSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import type { ContentId, ResourceUrl } from '../../src/base/vocabulary.ts';
import type { EvictionBurst } from '../../src/bytes/cache-eviction.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { type ContentPlace, openPlace, referredVersion } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

/** Eviction on request, and what is reported of evictions. */

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const MIB = 1024 * 1024;
let place: ContentPlace;

afterEach(async () => {
  place.contents.close();
  await place.store.close();
});

/** What a fetch does: a large version goes into its file, a small one into the store. */
function fetched(sizeBytes: number, name: string): ContentId {
  const { contents } = place;
  const id = referredVersion(place, FILE, sizeBytes, name);
  const bytes = new Uint8Array(sizeBytes).fill(7);
  const path = contents.fetchPath(id);
  if (path !== null) {
    const fd = openSync(path, 'r+');
    writeSync(fd, bytes);
    closeSync(fd);
  }
  contents.landed(id, { start: 0, end: sizeBytes }, path === null ? bytes : null);
  return id;
}

function evict(id: ContentId): number | null {
  const steps = place.contents.evictVersion(id);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

const isHere = (id: ContentId): boolean =>
  place.contents.pieces(id, { start: 0, end: Number.MAX_SAFE_INTEGER }).every(({ kind }) => kind !== 'missing');

/** [S-evict-1] */
test.each([
  ['a large file', 5 * MIB + 1000],
  ['a small file', 100],
])('evicting %s removes its bytes, and says how many', async (_, sizeBytes) => {
  place = await openPlace(stores);
  const [gone, stays] = [fetched(sizeBytes, 'gone'), fetched(sizeBytes, 'stays')];
  expect(isHere(gone)).toBe(true);
  expect(evict(gone)).toBeGreaterThanOrEqual(sizeBytes);
  expect(isHere(gone)).toBe(false);
  expect(isHere(stays)).toBe(true);
  expect(evict(gone)).toBe(0);
});

/** [S-evict-2] */
test('a version that is pinned, open, or under a draft is not evicted, and neither is a draft', async () => {
  const kept = new Set<ContentId>();
  place = await openPlace(stores, {}, undefined, { isKept: (id) => kept.has(id) });
  const { store, contents } = place;
  const id = fetched(2 * MIB, 'needed');
  kept.add(id);
  expect(evict(id)).toBeNull();
  kept.clear();
  const lease = contents.lease(id);
  expect(evict(id)).toBeNull();
  lease.release();
  const draft = store.transact((tx) => contents.createDraft(tx, { content: id, sizeBytes: 2 * MIB }));
  expect(evict(id)).toBeNull();
  expect(evict(draft)).toBeNull();
  expect(isHere(id)).toBe(true);
});

/** [S-events-4] */
test('a burst of evictions is reported once, at its end, with its cause and its bytes', async () => {
  const bursts: EvictionBurst[] = [];
  const clock = new ManualClock();
  const onEviction = (burst: EvictionBurst): void => void bursts.push(burst);
  place = await openPlace(stores, { cacheBytes: 8 * MIB }, undefined, { clock, onEviction });
  const collect = (seconds: number): void => {
    for (let second = 0; second < seconds; second += 2) {
      place.contents.collect();
      clock.advance(2_000);
    }
  };
  for (let at = 0; at < 12; at++) {
    fetched(MIB, `${at}`);
    collect(10);
  }
  expect(bursts).toEqual([]);
  collect(60);

  expect(bursts).toHaveLength(1);
  expect(bursts[0]?.reason).toBe('cache-size');
  expect(bursts[0]?.bytes).toBeGreaterThanOrEqual(4 * MIB);
  expect(bursts[0]?.contents).toBeGreaterThanOrEqual(4);
  collect(60);
  expect(bursts).toHaveLength(1);
});

import { setMaxListeners } from 'node:events';
import { closeSync, existsSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { createLogger, silentLogger } from '../../src/base/log.ts';
import type { ContentId, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import { maintainContents } from '../../src/bytes/content-maintenance.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { countReference } from '../../src/store/node-table.ts';
import type { StoreWriter } from '../../src/store/tables.ts';
import { MemoryStore } from '../tree/memory-store.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { TemporaryStores } from './temporary-store.ts';

/** The row of one content is damaged: its own trouble, and the housekeeping of all others goes on. [S-damage-2] */

const stores = new TemporaryStores();
const KIB = 1024;
const SIZE = 256 * KIB;
const SMALL = 3 * KIB;
const ALL = { start: 0, end: Number.MAX_SAFE_INTEGER };
const never = new AbortController().signal;

class Place {
  readonly lines: string[] = [];
  readonly contents: ContentStore;
  readonly store: StoreWriter;
  readonly directory: string;

  constructor(store: StoreWriter, directory: string, cacheBytes = 1e12) {
    this.store = store;
    this.directory = directory;
    const log = createLogger({ level: 'warn', destination: { write: (line: string) => void this.lines.push(line) } });
    const options = { inlineMaxBytes: 4 * KIB, cacheBytes };
    this.contents = new ContentStore({ store, directory, clock: systemClock, log, options });
  }

  version(name: string, sizeBytes: number): ContentId {
    return this.store.transact((tx) => {
      const id = this.contents.versionContent(tx, `m:v/${name}` as VersionUrl, `m:f/${name}` as ResourceUrl, sizeBytes);
      countReference(tx, id, 1);
      return id;
    });
  }

  /** What a fetch does. @returns the file it wrote into; null for none */
  fetch(id: ContentId, sizeBytes: number): string | null {
    const bytes = new Uint8Array(sizeBytes).fill(id);
    const path = this.contents.fetchPath(id);
    if (path === null) {
      this.contents.landed(id, { start: 0, end: sizeBytes }, bytes);
      return null;
    }
    const fd = openSync(path, 'r+');
    writeSync(fd, bytes, 0, sizeBytes, 0);
    closeSync(fd);
    this.contents.landed(id, { start: 0, end: sizeBytes }, null);
    return path;
  }

  draft(sizeBytes: number, base: ContentId | null = null): ContentId {
    return this.store.transact((tx) => {
      const id = this.contents.createDraft(tx, base && { content: base, sizeBytes: this.contents.sizeOf(base) });
      this.contents.write(id, 0, new Uint8Array(sizeBytes).fill(7));
      this.contents.seal(tx, id);
      countReference(tx, id, 1);
      return id;
    });
  }

  adopt(id: ContentId): void {
    const [version, file] = [`m:v/${id}` as VersionUrl, `m:f/${id}` as ResourceUrl];
    this.store.transact((tx) => this.contents.adopt(tx, id, version, file));
  }

  leave(id: ContentId): void {
    this.store.transact((tx) => countReference(tx, id, -1));
  }

  isHere(id: ContentId): boolean {
    return this.contents.readAll(id, ALL) !== null;
  }

  told(message: string): number {
    return this.lines.filter((line) => line.includes(`"${message}"`)).length;
  }
}

const inMemory = (cacheBytes?: number) => {
  const store = new MemoryStore();
  return { store, place: new Place(store, stores.directory(), cacheBytes) };
};

test('the garbage of sound rows is collected, and a damaged row is reported once', () => {
  const { store, place } = inMemory();
  const ids = Array.from({ length: 450 }, () => place.draft(10));
  for (const id of ids) place.leave(id);
  const damaged = [0, 1, 199, 200, 449].map((at) => ids[at] as ContentId);
  for (const id of damaged) store.damage('content', id);

  while (place.contents.collect());
  for (let round = 0; round < 3; round++) place.contents.collect();

  expect([...store.all('garbage')].map(([id]) => id)).toEqual(damaged);
  const rest = ids.filter((id) => !damaged.includes(id));
  expect(rest.filter((id) => place.contents.record(id) !== undefined)).toEqual([]);
  expect(place.told('content not collected')).toBe(damaged.length);
  expect(place.told('contents not collected')).toBe(0);
  place.contents.close();
});

test('the cache stays within its budget although a garbage row is damaged', async () => {
  const { store, place } = inMemory(1024 * KIB);
  const ids = Array.from({ length: 12 }, (_, n) => place.version(`${n}`, SIZE));
  const left = place.draft(10);
  place.leave(left);
  store.damage('garbage', left);
  const stock = place.contents.takeStock(never); // until it is taken nothing is evicted
  for (const id of ids) place.fetch(id, SIZE);
  await stock;
  expect(place.contents.overBudgetBytes()).toBeGreaterThan(SIZE);

  place.contents.collect();

  expect(place.contents.overBudgetBytes()).toBeLessThanOrEqual(10); // the bytes of the draft
  place.contents.close();
});

test('one that is open for writing keeps none of the others from being collected, and its bytes from nobody', () => {
  const { store, place } = inMemory();
  const open = store.transact((tx) => {
    const id = place.contents.createDraft(tx, null);
    place.contents.write(id, 0, new Uint8Array(10).fill(7));
    place.contents.flush(tx, id);
    countReference(tx, id, 1);
    return id;
  });
  const left = place.draft(10);
  place.leave(left);
  store.damage('content', open);

  place.contents.collect();

  expect(place.contents.record(left)).toBeUndefined();
  expect(place.contents.readAll(open, ALL)).toEqual(new Uint8Array(10).fill(7));
  place.contents.close();
});

test('what lay over a damaged one is collected', () => {
  const { store, place } = inMemory();
  const base = place.version('base', SIZE);
  const ids = [place.draft(10, base), place.draft(10)];
  for (const id of ids) place.leave(id);
  store.damage('content', base);

  place.contents.collect();

  expect([...store.all('garbage')]).toEqual([]);
  for (const id of ids) expect(place.contents.record(id)).toBeUndefined();
  place.contents.close();
});

test.each([SMALL, SIZE])(
  'the others are settled (%i bytes), and the damaged one is told of once',
  async (sizeBytes) => {
    const { store, place } = inMemory();
    const ids = Array.from({ length: 4 }, () => place.draft(sizeBytes));
    for (const id of ids) place.adopt(id);
    store.damage('content', ids[0] as ContentId);

    for (let round = 0; round < 3; round++) await place.contents.mergeLayers(never);

    expect(ids.slice(1).map((id) => place.contents.record(id)?.extents)).toEqual([[], [], []]);
    expect(ids.slice(1).every((id) => place.isHere(id))).toBe(true);
    expect(place.told('layers not merged')).toBe(1);
    place.contents.close();
  },
);

test.each([SMALL, SIZE])(
  'what lies over a damaged one is settled (%i bytes): it is fetched again',
  async (sizeBytes) => {
    const { store, place } = inMemory();
    const base = place.version('base', sizeBytes);
    place.fetch(base, sizeBytes);
    const over = place.draft(10, base);
    place.adopt(over);
    store.damage('content', base);

    await place.contents.mergeLayers(never);

    expect(place.contents.record(over)).toMatchObject({ base: null, extents: [] });
    expect(place.isHere(over)).toBe(false);
    place.fetch(over, sizeBytes);
    expect(place.isHere(over)).toBe(true);
    place.leave(over);
    place.contents.collect();
    expect(place.contents.record(over)).toBeUndefined();
    place.contents.close();
  },
);

test.each([
  ['small', SMALL, 300],
  ['large', SIZE, 12],
])(
  'what is fetched lands while the cache is over its budget, and the others are evicted (%s)',
  (_, sizeBytes, count) => {
    const { store, place } = inMemory(1024 * KIB);
    const ids = Array.from({ length: count }, (_each, n) => place.version(`${n}`, sizeBytes));
    for (const id of ids.slice(0, 3)) place.fetch(id, sizeBytes);
    store.damage('content', ids[0] as ContentId); // the one used least recently: it is looked at first
    store.damage('content', ids[2] as ContentId);

    for (const id of ids.slice(3)) place.fetch(id, sizeBytes);
    for (let round = 0; round < 3; round++) place.contents.collect();

    expect(place.isHere(ids.at(-1) as ContentId)).toBe(true);
    expect(place.isHere(ids[1] as ContentId)).toBe(false);
    expect(place.contents.overBudgetBytes()).toBe(0);
    place.contents.close();
  },
);

test('stock is taken without the damaged ones, whose files stay', async () => {
  const directory = stores.directory();
  const before = await stores.open(directory);
  const first = new Place(before, directory);
  const drafts = Array.from({ length: 3 }, () => first.draft(SIZE));
  const ids = Array.from({ length: 400 }, (_, n) => first.version(n % 150 === 77 ? `garbled ${n}` : `${n}`, SIZE));
  const fetched = ids.slice(60, 100);
  const paths = new Map(fetched.map((id) => [id, first.fetch(id, SIZE) as string]));
  first.contents.close();
  await before.close();
  // Where the row of a content names its file: two of hundreds, each in another stretch of rows.
  const index = join(directory, 'index', 'data.mdb');
  const bytes = readFileSync(index);
  const text = 'm:f/garbled';
  for (let at = bytes.indexOf(text); at >= 0; at = bytes.indexOf(text, at)) bytes.write('mangled', at + 4);
  writeFileSync(index, bytes);

  const again = await stores.open(directory);
  const place = new Place(again, directory, 1024 * KIB);
  const damaged = ids.filter((_, n) => n % 150 === 77);
  for (const id of damaged) expect(() => again.get('content', id)).toThrow('damaged');
  expect(await place.contents.takeStock(never)).toBe(true);
  expect(place.contents.usage().draftBytes).toBe(drafts.length * SIZE);
  for (let round = 0; round < 10; round++) place.contents.collect();

  const kept = fetched.filter((id) => !damaged.includes(id) && place.isHere(id));
  expect(kept.length).toBeLessThanOrEqual(4);
  expect(existsSync(paths.get(damaged[0] as ContentId) as string)).toBe(true);
  place.contents.close();
  await again.close();
});

test('stock that could not be taken for a passing reason is taken later, and then things are evicted', async () => {
  const directory = stores.directory();
  const inner = new MemoryStore();
  const first = new Place(inner, directory);
  const ids = Array.from({ length: 12 }, (_, n) => first.version(`${n}`, SIZE));
  for (const id of ids) first.fetch(id, SIZE);
  first.contents.close();

  let failures = 3;
  const store = new Proxy<StoreWriter>(inner, {
    get(target, name: keyof StoreWriter) {
      if (name === 'all' && failures > 0) {
        return () => {
          failures -= 1;
          throw new Error('EIO');
        };
      }
      const value = target[name];
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  const place = new Place(store, directory, 1024 * KIB);
  const clock = new ManualClock();
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  const house = maintainContents(place.contents, { clock, log: silentLogger }, stop.signal);
  const evicted = () => ids.filter((id) => !place.isHere(id)).length;
  for (let second = 0; second < 600 && evicted() === 0; second++) {
    clock.advance(1_000);
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  }
  expect(evicted()).toBeGreaterThan(0);
  stop.abort();
  await house;
  place.contents.close();
});

test('stock that cannot be taken is tried again after a pause that grows, and the rest of the house is kept', async () => {
  const clock = new ManualClock();
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  const triedMs: number[] = [];
  let collected = 0;
  const contents = {
    takeStock: async () => {
      triedMs.push(clock.elapsedMs());
      return triedMs.length === 8;
    },
    collect: () => {
      collected += 1;
      return false;
    },
    mergeLayers: async () => {},
    isUnsettled: () => false,
  };
  const house = maintainContents(contents, { clock, log: silentLogger }, stop.signal);
  for (let second = 0; second < 3 * 3600; second += 2) {
    clock.advance(2_000);
    for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setImmediate(resolve));
  }
  stop.abort();
  await house;

  const pauses = triedMs.slice(1).map((ms, at) => ms - (triedMs[at] as number));
  // At least half of each limit, at most the limit and one step of the clock.
  for (const [at, limit] of [1, 2, 4, 8, 16, 32, 60].entries()) {
    expect(pauses[at]).toBeGreaterThanOrEqual(limit * 5_000);
    expect(pauses[at]).toBeLessThanOrEqual(limit * 10_000 + 2_000);
  }
  expect(collected).toBeGreaterThan(1_700);
});

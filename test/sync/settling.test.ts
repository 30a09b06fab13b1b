import { expect, test } from 'vitest';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { newInode, writeNode } from '../../src/store/node-table.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

const SECOND_MS = 1_000;

/** A first version of `/f` whose PUT takes so long. */
async function uploaded(world: SyncWorld, tookMs: number): Promise<void> {
  world.write('/f', 'one');
  world.clock.advance(SETTLE_MS + 1);
  for (let round = 0; round < 20; round++) {
    await world.quiet();
    if (world.service.pending.some(({ name }) => name.startsWith('putFileData'))) break;
    world.service.settleAll({ type: 'answer' });
  }
  expect(world.service.pending).toHaveLength(1);
  world.clock.advance(tookMs);
  await world.converge();
}

/** How long after a save the first request of its push is sent, to a second. */
async function secondsUntilPushed(world: SyncWorld, text: string): Promise<number> {
  const before = world.service.requests.length;
  world.write('/f', text);
  for (let second = 0; second < 400; second++) {
    await world.quiet();
    if (world.service.requests.length > before) return second;
    world.clock.advance(SECOND_MS);
  }
  throw new Error('never pushed');
}

test('after a long upload, the next save of the file settles for as long', async () => {
  const world = new SyncWorld();
  await uploaded(world, 30 * SECOND_MS);

  expect(await secondsUntilPushed(world, 'two')).toBeGreaterThanOrEqual(30);
});

test('a file that is saved repeatedly in its settle delay is sent once', async () => {
  const world = new SyncWorld();
  await uploaded(world, 30 * SECOND_MS);
  const before = world.service.requests.length;

  for (let save = 0; save < 10; save++) {
    world.write('/f', `draft ${save}`);
    world.clock.advance(25 * SECOND_MS);
    await world.quiet();
  }

  expect(world.service.requests.slice(before)).toEqual([]);
  await world.converge();
  expect([...world.service.tree().values()]).toEqual(['draft 9']);
});

test('a file settles for at most a minute, whatever the duration of its upload', async () => {
  const world = new SyncWorld();
  await uploaded(world, 3_600 * SECOND_MS);

  const seconds = await secondsUntilPushed(world, 'two');

  expect(seconds).toBeGreaterThanOrEqual(60);
  expect(seconds).toBeLessThanOrEqual(62);
});

test('a fast upload does not change the settle delay', async () => {
  const world = new SyncWorld();
  await uploaded(world, 100);

  expect(await secondsUntilPushed(world, 'two')).toBeLessThanOrEqual(SETTLE_MS / SECOND_MS + 1);
});

/** A folder of files that the service has. */
async function withFolder(world: SyncWorld, files: number): Promise<void> {
  world.mkdir('/d');
  for (let at = 0; at < files; at++) world.write(`/d/${at}`, 'x');
  await world.converge();
}

/** What is removed on the service, resource by resource. */
const removals = (world: SyncWorld, before: number): readonly string[] =>
  world.service.requests.slice(before).filter((request) => /trash|delete/i.test(request));

test('a folder that is emptied for longer than the settle delay is moved to the trash in one piece', async () => {
  const world = new SyncWorld();
  await withFolder(world, 10);
  const before = world.service.requests.length;

  for (let at = 0; at < 10; at++) {
    world.remove(`/d/${at}`);
    world.clock.advance(SECOND_MS);
    await world.quiet();
  }
  expect(world.service.requests.slice(before)).toEqual([]);
  world.remove('/d');
  await world.converge();

  expect(removals(world, before)).toHaveLength(1);
  expect([...world.service.tree().keys()]).toEqual([]);
});

test('removals from a folder that goes on losing entries are pushed a minute after the first', async () => {
  const world = new SyncWorld();
  await withFolder(world, 100);
  const before = world.service.requests.length;

  let seconds = 0;
  for (; world.service.requests.length === before && seconds < 100; seconds++) {
    world.remove(`/d/${seconds}`);
    world.clock.advance(SECOND_MS);
    await world.quiet();
  }

  expect(seconds).toBeGreaterThanOrEqual(60);
  expect(seconds).toBeLessThanOrEqual(64);
});

test('a removal does not wait for removals from other folders, nor for other changes of its own', async () => {
  const world = new SyncWorld();
  await withFolder(world, 2);
  for (let at = 0; at < 10; at++) world.write(`/${at}`, 'x');
  await world.converge();
  const before = world.service.requests.length;

  world.remove('/d/0');
  for (let second = 0; second < SETTLE_MS / SECOND_MS; second++) {
    world.clock.advance(SECOND_MS);
    world.remove(`/${second}`);
    world.write('/d/1', `text ${second}`);
    await world.quiet();
  }

  expect(world.service.requests.length).toBeGreaterThan(before);
});

test('a sync pushes removals without waiting for further ones', async () => {
  const world = new SyncWorld();
  await withFolder(world, 3);
  const before = world.service.requests.length;
  world.remove('/d/0');

  const synced = world.sync.syncNow();
  await world.quiet();

  expect(world.service.requests.length).toBeGreaterThan(before);
  await world.converge();
  await synced;
});

/** Counts the reads of rows of table `dirty` by turns of the event loop. */
class ReadsOfTurns {
  readonly turns = [0];
  readonly #world: SyncWorld;
  readonly #get: SyncWorld['store']['get'];
  #isCounting = false;

  constructor(world: SyncWorld) {
    this.#world = world;
    this.#get = world.store.get.bind(world.store);
  }

  begin(): void {
    this.#isCounting = true;
    this.#world.store.get = (table, key) => {
      if (table === 'dirty') this.turns.push((this.turns.pop() ?? 0) + 1);
      return this.#get(table, key);
    };
    const turn = (): void => {
      this.turns.push(0);
      if (this.#isCounting) setImmediate(turn);
    };
    setImmediate(turn);
  }

  end(): void {
    this.#isCounting = false;
    this.#world.store.get = this.#get;
  }
}

test('removals that have not settled are not read by the sync', async () => {
  const world = new SyncWorld();
  await withFolder(world, 40);
  const reads = new ReadsOfTurns(world);
  for (let at = 0; at < 40; at++) {
    world.remove(`/d/${at}`);
    reads.begin();
    world.clock.advance(SECOND_MS);
    await world.quiet();
    reads.end();
  }

  expect(Math.max(...reads.turns)).toBe(0);
});

test('a turn of the sync reads a bounded number of removed nodes', async () => {
  const REMOVED = 3_000;
  const world = new SyncWorld();
  await withFolder(world, 0);
  const { store, clock } = world;
  const parent = store.get('name', [ROOT_INODE, 'd']) as Inode;
  const remote = { parent, sizeBytes: 1, modified: null, mediaType: null, content: null, createdHereMs: null };
  for (let at = 0; at < REMOVED; at++) {
    const named = { resource: `m:file/x${at}` as ResourceUrl, name: `x${at}`, shownAs: `x${at}` };
    const ino = store.transact((tx) => {
      const ino = newInode(tx);
      const tombstone = { ino, kind: 'file', localOnly: false, local: null, remote: { ...remote, ...named } } as const;
      writeNode(tx, undefined, tombstone, clock.nowMs());
      return ino;
    });
    world.sync.changed(ino);
  }
  const reads = new ReadsOfTurns(world);
  reads.begin();
  clock.advance(SETTLE_MS + 1);
  while (reads.turns.length < 100) await world.quiet();
  reads.end();

  expect(reads.turns.reduce((sum, each) => sum + each)).toBeGreaterThan(REMOVED);
  expect(Math.max(...reads.turns)).toBeLessThan(REMOVED / 2);
});

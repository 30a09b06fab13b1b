import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

const FILES = 5_000;
/** Records that a turn of the loop may read: it decides about some hundreds of nodes, and looks at a few records for each. */
const READS_MAX = 8_000;
const SHIFTED = 1_000;
/** A hundred for each file: it is looked at a few times in a turn at most. */
const SHIFTED_READS_MAX = 100 * SHIFTED;
/** As many as a quota may refuse at once: each has a version that its bytes are to go on into. */
const PARKED = 500;

test('no turn of the loop visits a whole folder of thousands that was made and deleted before its turn', async () => {
  const world = new SyncWorld();
  world.mkdir('/d');
  await world.settle();
  let reads = 0;
  const read = world.store.get.bind(world.store);
  world.store.get = (table, key) => {
    reads += 1;
    return read(table, key);
  };
  for (let n = 0; n < FILES; n++) world.write(`/d/f${n}`, 'text');
  world.clock.advance(SETTLE_MS + 1);
  const turns: number[] = [];
  const watched = async (): Promise<void> => {
    for (let turn = 0; turn < 200; turn++) {
      reads = 0;
      await nextTurn();
      turns.push(reads);
    }
  };
  await watched();
  expect(world.service.pending.length).toBeGreaterThan(0);
  for (let n = 0; n < FILES; n++) world.remove(`/d/f${n}`);
  world.sync.status(); // looks at all that changed
  await watched();
  turns.length = 0;

  world.service.settleAll({ type: 'answer' });
  await watched();

  expect(Math.max(...turns)).toBeGreaterThan(0);
  expect(Math.max(...turns)).toBeLessThan(READS_MAX);
  await world.converge();
  expect([...world.service.tree().keys()]).toEqual(['/d']);
  expect(world.sync.status().pending).toBe(0);
});

test('parked pushes with open intents are not visited in each turn, whatever their number', async () => {
  const world = new SyncWorld();
  const { service, store, sync } = world;
  service.auto = (name) => (name.startsWith('putVersionData') ? { type: 'refuse', status: 413 } : { type: 'answer' });
  for (let n = 0; n < PARKED; n++) world.write(`/f${n}`, 'longer than one request');
  await world.settle();
  expect(sync.status().parked).toHaveLength(PARKED);
  expect([...store.all('intent')]).toHaveLength(PARKED);
  let reads = 0;
  const read = store.get.bind(store);
  store.get = (table, key) => {
    reads += 1;
    return read(table, key);
  };
  world.write('/new', 'text');
  sync.status(); // looks at all that changed
  world.clock.advance(SETTLE_MS + 1);
  const turns: number[] = [];
  for (let turn = 0; turn < 200; turn++) {
    reads = 0;
    await nextTurn();
    turns.push(reads);
  }
  expect(service.tree().get('/new')).toBe('text');
  expect(Math.max(...turns)).toBeLessThan(PARKED);
});

test('each file of a long rename chain is visited once, and so is a cycle of names', async () => {
  const world = new SyncWorld();
  const { service, store } = world;
  for (let n = 0; n < SHIFTED; n++) service.add('file', MODEL_ROOT, `f${n}`, Buffer.from(`bytes ${n}`));
  world.learn();
  for (let n = SHIFTED - 1; n >= 0; n--) world.rename(`/f${n}`, `/f${n + 1}`);
  let reads = 0;
  const read = store.get.bind(store);
  store.get = (table, key) => {
    reads += 1;
    return read(table, key);
  };
  const turns: number[] = [];
  const watched = async (): Promise<void> => {
    world.clock.advance(SETTLE_MS + 1);
    for (let turn = 0; turn < 50; turn++) {
      reads = 0;
      await nextTurn();
      turns.push(reads);
    }
  };
  await watched();
  expect(service.pending.map(({ name }) => name.split(' ').at(-1))).toEqual([`f${SHIFTED}`]);
  world.rename(`/f${SHIFTED}`, '/f0'); // by now all wait for each other
  service.settleAll({ type: 'lose-request' });
  await watched();

  expect(Math.max(...turns)).toBeLessThan(SHIFTED_READS_MAX);
  await world.converge(3 * SHIFTED);
  expect(world.service.tree()).toEqual(world.localTree());
  expect(service.violations).toEqual([]);
});

test('a sync request for a long wait chain ends after one visit of each node when the first one is parked', async () => {
  const world = new SyncWorld();
  const { service, store, sync } = world;
  for (let n = 0; n < SHIFTED; n++) service.add('file', MODEL_ROOT, `f${n}`, Buffer.from(`bytes ${n}`));
  world.learn();
  for (let n = SHIFTED - 1; n >= 0; n--) world.rename(`/f${n}`, `/f${n + 1}`);
  service.auto = () => ({ type: 'refuse', status: 400 });
  let reads = 0;
  const read = store.get.bind(store);
  store.get = (table, key) => {
    reads += 1;
    return read(table, key);
  };
  const waiting = sync.syncNow(AbortSignal.timeout(10_000));
  const turns: number[] = [];
  for (let turn = 0; turn < 100; turn++) {
    reads = 0;
    await nextTurn();
    turns.push(reads);
  }

  expect((await waiting).parked).toHaveLength(SHIFTED);
  expect(Math.max(...turns)).toBeLessThan(SHIFTED_READS_MAX);
});

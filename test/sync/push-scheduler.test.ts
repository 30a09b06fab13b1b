import { beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Intents } from '../../src/store/intents.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { DirtyIndex } from '../../src/sync/dirty-index.ts';
import type { Push } from '../../src/sync/push.ts';
import { PushScheduler } from '../../src/sync/push-scheduler.ts';
import { ListingFence } from '../../src/tree/listing-fence.ts';
import { Names } from '../../src/tree/names.ts';
import { NodeChanges } from '../../src/tree/node-changes.ts';
import { Tree } from '../../src/tree/tree.ts';
import { MemoryStore } from '../tree/memory-store.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { MemoryContents } from './memory-contents.ts';

/** The scheduler by itself: no service, and nobody who pushes but the test. */

const SETTLE_MS = 2_000;
const url = (name: string): ResourceUrl => `http://127.0.0.1/${name}` as ResourceUrl;

let clock: ManualClock;
let store: MemoryStore;
let tree: Tree;
let scheduler: PushScheduler;
let health: { retryAtMs: number; isProbing: boolean };
let pushing: Set<Inode>;
/** How often a turn was asked for. */
let asked: number;

beforeEach(() => {
  clock = new ManualClock();
  store = new MemoryStore();
  health = { retryAtMs: 0, isProbing: false };
  pushing = new Set();
  asked = 0;
  Tree.createRoot(store, clock, { resource: url('root'), uid: 1, gid: 1 });
  const names = new Names();
  const intents = new Intents(store);
  const fence = new ListingFence({ store, intents });
  const index = new DirtyIndex(store, intents);
  const contents = new MemoryContents(store);
  const options = { saveWindowMs: 60_000, settleMs: SETTLE_MS };
  const changes = new NodeChanges();
  tree = new Tree({ store, contents, names, intents, fence, clock, changes, log: silentLogger, options });
  scheduler = new PushScheduler({
    store,
    names,
    index,
    intents,
    vacated: tree.vacated,
    health,
    isPaused: () => false,
    pusherOf: (ino) => (pushing.has(ino) ? ino : null),
    requests: [],
    isOpen: () => false,
    isBeingWritten: () => false,
    clock,
    log: silentLogger,
    options: { ...options, transfers: 4, deletion: 'trash', plainPutMaxBytes: 8, host: 'host' },
    onUndecided: (_ino, error) => {
      throw error;
    },
    onVoid: () => {},
    onWork: () => {
      asked += 1;
    },
  });
  changes.on('local', (ino) => scheduler.changed(ino));
});

function make(name: string, kind: 'file' | 'folder' = 'folder', parent: Inode = ROOT_INODE): Inode {
  return tree.create(parent, name, { kind, mode: 0o755, uid: 1, gid: 1 }).ino;
}

/** One turn. @returns what is being pushed from now on */
function turn(): Push[] {
  const begun: Push[] = [];
  for (const push of scheduler.turn()) {
    pushing.add(push.action.ino);
    begun.push(push);
  }
  return begun;
}

const inosOf = (pushes: readonly Push[]): Inode[] => pushes.map(({ action }) => action.ino);

/** The service has the node as it is here now. */
function acknowledge(push: Push): void {
  const { ino } = push.action;
  store.transact((tx) => {
    const node = tx.get('node', ino);
    if (node?.local == null) throw new Error('not there');
    const { parent, name, content, sizeBytes } = node.local;
    const unknown = { modified: null, mediaType: null, createdHereMs: null };
    const remote = { resource: url(String(ino)), parent, name, shownAs: name, content, sizeBytes, ...unknown };
    writeNode(tx, node, { ...node, remote }, clock.nowMs());
  });
  scheduler.succeeded(push, 'done');
  over(push);
}

function over(push: Push): void {
  pushing.delete(push.action.ino);
  scheduler.ended(push, push.action.ino);
}

test('a changed node is ready once, at the end of its settle delay', () => {
  const ino = make('a');
  clock.advance(SETTLE_MS - 1);
  expect(turn()).toEqual([]);
  expect([scheduler.rest(), asked]).toEqual([true, 0]);

  clock.advance(1);

  expect(asked).toBe(1);
  const begun = turn();
  expect(begun.map(({ action }) => action)).toEqual([{ type: 'create-folder', ino, parent: ROOT_INODE, name: 'a' }]);
  expect([turn(), scheduler.rest()]).toEqual([[], false]);
});

test.each(['', ', and its record is read anew'])('a push without an effect is repeated only after a pause%s', (how) => {
  make('a');
  clock.advance(SETTLE_MS);
  for (const made of turn()) acknowledge(made);
  tree.rename(ROOT_INODE, 'a', ROOT_INODE, 'b', 'replace');
  clock.advance(SETTLE_MS);
  if (how !== '') store.forget();
  const [push] = turn();
  if (push === undefined) throw new Error('nothing is pushed');
  scheduler.succeeded(push, 'done');
  over(push);

  expect(turn()).toEqual([]);
  clock.advance(10_000);
  expect(turn()).toHaveLength(1);
});

test('a new change restarts the settle delay', () => {
  const ino = make('a');
  clock.advance(SETTLE_MS - 1);
  tree.change(ino, { mode: 0o700 });
  scheduler.changed(ino);
  clock.advance(SETTLE_MS - 1);
  expect(turn()).toEqual([]);

  clock.advance(1);

  expect(inosOf(turn())).toEqual([ino]);
});

test('a node in a new folder is pushed after the folder, and no node stays dirty', () => {
  const folder = make('folder');
  const file = make('file', 'file', folder);
  clock.advance(SETTLE_MS);
  const [first, ...others] = turn();
  expect([first?.action.ino, others]).toEqual([folder, []]);

  if (first !== undefined) acknowledge(first);
  const second = turn();
  expect(inosOf(second)).toEqual([file]);
  for (const push of second) acknowledge(push);

  expect(turn()).toEqual([]);
  scheduler.rest(); // looks once after what changed without a word
  expect([turn(), scheduler.rest(), [...scheduler.dirty()]]).toEqual([[], true, []]);
});

test('a push that starts affects the later decisions of the same turn', () => {
  const [a, b] = [make('a'), make('b')];
  clock.advance(SETTLE_MS);
  for (const push of turn()) acknowledge(push);
  const c = make('c', 'folder', a);
  clock.advance(SETTLE_MS);
  for (const push of turn()) acknowledge(push);
  // Each of the three moves is possible now. But once `b` is in `a/c`, the service cannot put `a` into it.
  tree.rename(a, 'c', ROOT_INODE, 'c', 'replace');
  tree.rename(ROOT_INODE, 'b', c, 'b', 'replace');
  tree.rename(ROOT_INODE, 'a', b, 'a', 'replace');
  clock.advance(SETTLE_MS);

  const begun = inosOf(turn());
  expect(begun).toContain(c);
  expect(begun.filter((ino) => ino === a || ino === b)).toHaveLength(1);
});

test('a queued node keeps its place, and is planned when its place comes', () => {
  health.retryAtMs = clock.elapsedMs() + 60_000;
  const inos = [make('a'), make('b'), make('c')];
  clock.advance(SETTLE_MS);
  expect(turn()).toEqual([]);
  scheduler.reconsider(inos[0] as Inode);
  tree.remove(ROOT_INODE, 'b', 'folder');
  clock.advance(60_000);

  expect(inosOf(turn())).toEqual([inos[0], inos[2]]);
});

test('no push is ready before the retry time, and a turn is requested for that time', () => {
  const ino = make('a');
  clock.advance(SETTLE_MS);
  health.retryAtMs = clock.elapsedMs() + 5_000;
  expect(turn()).toEqual([]);
  expect(scheduler.rest()).toBe(false);
  asked = 0;

  clock.advance(5_000);

  expect(asked).toBe(1);
  expect(inosOf(turn())).toEqual([ino]);
});

test('a retry time that passes between two readings of the clock still starts a turn', () => {
  const ino = make('a');
  clock.advance(SETTLE_MS);
  health.retryAtMs = clock.elapsedMs() + 1;
  expect(turn()).toEqual([]);
  clock.advance(1);
  asked = 0;

  expect(scheduler.rest()).toBe(false);
  clock.advance(0);

  expect(asked).toBe(1);
  expect(inosOf(turn())).toEqual([ino]);
});

test('during a probe of the service one push at a time is ready', () => {
  const inos = [make('a'), make('b'), make('c')];
  clock.advance(SETTLE_MS);
  health.isProbing = true;
  const [probe, ...others] = turn();
  expect(others).toEqual([]);

  health.isProbing = false;
  if (probe !== undefined) acknowledge(probe);

  expect(inosOf(turn())).toEqual(inos.filter((ino) => ino !== probe?.action.ino));
});

test('a failed push is ready again after a growing pause, or immediately if a sync request names it', () => {
  const ino = make('a');
  clock.advance(SETTLE_MS);
  const pauses: number[] = [];
  for (let attempt = 1; attempt <= 3; attempt++) {
    const [push] = turn();
    if (push === undefined) throw new Error('not ready');
    scheduler.failed(ino, null);
    over(push);
    expect([turn(), scheduler.rest(), scheduler.failuresOf(ino)]).toEqual([[], expect.anything(), attempt]);
    pauses.push(scheduler.dueMs(ino) - clock.elapsedMs());
    if (attempt < 3) clock.advance(scheduler.dueMs(ino) - clock.elapsedMs());
  }

  expect(pauses[0]).toBeGreaterThan(0);
  expect(pauses).toEqual([...pauses].sort((a, b) => a - b));
  expect(new Set(pauses).size).toBe(3);
  scheduler.reconsider(ino);
  expect(inosOf(turn())).toEqual([ino]);
});

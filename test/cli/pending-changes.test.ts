import { beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { LISTED_MAX } from '../../src/control/status-model.ts';
import { pendingChanges, unsyncedFiles } from '../../src/mount/pending-changes.ts';
import { writeNode } from '../../src/store/node-table.ts';
import type { StoreReader } from '../../src/store/tables.ts';
import { SyncReporter } from '../../src/sync/sync-reporter.ts';
import { sampleLocal, sampleNode, sampleRemote } from '../store/sample-records.ts';
import { TemporaryStores } from '../store/temporary-store.ts';
import { MemoryStore } from '../tree/memory-store.ts';

const stores = new TemporaryStores();
const COUNT = 2 * LISTED_MAX + 500;

let memory: MemoryStore;
let made: Inode[];

beforeEach(() => {
  memory = new MemoryStore();
  made = fill(memory);
});

/** Every third of them new here, the others deleted. @returns the new ones */
function fill(store: { transact: MemoryStore['transact'] }): Inode[] {
  return store.transact((tx) => {
    const inos: Inode[] = [];
    for (let n = 0; n < COUNT; n++) {
      const ino = tx.nextId('inode') as Inode;
      const node = { ...sampleNode(ino), local: sampleLocal(ROOT_INODE, `f${ino}`, { content: null, sizeBytes: 5 }) };
      const isNew = n % 3 === 0;
      writeNode(tx, undefined, isNew ? node : { ...node, local: null, remote: sampleRemote(ROOT_INODE, `f${ino}`) }, 0);
      tx.put('dirty', ino, { sinceMs: 0, parked: n === 0 ? { reason: 'quota', detail: 'full', atMs: 1 } : null });
      if (isNew) inos.push(ino);
    }
    return inos;
  });
}

const reporterOf = (store: MemoryStore) =>
  new SyncReporter({
    ...{ store, clock: systemClock, pushing: new Set<Inode>() },
    scheduler: { dirty: () => store.all('dirty'), dueMs: () => 0, failuresOf: () => 0, postponed: 0 },
  });

test('counting any number of pending changes does not block the event loop', async () => {
  let turns = 0;
  let isCounted = false;
  const others = () => {
    turns++;
    if (!isCounted) setImmediate(others);
  };
  setImmediate(others);
  const { pending, parked } = await pendingChanges(memory, reporterOf(memory).changes());
  isCounted = true;

  expect(pending.count).toBe(COUNT - 1);
  expect(pending.changes).toHaveLength(LISTED_MAX);
  expect(parked.map(({ reason }) => reason)).toEqual(['quota']);
  expect(turns).toBeGreaterThanOrEqual(Math.floor(COUNT / 500));
});

test.each(['in memory', 'on the disk'])(
  'each file that is only here is in one page, and no page looks at more than it may list (%s)',
  async (where) => {
    const store = where === 'in memory' ? memory : await stores.open();
    if (store !== memory) made = fill(store);
    let looked = 0;
    const counting: StoreReader = {
      get: (table, key) => store.get(table, key),
      scan: (table, first, after) => store.scan(table, first, after),
      *all(table, after) {
        for (const row of store.all(table, after)) {
          looked++;
          yield row;
        }
      },
    };
    const found: number[] = [];
    for (let after: number | null = 0; after !== null; ) {
      looked = 0;
      const page: ReturnType<typeof unsyncedFiles> = unsyncedFiles(counting, after);
      found.push(...page.files.map(({ ino }) => ino));
      expect(looked).toBeLessThanOrEqual(LISTED_MAX + 1);
      after = page.next;
    }

    expect(found).toEqual(made);
  },
);

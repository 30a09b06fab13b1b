import { readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { Disk } from '../../src/store/disk.ts';
import { Journal } from '../../src/store/journal.ts';
import { TemporaryStores } from './temporary-store.ts';
import { WatchedSyncs } from './watched-syncs.ts';

// A successor of a killed process starts while programs wait for it (`--continuity`).

const stores = new TemporaryStores();
const SEGMENT_BYTES = 1024 * 1024;
/** Of a process that is being killed: any but 0. */
const PREDECESSOR = 4242;

/** A device that does not answer until `letThrough`. */
function slowDevice(): { readonly watched: WatchedSyncs; readonly disk: Disk } {
  const watched = new WatchedSyncs();
  watched.isHeld = () => true;
  return { watched, disk: { ...watched.disk, allocate: () => new Promise(() => {}) } };
}

async function open(directory: string, isUrgent: boolean, disk: Disk, replayed: string[] = []): Promise<Journal> {
  const options = { directory, segmentBytes: SEGMENT_BYTES, disk, log: silentLogger, clock: systemClock, isUrgent };
  return Journal.open(options, 0, ({ payload }) => replayed.push(Buffer.from(payload).toString()));
}

function append(journal: Journal, text: string): void {
  journal.append(text.length, (target) => target.write(text));
}

test('an urgent start of the journal waits for no device, and its first sync covers the files of the earlier run', async () => {
  const directory = join(stores.directory(), 'journal');
  const first = await open(directory, false, new WatchedSyncs().disk);
  append(first, 'before'); // it is killed: neither synced nor closed

  const { watched, disk } = slowDevice();
  const replayed: string[] = [];
  const journal = await open(directory, true, disk, replayed);
  append(journal, 'after');
  expect(replayed).toEqual(['before']);
  expect(watched.begun).toEqual([]);

  const synced = journal.sync();
  watched.letThrough();
  await synced;
  expect(watched.ended.map((path) => basename(path))).toEqual(['journal', '0000000001', '0000000002']);

  const again: string[] = [];
  await open(directory, false, new WatchedSyncs().disk, again);
  expect(again).toEqual(['before', 'after']);
});

test('after the short file of an urgent start, the journal continues in files of full length', async () => {
  const directory = join(stores.directory(), 'journal');
  const journal = await open(directory, true, new WatchedSyncs().disk);
  const sizeOf = (name: string): number => statSync(join(directory, name)).size;
  expect(sizeOf('0000000001')).toBeLessThan(SEGMENT_BYTES);

  const text = 'x'.repeat(10_000);
  while (!readdirSync(directory).includes('0000000002')) {
    append(journal, text);
    await systemClock.sleep(1);
  }

  expect(sizeOf('0000000002')).toBe(SEGMENT_BYTES);
  await journal.close();
});

test.each([
  ['complete', SEGMENT_BYTES, true],
  ['incomplete', SEGMENT_BYTES - 4096, false],
])('a %s spare file of an earlier run (%i bytes) is taken as the first file: %s', async (_which, bytes, isTaken) => {
  const directory = join(stores.directory(), 'journal');
  await (await open(directory, false, new WatchedSyncs().disk)).close();
  writeFileSync(join(directory, 'spare'), Buffer.alloc(bytes));
  const { ino } = statSync(join(directory, 'spare'), { bigint: true });

  const journal = await open(directory, false, new WatchedSyncs().disk);

  const [name = ''] = readdirSync(directory);
  expect(readdirSync(directory)).toEqual([name]);
  const file = statSync(join(directory, name), { bigint: true });
  expect(file.ino === ino).toBe(isTaken);
  expect(Number(file.size)).toBe(SEGMENT_BYTES);
  append(journal, 'record');
  const replayed: string[] = [];
  await open(directory, false, new WatchedSyncs().disk, replayed);
  expect(replayed).toEqual(['record']);
});

test('a store whose programs wait for it opens without a sync, with everything that the killed process recorded', async () => {
  const directory = stores.directory();
  const killed = await stores.open(directory);
  killed.transact((tx) => tx.put('meta', 'key', 'value'));
  await killed.drain();
  killed.transact((tx) => tx.put('meta', 'later', 'value'));

  const { watched, disk } = slowDevice();
  const store = await stores.open(stores.copyOf(directory), { disk, predecessor: PREDECESSOR });

  expect(watched.begun).toEqual([]);
  expect([store.get('meta', 'key'), store.get('meta', 'later')]).toEqual(['value', 'value']);
  watched.letThrough();
});

test('an index that has never been written to is synced by every start', async () => {
  const directory = stores.directory();
  await stores.open(directory);
  const copy = stores.copyOf(directory);
  rmSync(join(copy, 'index'), { recursive: true });

  const watched = new WatchedSyncs();
  await stores.open(copy, { disk: watched.disk, predecessor: PREDECESSOR });

  expect(watched.ended).toContain(join(copy, 'index', 'data.mdb'));
});

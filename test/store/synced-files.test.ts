import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { ContentFiles, type HolePunch } from '../../src/bytes/content-files.ts';
import { WritePace } from '../../src/bytes/write-pace.ts';
import { FAST_DISK } from '../harness/fast-disk.ts';
import { WatchedSyncs } from './watched-syncs.ts';

/** What a sync of a content's file waits for, and what it does not do twice. */

/** They lie in one folder: ids are spread over 256. */
const [ONE, NEIGHBOUR, THIRD] = [1, 257, 513] as ContentId[] as [ContentId, ContentId, ContentId];
const BYTES = new Uint8Array(10).fill(1);

class HeldUp extends WritePace {
  override get isHeldUp(): boolean {
    return true;
  }
}

let directory: string;
let watched: WatchedSyncs;
let files: ContentFiles;
beforeEach(() => {
  directory = mkdtempSync(join(FAST_DISK, 'cfs-files-'));
  watched = new WatchedSyncs();
  files = begin();
});
afterEach(() => {
  watched.letThrough();
  files.closeAll();
  rmSync(directory, { recursive: true, force: true });
});

function begin(deps: { holes?: HolePunch; pace?: WritePace } = {}): ContentFiles {
  return new ContentFiles({ directory, disk: watched.disk, holes: null, pace: null, ...deps });
}

function make(id: ContentId): void {
  files.create(id, 'drafts');
  files.write(id, 'drafts', BYTES, 0);
}

const folderOf = (): string => join(directory, 'drafts/01');
const fileOf = (id: ContentId): string => join(folderOf(), String(id));
const begunOf = (path: string): number => watched.begun.filter((each) => each === path).length;

async function turns(): Promise<void> {
  for (let turn = 0; turn < 50; turn++) await nextTurn();
}

/** Whether `work` has ended, told whenever it is asked. */
function watch(work: Promise<void>): () => boolean {
  let hasEnded = false;
  const end = () => {
    hasEnded = true;
  };
  work.then(end, end);
  return () => hasEnded;
}

test('fsync(2) waits for the folder of the file, even if the sync of a neighbour has started it', async () => {
  make(ONE);
  make(NEIGHBOUR);
  watched.isHeld = (path) => path === folderOf();
  const first = files.sync(ONE, 'drafts');
  await expect.poll(() => begunOf(folderOf())).toBe(1);

  const second = files.sync(NEIGHBOUR, 'drafts');
  const hasEnded = watch(second);
  await expect.poll(() => watched.ended).toContain(fileOf(NEIGHBOUR));
  await turns();
  expect(hasEnded()).toBe(false);

  watched.letThrough();
  await Promise.all([first, second]);
  expect(begunOf(folderOf()), 'both share it').toBe(1);
});

test('a file that is made while its folder is being synced has it synced again', async () => {
  make(ONE);
  watched.isHeld = (path) => path === folderOf();
  const first = files.sync(ONE, 'drafts');
  await expect.poll(() => begunOf(folderOf())).toBe(1);
  make(NEIGHBOUR);
  const second = files.sync(NEIGHBOUR, 'drafts');
  watched.letThrough();
  await Promise.all([first, second]);
  expect(begunOf(folderOf())).toBe(2);

  await files.sync(ONE, 'drafts');
  expect(begunOf(folderOf()), 'and not once more').toBe(2);
});

test('a folder is synced once for all that was made in it', async () => {
  make(ONE);
  make(NEIGHBOUR);
  for (let round = 0; round < 20; round++) {
    files.write(ONE, 'drafts', BYTES, round);
    await files.sync(ONE, 'drafts');
    await files.sync(NEIGHBOUR, 'drafts');
  }
  expect(begunOf(folderOf())).toBe(1);

  make(THIRD);
  await files.sync(THIRD, 'drafts');
  expect(begunOf(folderOf())).toBe(2);
});

test('a new folder, and one into which a file was moved, have their names synced', async () => {
  make(ONE);
  await files.sync(ONE, 'drafts');
  make(2 as ContentId);
  await files.sync(2 as ContentId, 'drafts');
  expect(begunOf(join(directory, 'drafts'))).toBe(2);

  files.move(ONE, 'drafts', 'cache');
  await files.sync(ONE, 'cache');
  expect(watched.ended.slice(-2)).toEqual([join(directory, 'cache/01'), join(directory, 'cache')]);
  make(NEIGHBOUR);
  files.move(NEIGHBOUR, 'drafts', 'cache');
  await files.sync(NEIGHBOUR, 'cache');
  expect(begunOf(join(directory, 'cache/01'))).toBe(2);
  expect(begunOf(directory)).toBe(1);
  expect(begunOf(fileOf(ONE)), 'its bytes are where they were').toBe(1);
});

test('a folder whose sync failed is synced again', async () => {
  make(ONE);
  let failures = 1;
  watched.isFailing = (path) => path === folderOf() && failures-- > 0;
  await expect(files.sync(ONE, 'drafts')).rejects.toThrow('EIO');

  await files.sync(ONE, 'drafts');
  expect(watched.ended).toContain(folderOf());
});

test('what an earlier run made and did not sync has its folders synced, up to the store', async () => {
  make(ONE);
  files.closeAll(); // it was killed
  files = begin();

  await files.sync(ONE, 'drafts');

  expect(watched.ended).toEqual([fileOf(ONE), folderOf(), join(directory, 'drafts'), directory]);
});

test('what was synced and not written to since is not synced again, and any write ends that', async () => {
  make(ONE);
  const changes: readonly (() => void)[] = [
    () => {},
    () => files.write(ONE, 'drafts', BYTES, 5),
    () => files.zero(ONE, 'drafts', 2, 4),
    () => void files.writeAtPace(ONE, 'drafts', BYTES, 50),
    () => make(ONE),
  ];
  for (const [at, change] of changes.entries()) {
    change();
    await files.sync(ONE, 'drafts');
    await files.sync(ONE, 'drafts');
    expect(begunOf(fileOf(ONE)), `change ${at}`).toBe(at + 1);
  }
});

test('what the pool writes, and what is punched out, has to be synced as well', async () => {
  files = begin({ pace: new HeldUp({ clock: systemClock }), holes: { punchHole: () => {} } });
  make(ONE);
  await files.sync(ONE, 'drafts');
  await files.writeAtPace(ONE, 'drafts', BYTES, 5);
  await files.sync(ONE, 'drafts');
  expect(begunOf(fileOf(ONE))).toBe(2);

  files.zero(ONE, 'drafts', 0, 5);
  await files.sync(ONE, 'drafts');
  expect(begunOf(fileOf(ONE))).toBe(3);
});

test('what is written while a sync is under way is not taken for synced', async () => {
  make(ONE);
  watched.isHeld = (path) => path === fileOf(ONE);
  const first = files.sync(ONE, 'drafts');
  await expect.poll(() => begunOf(fileOf(ONE))).toBe(1);
  const shared = files.sync(ONE, 'drafts');
  files.write(ONE, 'drafts', BYTES, 5);
  const later = files.sync(ONE, 'drafts');
  watched.letThrough();
  await Promise.all([first, shared, later]);
  expect(begunOf(fileOf(ONE))).toBe(2);

  watched.isHeld = (path) => path === fileOf(ONE);
  files.write(ONE, 'drafts', BYTES, 10);
  const third = files.sync(ONE, 'drafts');
  await expect.poll(() => begunOf(fileOf(ONE))).toBe(3);
  files.write(ONE, 'drafts', BYTES, 15); // nobody asks before that has ended
  watched.letThrough();
  await third;
  await files.sync(ONE, 'drafts');
  expect(begunOf(fileOf(ONE))).toBe(4);
});

/** fsync(2), "Since Linux 4.13 … an error is reported to each descriptor once": whoever asks later is told that all is well. */
test('a file whose sync failed once is never reported as synced', async () => {
  make(ONE);
  make(NEIGHBOUR);
  let failures = 1;
  watched.isFailing = (path) => path === fileOf(ONE) && failures-- > 0;
  await expect(files.sync(ONE, 'drafts')).rejects.toThrow('EIO');

  await expect(files.sync(ONE, 'drafts')).rejects.toThrow('may be lost');
  files.write(ONE, 'drafts', BYTES, 5);
  await expect(files.sync(ONE, 'drafts')).rejects.toThrow('may be lost');
  await files.sync(NEIGHBOUR, 'drafts');

  // Other bytes under this id: nothing of what was lost is among them.
  files.remove(ONE);
  make(ONE);
  await files.sync(ONE, 'drafts');
});

test('a caller that joins a failing sync gets its error too', async () => {
  make(ONE);
  let failures = 1;
  watched.isFailing = (path) => path === fileOf(ONE) && failures-- > 0;
  watched.isHeld = (path) => path === fileOf(ONE);
  const first = files.sync(ONE, 'drafts');
  await expect.poll(() => begunOf(fileOf(ONE))).toBe(1);
  files.write(ONE, 'drafts', BYTES, 5);
  const second = files.sync(ONE, 'drafts');
  watched.letThrough();
  const ends = await Promise.allSettled([first, second]);
  expect(ends.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
});

import { constants } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from './model-service.ts';

/** A body is read as the line takes it, for minutes or hours: until then nothing of it may go, though the cache is too full and was not looked at for long. */

const SIZE_BYTES = 3 * 1024 * 1024;
const never = new AbortController().signal;

let world: SyncedSide;
beforeEach(async () => {
  // One such file is more than there is room for.
  world = await SyncedSide.build({ contents: { cacheBytes: 1024 * 1024 } });
});
afterEach(() => world.close());

async function patch(at: number, fill: string): Promise<void> {
  const fd = await world.mount.open('file', constants.O_RDWR);
  await world.mount.write(fd, at, Buffer.alloc(100_000, fill));
  await world.mount.close(fd);
}

/** Answers all requests but those of the other file, until one of that name comes. */
async function until(name: string): Promise<void> {
  for (let round = 0; round < 100; round++) {
    await world.pass(2_000);
    if (world.service.pending.some((request) => request.name.startsWith(name))) return;
    answerAll();
  }
  throw new Error(`nobody asks for ${name}`);
}

function answerAll(): void {
  const { pending } = world.service;
  for (const request of pending.filter(({ name }) => !name.startsWith('createFile'))) {
    pending.splice(pending.indexOf(request), 1);
    request.settle({ type: 'answer' });
  }
}

const newest = (): Buffer | undefined =>
  world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === 'file')?.versions[0]?.bytes;

test('a change over one that was just sent is sent whole, however long that takes and however full the cache is', async () => {
  const expected = Buffer.alloc(SIZE_BYTES, 'base');
  await world.mount.writeFile('file', expected);
  await world.converge();

  // The second change is made while the first one is sent: it lies over a version that lies over another, and stays there while
  // something else is being sent.
  world.service.auto = null;
  await world.mount.writeFile('other', Buffer.from('other'));
  await patch(0, 'first');
  expected.fill('first', 0, 100_000);
  await until('putVersionData');
  await patch(1_000_000, 'second');
  expected.fill('second', 1_000_000, 1_100_000);
  answerAll();
  await until('putVersionData');

  // What housekeeping does meanwhile, every few seconds.
  await world.side.contents.mergeLayers(never);
  for (let round = 0; round < 10; round++) {
    world.clock.advance(60_000);
    world.side.contents.collect();
  }
  world.service.auto = () => ({ type: 'answer' });
  for (const request of world.service.pending.splice(0)) request.settle({ type: 'answer' });
  await world.converge();

  expect(newest()?.equals(expected)).toBe(true);
});

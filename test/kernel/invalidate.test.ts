import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { KernelInvalidator } from '../../src/kernel/invalidate.ts';
import type { AddonConnection } from '../../src/kernel/kernel-addon.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';
import { Wire } from '../../src/kernel/wire.ts';
import { ManualClock } from './manual-clock.ts';

const NAMES: Readonly<Record<number, string>> = { 2: 'inode', 3: 'entry', 6: 'deleted', 8: 'epoch' };

/** The invalidator with an addon that keeps what it is given, as `kind inode [name]`. */
function setUp(options: { epoch?: boolean } = {}) {
  const region = new ArrayBuffer(4096);
  const view = new DataView(region);
  const sent: string[] = [];
  const queue = { full: false };
  const connection = {
    notify: (offset: number, length: number) => {
      const code = view.getInt32(offset + 4, true);
      if (queue.full && code !== 8) return 0;
      const ino = length >= 24 ? view.getUint32(offset + 16, true) : 0;
      const nameAt = offset + 16 + (code === 3 ? 16 : 24);
      const name =
        code === 2 || code === 8 ? '' : Buffer.from(region, nameAt, length - (nameAt - offset) - 1).toString();
      sent.push([NAMES[code], ino, name].join(' ').trim());
      return 1;
    },
  } as unknown as AddonConnection;
  const clock = new ManualClock();
  const nodeIds = new NodeIds();
  const invalidator = new KernelInvalidator({
    ...{ connection, clock, wire: new Wire(region), nodeIds, messageStart: 2048 },
    hasEpoch: () => options.epoch ?? true,
    placeOf: (folder) => (folder === 1 ? null : { parent: ino(1), name: `folder-${folder}` }),
  });
  return { invalidator, sent, queue, clock, nodeIds };
}

const ino = (number: number): Inode => number as Inode;

test('a notification goes out at once when nobody waits for its inode', () => {
  const { invalidator, sent } = setUp();

  invalidator.inode(ino(5), 0, 0);
  invalidator.entry(ino(1), 'name');
  invalidator.deleted(ino(1), ino(5), 'Füße');

  expect(sent).toEqual(['inode 5', 'entry 1 name', 'deleted 1 Füße']);
});

test('one about an inode with unanswered requests waits for the last reply, others do not', () => {
  const { invalidator, sent } = setUp();
  invalidator.began(ino(5));
  invalidator.began(ino(5));

  invalidator.inode(ino(5), 0, 0);
  invalidator.deleted(ino(1), ino(5), 'gone');
  invalidator.entry(ino(5), 'child');
  invalidator.inode(ino(6), 0, 0);
  expect(sent).toEqual(['inode 6']);
  invalidator.ended(ino(5));
  expect(sent).toEqual(['inode 6']);
  invalidator.ended(ino(5));

  expect(sent).toEqual(['inode 6', 'inode 5', 'deleted 1 gone', 'entry 5 child']);
  expect(invalidator.heldCount).toBe(0);
});

test('one that waits for a folder and then for its child waits for both', () => {
  const { invalidator, sent } = setUp();
  invalidator.began(ino(1));
  invalidator.began(ino(5));
  invalidator.deleted(ino(1), ino(5), 'gone');

  invalidator.ended(ino(1));
  expect(sent).toEqual([]);
  invalidator.ended(ino(5));

  expect(sent).toEqual(['deleted 1 gone']);
});

test('what finds the queue full is sent later, in order', () => {
  const { invalidator, sent, queue, clock } = setUp();
  queue.full = true;
  invalidator.entry(ino(1), 'a');
  invalidator.entry(ino(1), 'b');
  clock.advance(15);
  expect(sent).toEqual([]);

  queue.full = false;
  clock.advance(15);

  expect(sent).toEqual(['entry 1 a', 'entry 1 b']);
  expect(clock.timers).toBe(0);
});

test('too many are replaced by one that makes the kernel ask for every name, and what is about bytes stays', () => {
  const { invalidator, sent, queue, clock } = setUp();
  queue.full = true;
  invalidator.inode(ino(9), 0, 0);
  for (let i = 0; i < 20_000; i++) invalidator.entry(ino(1), `n${i}`);
  expect(invalidator.epochsSent).toBe(1);
  queue.full = false;
  clock.advance(20);

  expect(sent.slice(0, 2)).toEqual(['epoch 0', 'inode 9']);
  expect(sent.length).toBeLessThan(10);
});

test('a kernel without epochs is told of the folder in place of its names', () => {
  const { invalidator, sent } = setUp({ epoch: false });
  invalidator.began(ino(5));
  invalidator.entry(ino(6), 'another');
  invalidator.inode(ino(5), -1, 0);
  for (let i = 0; i < 100_000; i++) invalidator.entry(ino(5), `n${i}`);

  expect(sent.slice(0, 2)).toEqual(['entry 6 another', 'entry 1 folder-5']);
  expect(invalidator.foldersSent).toBe(5);
  expect(invalidator.heldCount).toBeLessThan(20_000);
  invalidator.ended(ino(5));

  expect(sent).toContain('inode 5');
  expect(sent).toContain('entry 5 n99999');
  expect(invalidator.epochsSent).toBe(0);
});

test('a kernel without epochs is told of every name of the root, once', () => {
  const { invalidator, sent, queue, clock } = setUp({ epoch: false });
  queue.full = true;
  for (let round = 0; round < 4; round++) {
    for (let i = 0; i < 25_000; i++) invalidator.entry(ino(1), `n${i}`);
  }
  expect(invalidator.heldCount).toBeLessThan(80_000);
  queue.full = false;
  clock.advance(20);

  expect(new Set(sent).size).toBe(25_000);
  expect(invalidator.foldersSent).toBe(0);
});

test('much about the bytes of one file that is busy is said once', () => {
  const { invalidator, sent } = setUp({ epoch: false });
  invalidator.began(ino(5));
  for (let i = 0; i < 50_000; i++) invalidator.inode(ino(5), i * 4096, 4096);

  expect(invalidator.heldCount).toBeLessThan(20_000);
  invalidator.ended(ino(5));

  expect(sent.length).toBeLessThan(20_000);
});

test('a notification for a file with two node ids goes to the newer one', () => {
  const { invalidator, sent, nodeIds } = setUp();

  expect(invalidator.replaced(ino(1), 'name', ino(5), () => null)).toBe(true);
  invalidator.inode(ino(5), 0, 0);
  invalidator.inode(ino(6), 0, 0);

  expect(nodeIds.currentOf(ino(5))).not.toBe(5);
  // Of the older one the size is asked for again. What changes later is said of the newer one (here the low half of its number).
  expect(sent).toEqual(['entry 1 name', 'inode 5', `inode ${nodeIds.currentOf(ino(5)) % 2 ** 32}`, 'inode 6']);
});

test('what is in a folder that became another one is said of the newer one', () => {
  const { invalidator, sent, nodeIds } = setUp();
  invalidator.folderRemoved(ino(5));
  invalidator.entry(ino(5), 'before');
  const newer = nodeIds.lookedUp(ino(5)) % 2 ** 32;

  invalidator.entry(ino(5), 'name');
  invalidator.deleted(ino(5), ino(6), 'gone');

  expect(sent).toEqual(['entry 5 before', `entry ${newer} name`, `deleted ${newer} gone`]);
});

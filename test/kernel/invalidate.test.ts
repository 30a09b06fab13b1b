import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { KernelInvalidator } from '../../src/kernel/invalidate.ts';
import type { AddonConnection } from '../../src/kernel/kernel-addon.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';
import { NOTICE_ROWS_BYTES, NoticeRows } from '../../src/kernel/notice-rows.ts';
import { Wire } from '../../src/kernel/wire.ts';
import { ManualClock } from './manual-clock.ts';

const NAMES: Readonly<Record<number, string>> = { 2: 'inode', 3: 'entry', 6: 'deleted' };

/** The invalidator with an addon that keeps what it is given, as `kind inode [name]`; with `expires`, `expires` instead of `entry`. */
function setUp(options: { expires?: boolean; rows?: NoticeRows } = {}) {
  const region = new ArrayBuffer(4096);
  const view = new DataView(region);
  const sent: string[] = [];
  const rows: number[] = [];
  const queue = { full: false };
  const connection = {
    notify: (offset: number, length: number, _max: number, row: number) => {
      if (queue.full) return 0;
      const code = view.getInt32(offset + 4, true);
      const isExpiry = code === 3 && view.getUint32(offset + 16 + 12, true) === 1;
      const nameAt = offset + 16 + (code === 3 ? 16 : 24);
      const name = code === 2 ? '' : Buffer.from(region, nameAt, length - (nameAt - offset) - 1).toString();
      sent.push([isExpiry ? 'expires' : NAMES[code], view.getUint32(offset + 16, true), name].join(' ').trim());
      rows.push(row);
      return 1;
    },
  } as unknown as AddonConnection;
  const clock = new ManualClock();
  const nodeIds = new NodeIds();
  const invalidator = new KernelInvalidator({
    ...{ connection, clock, wire: new Wire(region), nodeIds, messageStart: 2048, rows: options.rows ?? null },
    canExpire: () => options.expires ?? false,
  });
  return { invalidator, sent, rows, queue, clock, nodeIds };
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

test('a kernel that can expire names looks them up again, and drops only deleted ones', () => {
  const { invalidator, sent } = setUp({ expires: true });

  invalidator.entry(ino(1), 'folder');
  invalidator.deleted(ino(1), ino(5), 'gone');

  expect(sent).toEqual(['expires 1 folder', 'deleted 1 gone']);
});

test('every name is sent once, and nothing about the folder that they are in, however many wait', () => {
  const { invalidator, sent } = setUp();
  invalidator.began(ino(5));
  for (let round = 0; round < 4; round++) {
    for (let i = 0; i < 25_000; i++) invalidator.entry(ino(5), `n${i}`);
  }
  expect(invalidator.heldCount).toBeLessThan(80_000);
  invalidator.entry(ino(6), 'another');
  expect(sent).toEqual(['entry 6 another']);

  invalidator.ended(ino(5));

  expect(new Set(sent).size).toBe(25_001);
});

test('much about the bytes of one file that is busy is said once', () => {
  const { invalidator, sent } = setUp();
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

test('a successor sends what its predecessor did not, in order', () => {
  const region = new ArrayBuffer(NOTICE_ROWS_BYTES + 64);
  const before = setUp({ rows: new NoticeRows(region, 64) });
  before.invalidator.entry(ino(1), 'written');
  new Float64Array(region)[(before.rows[0] as number) / 8] = 0; // as the addon does
  before.invalidator.began(ino(5));
  before.invalidator.inode(ino(5), 4096, 10);
  before.invalidator.deleted(ino(1), ino(5), 'Füße');
  before.invalidator.entry(ino(1), 'queued');

  const rows = new NoticeRows(region, 64);
  const after = setUp({ rows });
  after.invalidator.inherit(rows.inherited(0));

  expect(after.sent).toEqual(['inode 5', 'deleted 1 Füße', 'entry 1 queued']);
  for (const row of after.rows) new Float64Array(region)[row / 8] = 0;
  expect(new NoticeRows(region, 64).inherited(0)).toEqual([]);
});

test('names that repeat others leave no row', () => {
  const region = new ArrayBuffer(NOTICE_ROWS_BYTES + 64);
  const { invalidator, rows } = setUp({ rows: new NoticeRows(region, 64) });
  invalidator.began(ino(5));
  for (let i = 0; i < 20_000; i++) invalidator.entry(ino(5), `n${i % 1000}`);
  invalidator.inode(ino(5), 0, 10);
  invalidator.inode(ino(5), 10, 10);

  invalidator.ended(ino(5));

  for (const row of rows) if (row !== 0) new Float64Array(region)[row / 8] = 0;
  expect(new NoticeRows(region, 64).inherited(0)).toEqual([]);
});

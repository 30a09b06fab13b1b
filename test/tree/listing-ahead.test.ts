import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { Inode } from '../../src/base/vocabulary.ts';
import { DamagedRow } from '../../src/store/record-codec.ts';
import type { NodeRecord } from '../../src/store/tables.ts';
import { AHEAD_MAX, ListingAhead } from '../../src/tree/listing-ahead.ts';
import { watchUnhandled } from '../harness/unhandled.ts';

const PARENT = 10 as Inode;

test.each([
  ['when somebody looks at the next folder', 1],
  ['when a listing ahead has come', 2],
])('a damaged row of a sibling that is met %s is nobody’s error, and ends the looking ahead there', async (_, use) => {
  const unhandled = watchUnhandled();
  const folders = Array.from({ length: 20 }, (_, i) => folderNode(100 + i));
  let uses = 0;
  const used = () => {
    uses++;
    if (uses === use) throw new DamagedRow('node', 107);
  };
  const tree = {
    node: (ino: Inode) => folders.find((each) => each.ino === ino),
    isComplete: (ino: Inode) => {
      // After the seven that are under way: asked when one of them has come.
      if (ino === 109) used();
      return false;
    },
    *children(_parent: Inode, after = '') {
      used();
      for (const node of folders) {
        const name = node.local?.name ?? '';
        if (name > after) yield { name, node };
      }
    },
  };
  const asked: (() => void)[] = [];
  const list = () => new Promise<void>((resolve) => asked.push(resolve));
  const ahead = new ListingAhead({ tree, list, log: silentLogger });
  const look = (at: number) => ahead.looked((100 + at) as Inode, true);

  look(0);
  look(1);
  if (use > 1) for (const at of [2, 3, 4]) look(at);
  const before = asked.length;
  expect(before).toBe(use > 1 ? 7 : 0);
  asked[0]?.();
  await nextTurn();
  await nextTurn();
  expect(uses).toBe(use);
  expect(asked).toHaveLength(before);
  expect(unhandled).toEqual([]);

  // The walk itself goes on.
  look(use > 1 ? 5 : 2);
  expect(asked.length).toBeGreaterThan(before);
});

const forward = Array.from({ length: 40 }, (_, at) => at);
const mixed = forward.map((at) => (at * 17 + 5) % 40);
const threads = [0, 10, 20, 30].flatMap((_, turn) => forward.filter((at) => at % 4 === turn));

test.each([
  ['forward', forward, 2],
  ['backward', forward.toReversed(), 2],
  ['by four threads', threads, 2],
  ['in no order', mixed, 5],
])('a walk %s through 40 folders waits for few of them, and each is listed once', async (_, order, waitsMax) => {
  const folders = forward.map((at) => folderNode(100 + at));
  const listed = new Map<Inode, 'asked' | 'complete'>();
  let underWay = 0;
  let mostUnderWay = 0;
  const tree = {
    node: (ino: Inode) => folders.find((each) => each.ino === ino),
    isComplete: (ino: Inode) => listed.get(ino) === 'complete',
    *children(_parent: Inode, after = '') {
      for (const node of folders) if ((node.local?.name ?? '') > after) yield { name: node.local?.name ?? '', node };
    },
  };
  const list = async (ino: Inode) => {
    expect(listed.has(ino)).toBe(false);
    listed.set(ino, 'asked');
    underWay += 1;
    mostUnderWay = Math.max(mostUnderWay, underWay);
    await nextTurn();
    underWay -= 1;
    listed.set(ino, 'complete');
  };
  const ahead = new ListingAhead({ tree, list, log: silentLogger });
  let waits = 0;
  for (const at of order) {
    const ino = (100 + at) as Inode;
    const isComplete = tree.isComplete(ino);
    ahead.looked(ino, !isComplete);
    if (!listed.has(ino)) {
      waits += 1;
      await list(ino);
    }
    while (!tree.isComplete(ino)) await nextTurn();
  }

  expect(waits).toBeLessThanOrEqual(waitsMax);
  expect(listed.size).toBe(40);
  expect(mostUnderWay).toBeLessThanOrEqual(8);
  expect(ahead.remembered).toBe(0);
});

test('a reader that opens two of a thousand folders causes four more listings', async () => {
  const folders = Array.from({ length: 1_000 }, (_, at) => folderNode(1_000 + at));
  const asked: Inode[] = [];
  const tree = {
    node: (ino: Inode) => folders.find((each) => each.ino === ino),
    isComplete: (ino: Inode) => asked.includes(ino),
    *children(_parent: Inode, after = '') {
      for (const node of folders) if ((node.local?.name ?? '') > after) yield { name: node.local?.name ?? '', node };
    },
  };
  const list = async (ino: Inode) => void asked.push(ino);
  const ahead = new ListingAhead({ tree, list, log: silentLogger });
  ahead.looked(1_500 as Inode, true);
  expect(asked).toEqual([]);
  ahead.looked(1_501 as Inode, true);
  for (let turn = 0; turn < 20; turn++) await nextTurn();

  expect(asked).toEqual([1_502, 1_503, 1_504, 1_505]);
});

test('walks that end early leave a bounded number of remembered folders', async () => {
  const inos = (parent: number) => Array.from({ length: 20 }, (_, n) => (1_000_000 + 100 * parent + n) as Inode);
  const nodeOf = (ino: Inode) => {
    const parent = Math.floor((ino - 1_000_000) / 100) as Inode;
    return { ino, kind: 'folder', local: { parent, name: `folder ${ino}` } } as unknown as NodeRecord;
  };
  const tree = {
    node: nodeOf,
    isComplete: () => false,
    *children(parent: Inode, after = '') {
      for (const node of inos(parent).map(nodeOf)) {
        const name = node.local?.name ?? '';
        if (name > after) yield { name, node };
      }
    },
  };
  const ahead = new ListingAhead({ tree, list: () => Promise.resolve(), log: silentLogger });
  for (let parent = 1; parent <= AHEAD_MAX; parent++) {
    const [first, second] = inos(parent) as [Inode, Inode];
    ahead.looked(first, true);
    ahead.looked(second, true);
    for (let turn = 0; turn < 3; turn++) await nextTurn();
  }

  expect(ahead.remembered).toBe(AHEAD_MAX);
});

function folderNode(ino: number): NodeRecord {
  return { ino, kind: 'folder', local: { parent: PARENT, name: `folder ${ino}` } } as unknown as NodeRecord;
}

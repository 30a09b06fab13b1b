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
  const tree = {
    node: (ino: Inode) => folders.find((each) => each.ino === ino),
    isComplete: () => false,
    *children(_parent: Inode, after = '') {
      uses++;
      if (uses === use) throw new DamagedRow('node', 107);
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
  const before = asked.length;
  expect(before > 0).toBe(use > 1);
  asked[0]?.();
  await nextTurn();
  await nextTurn();
  expect(uses).toBe(use);
  expect(asked).toHaveLength(before);
  expect(unhandled).toEqual([]);

  // The walk itself goes on.
  look(2);
  expect(asked.length).toBeGreaterThan(before);
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

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import type { Attributes } from '../../src/kernel/binding.ts';
import { FOLDER_ID_ROWS_BYTES, FolderIdRows } from '../../src/kernel/folder-id-rows.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';

const INO = 7 as Inode;
const SHOWN = { sizeBytes: 3 } as Attributes;

test('an inode is its own number until it is replaced while somebody has it open', () => {
  const ids = new NodeIds();
  let isOpen = true;
  expect([ids.lookedUp(INO), ids.inodeOf(INO), ids.olderOf(INO)]).toEqual([INO, INO, null]);

  expect(ids.replace(INO, () => (isOpen ? SHOWN : null))).toBe(true);
  const next = ids.lookedUp(INO);

  expect(next).not.toBe(INO);
  expect([ids.inodeOf(INO), ids.inodeOf(next)]).toEqual([INO, INO]);
  expect([ids.olderOf(INO)?.(), ids.olderOf(next)]).toEqual([SHOWN, null]);
  expect(ids.currentOf(8 as Inode)).toBe(8);

  isOpen = false;
  expect(ids.forgotten(INO, 1)).toBe(INO);
  expect(ids.currentOf(INO)).toBe(next); // the kernel knows it by this one
  expect(ids.forgotten(next, 1)).toBe(INO);
  expect(ids.currentOf(INO)).toBe(INO);
});

test('a name that the kernel let go of does not lead back to what somebody still reads', () => {
  const ids = new NodeIds();
  let isOpen = true;
  ids.replace(INO, () => (isOpen ? SHOWN : null));

  ids.forgotten(ids.lookedUp(INO), 1);
  expect(ids.currentOf(INO)).not.toBe(INO);
  expect(ids.olderOf(INO)?.()).toBe(SHOWN);

  isOpen = false;
  ids.forgotten(INO, 1);
  expect(ids.currentOf(INO)).toBe(INO);
});

/** What a kernel may do with three files: look them up, open, close, let go of numbers that nobody has open. */
test('whatever is opened, replaced and forgotten: each number is one file, and none is kept for nothing', () => {
  const step = fc.record({
    ino: fc.integer({ min: 1, max: 3 }),
    what: fc.constantFrom('look up', 'open', 'close', 'forget', 'replace'),
    which: fc.nat(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const ids = new NodeIds();
      /** By number, what the kernel has: lookups, and how often each generation of the file is open. */
      const known = new Map<number, { ino: Inode; lookups: number; open: { count: number } }>();
      const generation = new Map<Inode, { count: number }>();
      const openOf = (ino: Inode) => generation.get(ino) ?? generation.set(ino, { count: 0 }).get(ino) ?? { count: 0 };
      const forget = (nodeId: number): void => {
        const { ino, lookups } = known.get(nodeId) ?? { ino: 0, lookups: 0 };
        known.delete(nodeId);
        expect(ids.forgotten(nodeId, lookups)).toBe(ino);
      };
      for (const { ino: number, what, which } of steps) {
        const ino = number as Inode;
        const open = openOf(ino);
        const all = [...known.keys()].filter((nodeId) => known.get(nodeId)?.ino === ino);
        const nodeId = all[which % Math.max(all.length, 1)];
        const one = nodeId === undefined ? undefined : known.get(nodeId);
        if (what === 'look up') {
          const id = ids.lookedUp(ino);
          const entry = known.get(id) ?? { ino, lookups: 0, open };
          // Never the number of something older that is being read.
          if (entry.open !== open) expect(entry.open.count).toBe(0);
          known.set(id, { ino, lookups: entry.lookups + 1, open });
        } else if (what === 'open' && one?.open === open) open.count++;
        else if (what === 'close' && one !== undefined && one.open.count > 0) one.open.count--;
        else if (what === 'forget' && nodeId !== undefined && one?.open.count === 0) forget(nodeId);
        else if (what === 'replace' && open.count > 0) {
          ids.replace(ino, () => (open.count > 0 ? SHOWN : null));
          generation.set(ino, { count: 0 });
        }
        for (const [id, { ino: whose, open: opened }] of known) {
          expect(ids.inodeOf(id)).toBe(whose);
          const isOlder = opened.count > 0 && opened !== openOf(whose);
          if (isOlder) expect(ids.olderOf(id)?.()).toBe(SHOWN);
        }
      }
      for (const entry of known.values()) entry.open.count = 0;
      for (const nodeId of [...known.keys()]) forget(nodeId);
      for (const ino of [1, 2, 3] as Inode[]) expect(ids.currentOf(ino)).toBe(ino);
    }),
  );
});

test('what the kernel has of a file is not kept while that has several numbers, nor once after', () => {
  const ids = new NodeIds();
  let isOpen = true;
  expect(ids.mayKeep(INO)).toBe(true);

  ids.replace(INO, () => (isOpen ? SHOWN : null));
  const next = ids.lookedUp(INO);
  expect([ids.mayKeep(INO), ids.mayKeep(INO), ids.mayKeep(8 as Inode)]).toEqual([false, false, true]);
  expect([ids.isFormer(INO), ids.isFormer(next), ids.isFormer(8)]).toEqual([true, false, false]);

  isOpen = false;
  ids.forgotten(next, 1);
  expect([ids.isFormer(INO), ids.mayKeep(INO), ids.mayKeep(INO)]).toEqual([false, false, true]);
});

test('a number that the kernel has by a path from before is one of several, also when nobody has the file open by it', () => {
  const ids = new NodeIds();
  let isOpen = true;
  const older = () => (isOpen ? SHOWN : null);
  ids.replace(INO, older);
  const first = ids.lookedUp(INO);
  ids.replace(INO, older);
  const second = ids.lookedUp(INO);

  isOpen = false;
  ids.forgotten(second, 1);
  expect([ids.isFormer(first), ids.isFormer(INO), ids.mayKeep(INO)]).toEqual([true, true, false]);

  ids.forgotten(first, 1);
  expect([ids.currentOf(INO), ids.mayKeep(INO), ids.mayKeep(INO)]).toEqual([INO, false, true]);
});

test('what the kernel forgot is not waited for: it has nothing of it', () => {
  const ids = new NodeIds();
  let isOpen = true;
  ids.replace(INO, () => (isOpen ? SHOWN : null));
  isOpen = false;
  ids.forgotten(ids.lookedUp(INO), 1);

  ids.forgotten(INO, 1);
  expect(ids.mayKeep(INO)).toBe(true);
});

test('what the kernel has of a file that is used on is kept again, once it has it by the new number alone', () => {
  const ids = new NodeIds();
  let isOpen = true;
  ids.replace(INO, () => (isOpen ? SHOWN : null));
  const next = ids.lookedUp(INO);
  isOpen = false;
  expect(ids.mayKeep(INO)).toBe(false);

  ids.forgotten(INO, 1);
  expect(ids.currentOf(INO)).toBe(next);
  expect([ids.mayKeep(INO), ids.mayKeep(INO), ids.mayKeep(INO)]).toEqual([false, true, true]);

  isOpen = true;
  ids.replace(INO, () => (isOpen ? SHOWN : null));
  const last = ids.lookedUp(INO);
  expect([ids.mayKeep(INO), ids.mayKeep(INO)]).toEqual([false, false]);
  isOpen = false;
  ids.forgotten(next, 1);
  expect([ids.currentOf(INO), ids.mayKeep(INO), ids.mayKeep(INO)]).toEqual([last, false, true]);

  ids.forgotten(last, 1);
  expect([ids.currentOf(INO), ids.mayKeep(INO)]).toEqual([INO, true]);
});

/**
 * A kernel that keeps the bytes it read by each number until an open says that it may not, or it is told; what it writes by a number it has
 * by that. Bytes are kept in general until others change them (`KernelCache.mayKeep`).
 */
test('whatever is read and written by whichever number, nobody opens a file and reads what it was before', () => {
  const step = fc.record({ what: fc.constantFrom('open', 'write', 'close', 'forget', 'replace'), which: fc.nat() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const ids = new NodeIds();
      /** By number: lookups, and the change that the bytes there are of; null for no bytes. */
      const known = new Map<number, { lookups: number; bytes: number | null }>();
      let newest = 0;
      let isUnchanged = true;
      /** Who reads what it was before the latest replacement; by the number of then. */
      let readers: { nodeId: number; count: number }[] = [];
      const lookUp = (): number => {
        const nodeId = ids.lookedUp(INO);
        const { lookups = 0, bytes = null } = known.get(nodeId) ?? {};
        known.set(nodeId, { lookups: lookups + 1, bytes });
        return nodeId;
      };
      for (const { what, which } of steps) {
        if (which % 3 === 0 || known.size === 0) lookUp();
        const nodeId = [...known.keys()][which % known.size] as number;
        const kernel = known.get(nodeId) as { lookups: number; bytes: number | null };
        if (what === 'open') {
          const mayKeep = !ids.isFormer(nodeId) && ids.mayKeep(INO) && isUnchanged;
          isUnchanged = true;
          if (!mayKeep) kernel.bytes = null;
          if (kernel.bytes !== null) expect(kernel.bytes).toBe(newest);
          if (!ids.isFormer(nodeId)) kernel.bytes = newest;
        } else if (what === 'write') {
          newest++;
          if (!ids.isFormer(nodeId)) kernel.bytes = newest;
          else for (const [id, each] of known) if (id === ids.currentOf(INO)) each.bytes = null;
        } else if (what === 'replace') {
          const current = lookUp();
          const reader = { nodeId: current, count: 1 };
          readers.push(reader);
          newest++;
          isUnchanged = false;
          ids.replace(INO, () => (reader.count > 0 ? SHOWN : null));
        } else if (what === 'close') {
          for (const each of readers.splice(0, 1)) each.count = 0;
        } else if (!readers.some((each) => each.nodeId === nodeId)) {
          ids.forgotten(nodeId, kernel.lookups);
          known.delete(nodeId);
        }
      }
      for (const each of readers) each.count = 0;
      readers = [];
      for (const [nodeId, { lookups }] of known) ids.forgotten(nodeId, lookups);
      expect([ids.currentOf(INO), ids.isFormer(INO)]).toEqual([INO, false]);
    }),
    { numRuns: 5_000 },
  );
});

test('a folder that was removed is another one when it is there again, as long as the kernel has it', () => {
  const ids = new NodeIds();
  ids.folderRemoved(INO);

  const second = ids.lookedUp(INO);
  expect(second).not.toBe(INO);
  expect([ids.lookedUp(INO), ids.inodeOf(second), ids.isFormer(INO)]).toEqual([second, INO, true]);
  expect(ids.olderOf(INO)?.()).toBeNull();

  // The kernel needs the room of what nobody uses; somebody sits in the first one.
  ids.forgotten(second, 2);
  const third = ids.lookedUp(INO);
  expect(third).not.toBe(INO);

  // Removed and there again once more.
  ids.folderRemoved(INO);
  const fourth = ids.lookedUp(INO);
  expect([INO, third]).not.toContain(fourth);
  expect([third, fourth].map((nodeId) => ids.inodeOf(nodeId))).toEqual([INO, INO]);
  ids.forgotten(fourth, 1);
  expect([INO, third]).not.toContain(ids.lookedUp(INO));

  for (const nodeId of [INO, third, ids.currentOf(INO)]) ids.forgotten(nodeId, 1);
  expect(ids.lookedUp(INO)).toBe(INO);
});

test('a folder that was removed and forgotten is the one that it was when it is there again', () => {
  const ids = new NodeIds();
  ids.folderRemoved(INO);

  ids.forgotten(INO, 1);

  expect(ids.lookedUp(INO)).toBe(INO);
});

test('node ids of an earlier process lead to their inode, and names to the one that the kernel has, or to a new one', () => {
  const before = new NodeIds();
  before.replace(INO, () => SHOWN);
  const given = before.lookedUp(INO);

  const kept = new NodeIds(1);
  kept.inherit(given, INO);
  expect([kept.inodeOf(given), kept.currentOf(INO), kept.isFormer(INO)]).toEqual([INO, given, true]);

  const split = new NodeIds(1);
  split.replace(INO, () => SHOWN); // a handle on an older version is still open
  split.inherit(given, INO);
  expect([split.inodeOf(given), split.isFormer(given)]).toEqual([INO, true]);
  expect(split.currentOf(INO)).toBeGreaterThan(given); // never used by the earlier process
  expect(split.olderOf(INO)?.()).toBe(SHOWN);
});

test('a successor of the process knows the node ids of a folder that reappeared, until the kernel forgets them', () => {
  const memory = new ArrayBuffer(FOLDER_ID_ROWS_BYTES);
  const idsOf = (generation: number): NodeIds => new NodeIds(generation, new FolderIdRows(memory, 0));
  const first = idsOf(0);
  first.lookedUp(INO);
  first.folderRemoved(INO);
  const again = first.lookedUp(INO);
  expect(again).not.toBe(INO);

  const second = idsOf(1);
  expect([second.inodeOf(again), second.lookedUp(INO)]).toEqual([INO, again]);
  second.folderRemoved(INO); // once more
  const third = second.lookedUp(INO);
  expect([INO, again]).not.toContain(third);

  const later = idsOf(2);
  expect([again, third].map((nodeId) => later.inodeOf(nodeId))).toEqual([INO, INO]);
  expect(later.lookedUp(INO)).toBe(third);
  for (const nodeId of [INO, again, third]) later.forgotten(nodeId, 2);

  const last = idsOf(3);
  expect([last.lookedUp(INO), last.inodeOf(third)]).toEqual([INO, third]);
  expect(new FolderIdRows(memory, 0).inherited()).toEqual([]);
});

test('of too many folders that reappeared, a successor knows the latest', () => {
  const memory = new ArrayBuffer(FOLDER_ID_ROWS_BYTES);
  const rows = new FolderIdRows(memory, 0);
  for (let nodeId = 1; nodeId <= 1030; nodeId++) rows.note({ nodeId, ino: nodeId as Inode, isDead: true });
  const found = new FolderIdRows(memory, 0).inherited().map(({ nodeId }) => nodeId);
  expect([found.length, found[0], found.at(-1)]).toEqual([1024, 7, 1030]);
});

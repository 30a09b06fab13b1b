import { expect, test } from 'vitest';
import type { ContentId, HandleId, Inode } from '../../src/base/vocabulary.ts';
import { HANDOVER_BYTES, HandoverState } from '../../src/kernel/handover-state.ts';
import { Opcode } from '../../src/kernel/protocol.ts';

const START = 4096;
const regionOf = (): ArrayBuffer => new ArrayBuffer(START + HANDOVER_BYTES);
const requestOf = (unique: number, opcode: number = Opcode.CREATE) => ({ opcode, unique, nodeId: 1 });
/** More than 32 bits. */
const LARGE = 7 * 2 ** 32 + 12;

/** As the store does it. */
const record = (state: HandoverState, sequence: number, inode: number): void =>
  state.writing(sequence, state.needsInode ? inode : null, () => []);

/** The process dies; its successor finds the same memory. */
const successorOf = (region: ArrayBuffer, generation: number, lastRecord: number): HandoverState => {
  const state = new HandoverState(region, START, generation);
  state.judge(lastRecord);
  return state;
};

test('a change is made by a predecessor exactly if the journal has its record', () => {
  const region = regionOf();
  const state = new HandoverState(region, START, 0);
  const [recorded, unrecorded] = [requestOf(10), requestOf(LARGE, Opcode.UNLINK)];
  state.begin(recorded);
  record(state, 41, 99);
  state.end();
  state.begin(unrecorded);
  record(state, 42, 98);

  const successor = successorOf(region, 1, 41);

  expect(successor.madeBy(requestOf(10))).toBe(99);
  expect(successor.madeBy(requestOf(LARGE, Opcode.UNLINK))).toBeNull();
});

test('a change that was not made stays so when another change gets the number of its record', () => {
  const region = regionOf();
  const state = new HandoverState(region, START, 0);
  state.begin(requestOf(10));
  record(state, 17, 99);
  const successor = successorOf(region, 1, 16);
  successor.begin(requestOf(20));
  record(successor, 17, 100);

  const third = successorOf(region, 2, 17);

  expect(third.madeBy(requestOf(10))).toBeNull();
  expect(third.madeBy(requestOf(20))).toBe(100);
});

test('a change whose record the disk refused is not made when the next record gets its number', () => {
  const region = regionOf();
  const state = new HandoverState(region, START, 0);
  state.begin(requestOf(10));
  record(state, 17, 99);
  state.refused();
  state.end();

  expect(successorOf(region, 1, 17).madeBy(requestOf(10))).toBeNull();
});

test('only the first record of a request that may not be repeated counts', () => {
  const region = regionOf();
  const state = new HandoverState(region, START, 0);
  const [created, read] = [requestOf(10), requestOf(12, Opcode.READ)];
  state.begin(created);
  record(state, 1, 50);
  record(state, 2, 51); // a consequence of the change
  state.end();
  state.begin(read);
  record(state, 3, 52);
  state.end();
  record(state, 4, 53); // of no request

  expect(successorOf(region.slice(0), 1, 1).madeBy(requestOf(10))).toBe(50);
  const successor = successorOf(region, 1, 4);
  expect(successor.madeBy(requestOf(10))).toBe(50);
  expect(successor.madeBy(requestOf(12, Opcode.READ))).toBeNull();
});

test('open handles are there for the successor with what they read, and closed ones are not', () => {
  const region = regionOf();
  const state = new HandoverState(region, START, 0);
  const handleOf = (number: number) => (state.firstHandle + number) as HandleId;
  const file = {
    ino: 7 as Inode,
    kind: 'file',
    flags: 2,
    content: null,
    hasChanged: false,
    isUnstored: false,
  } as const;
  state.begin(requestOf(10, Opcode.OPEN));
  state.opened({ ...file, handle: handleOf(0) });
  state.end();
  state.opened({ ...file, handle: handleOf(1), content: 5 as ContentId });
  state.opened({ ...file, handle: handleOf(2), kind: 'folder', flags: 0 });
  state.opened({ ...file, handle: handleOf(3) });
  state.reads(handleOf(0), (2 ** 40 + 3) as ContentId);
  state.unstored(handleOf(1), true);
  state.unstored(handleOf(3), true);
  state.unstored(handleOf(3), false);
  state.changed(handleOf(3));
  state.closed(handleOf(2));

  const successor = successorOf(region, 1, 0);

  expect([...successor.inherited()]).toEqual([
    { ...file, leftFrom: 0, handle: handleOf(0), content: 2 ** 40 + 3 },
    { ...file, leftFrom: 0, handle: handleOf(1), content: 5, isUnstored: true },
    { ...file, leftFrom: 0, handle: handleOf(3), hasChanged: true },
  ]);
  expect(successor.firstHandle).toBeGreaterThan(handleOf(3));
  // The kernel sends the open(2) again: it never got that handle.
  expect(successor.undelivered(requestOf(10, Opcode.OPEN))).toEqual({ handle: handleOf(0), ino: 7 });
  expect(successor.undelivered(requestOf(10, Opcode.OPEN))).toBeNull();
});

test('handles that are opened and closed 100,000 times use as many rows as are open at a time', () => {
  const region = regionOf();
  const state = new HandoverState(region, START, 0);
  const file = {
    ino: 7 as Inode,
    kind: 'file',
    flags: 0,
    content: null,
    hasChanged: false,
    isUnstored: false,
  } as const;
  for (let i = 0; i < 100_000; i++) {
    state.opened({ ...file, handle: (i + 1) as HandleId });
    if (i > 0) state.closed(i as HandleId);
  }

  expect([...successorOf(region, 1, 0).inherited()]).toEqual([{ ...file, leftFrom: 0, handle: 100_000 }]);
});

test('a request that two processes died of is not tried a third time', () => {
  const region = regionOf();
  const deadly = requestOf(30, Opcode.GETATTR);
  new HandoverState(region, START, 0).begin(deadly);
  const second = successorOf(region, 1, 0);
  expect(second.isPoison(deadly)).toBe(false);
  second.begin(deadly);

  const third = successorOf(region, 2, 0);

  expect(third.isPoison(deadly)).toBe(true);
  expect(third.isPoison(requestOf(32, Opcode.GETATTR))).toBe(false);
});

test("the kernel's offer is kept", () => {
  const region = regionOf();
  const offer = { major: 7, minor: 45, readAheadBytesMax: 131_072, flags: 0xf000_0001, flags2: 0x80 };
  const state = new HandoverState(region, START, 0);
  expect(state.offer).toBeNull();
  state.agreed(offer);

  expect(new HandoverState(region, START, 1).offer).toEqual(offer);
});

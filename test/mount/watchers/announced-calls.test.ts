import { beforeEach, describe, expect, test } from 'vitest';
import { FsError } from '../../../src/base/errors.ts';
import { type Inode, ROOT_INODE } from '../../../src/base/vocabulary.ts';
import type { AttributeChange, Entry, FileSystemOps, OpContext, RenameMode } from '../../../src/kernel/binding.ts';
import type { AnnouncedCallsDeps } from '../../../src/mount/watchers/announced-calls.ts';
import { type AnnouncedCall, AnnouncedCalls, lookCall } from '../../../src/mount/watchers/announced-calls.ts';
import type { NodeRecord } from '../../../src/store/tables.ts';

const FOLDER = 5 as Inode;
const OTHER = 6 as Inode;
const FILE = 7 as Inode;
const ctx = {} as OpContext;
const MTIME = { sec: 12, nsec: 34 };

/** Names with their inodes; the operations that reached the file system. */
let names: Map<string, Inode>;
let done: string[];
let nowMs: number;
let calls: AnnouncedCalls;

const at = (parent: Inode, name: string): string => `${parent}/${name}`;
const has = (ino: Inode): boolean => [...names.values()].includes(ino);
const nodeOf = (ino: Inode): NodeRecord => ({ ino, kind: 'file', local: {}, remote: null }) as unknown as NodeRecord;
const entryOf = (ino: Inode) => ({ attributes: { ino }, entryTimeoutMs: 9, attributeTimeoutMs: 9 }) as unknown as Entry;

beforeEach(() => {
  names = new Map();
  done = [];
  nowMs = 0;
  const noted =
    (op: string) =>
    (...words: unknown[]): unknown => {
      done.push([op, ...words.filter((word) => word !== ctx)].join(' '));
      return undefined;
    };
  const ops = {
    ...Object.fromEntries(
      ['mknod', 'mkdir', 'unlink', 'rmdir', 'rename', 'setattr', 'lookup'].map((op) => [op, noted(op)]),
    ),
    getattr: (ino: Inode) => ({ attributes: { ino } }),
    made: entryOf,
  } as unknown as FileSystemOps;
  const tree: AnnouncedCallsDeps['tree'] = {
    child: (parent, name) => {
      const ino = names.get(at(parent, name));
      return ino === undefined ? undefined : nodeOf(ino);
    },
    node: (ino) => (has(ino) ? nodeOf(ino) : undefined),
  };
  calls = new AnnouncedCalls({ ops, tree, clock: { elapsedMs: () => nowMs }, owner: { uid: 3, gid: 4 } });
  calls.process(100);
});

const mknod = (name = 'x') => calls.ops.mknod(FOLDER, name, 'file', 0o600, ctx);
const unlink = (name = 'x') => calls.ops.unlink(FOLDER, name, ctx);
const rename = (mode: RenameMode = 'no-replace') => calls.ops.rename(FOLDER, 'x', OTHER, 'y', mode, ctx);
const touch = (change: AttributeChange) => calls.ops.setattr(FILE, change, null, ctx);

const CREATED: AnnouncedCall = { op: 'mknod', parent: FOLDER, name: 'x', ino: FILE };
const REMOVED: AnnouncedCall = { op: 'unlink', parent: FOLDER, name: 'x' };
const MOVED: AnnouncedCall = { op: 'rename', parent: FOLDER, name: 'x', newParent: OTHER, newName: 'y', ino: FILE };
const CHANGED: AnnouncedCall = { op: 'touch', parent: FOLDER, name: 'x', ino: FILE, mtime: MTIME };

/** A ticket, its call, and the state that the call repeats. */
const REPEATED = {
  creation: { call: CREATED, make: () => mknod(), state: () => names.set(at(FOLDER, 'x'), FILE) },
  removal: { call: REMOVED, make: () => unlink(), state: () => names.delete(at(FOLDER, 'x')) },
  move: { call: MOVED, make: () => rename(), state: () => names.set(at(OTHER, 'y'), FILE) },
  change: { call: CHANGED, make: () => touch({ mtime: MTIME }), state: () => names.set(at(FOLDER, 'x'), FILE) },
} as const;

describe.each(Object.keys(REPEATED) as (keyof typeof REPEATED)[])('the repeated %s', (kind) => {
  const { call, make, state } = REPEATED[kind];

  test('is answered as done, changes nothing, and is answered so once', () => {
    state();
    calls.issue(call);

    void make();

    expect(done).toEqual([]);
    void make();
    expect(done).toHaveLength(1);
    expect(calls.returned()).toBe(true);
  });

  test('is a call of a user without a ticket, and after the announcer has replied or ended', () => {
    state();
    void make();
    expect(done).toHaveLength(1);

    calls.issue(call);
    expect(calls.returned()).toBe(false);
    void make();
    expect(done).toHaveLength(2);

    calls.issue(call);
    calls.process(null);
    void make();
    expect(done).toHaveLength(3);
  });

  test('is refused after a second, and changes nothing', () => {
    state();
    calls.issue(call);
    nowMs = 1_001;

    expect(make).toThrow(FsError);
    expect(done).toEqual([]);
  });
});

test('a removal of a name that a user has made again is refused', () => {
  calls.issue(REMOVED);
  names.set(at(FOLDER, 'x'), 99 as Inode);

  expect(() => unlink()).toThrow(FsError);
  expect(calls.ops.lookup(FOLDER, 'x', ctx)).toEqual(entryOf(99 as Inode));
  expect(done).toEqual([]);
});

test('a creation of a name that a user has removed or made anew is refused', () => {
  calls.issue(CREATED);
  expect(() => mknod()).toThrow(FsError);
  names.set(at(FOLDER, 'x'), 99 as Inode);

  expect(() => mknod()).toThrow(FsError);
  expect(done).toEqual([]);
});

test.each([
  ['the old name is used again', at(FOLDER, 'x'), 99],
  ['the new name has another file', at(OTHER, 'y'), 99],
])('a move is refused when %s', (_, place, ino) => {
  names.set(at(OTHER, 'y'), FILE);
  names.set(place, ino as Inode);
  calls.issue(MOVED);

  expect(() => rename()).toThrow(FsError);
  expect(done).toEqual([]);
});

test('a call that differs from the ticket in operation, folder, name, kind or value is a call of a user', () => {
  names.set(at(FOLDER, 'x'), FILE);
  calls.issue(CREATED);
  void mknod('other');
  void calls.ops.mknod(OTHER, 'x', 'file', 0, ctx);
  void calls.ops.mknod(FOLDER, 'x', 'fifo', 0, ctx);
  void calls.ops.mkdir(FOLDER, 'x', 0, ctx);
  void unlink();
  void calls.ops.rmdir(FOLDER, 'x', ctx);
  calls.issue(CHANGED);
  void touch({ mtime: { sec: 12, nsec: 35 } });
  void touch({ mtime: 'now' });
  void touch({ mtime: MTIME, sizeBytes: 0 });
  void touch({ mtime: MTIME, mode: 0o600 });
  void touch({ sizeBytes: 0 });
  void calls.ops.setattr(99 as Inode, { mtime: MTIME }, null, ctx);
  calls.issue(MOVED);
  void calls.ops.rename(FOLDER, 'x', OTHER, 'z', 'replace', ctx);
  void calls.ops.rename(OTHER, 'x', FOLDER, 'y', 'replace', ctx);

  expect(done).toHaveLength(14);
});

test('the kernel looks up the name as it was before the change, uncached', () => {
  names.set(at(FOLDER, 'x'), FILE);
  calls.issue(CREATED);
  expect(calls.ops.lookup(FOLDER, 'x', ctx)).toEqual({ attributes: null, entryTimeoutMs: 0 });
  expect(calls.ops.lookup(FOLDER, 'other', ctx)).toEqual({ attributes: null, entryTimeoutMs: 0 });

  names.clear();
  calls.issue(REMOVED);
  const removed = calls.ops.lookup(FOLDER, 'x', ctx) as Entry;
  expect(removed).toMatchObject({ attributes: { kind: 'file', uid: 3, gid: 4 }, entryTimeoutMs: 0 });
  expect((calls.ops.lookup(FOLDER, 'x', ctx) as Entry).attributes.ino).not.toBe(removed.attributes.ino);

  names.set(at(OTHER, 'y'), FILE);
  calls.issue(MOVED);
  expect(calls.ops.lookup(FOLDER, 'x', ctx)).toEqual({ ...entryOf(FILE), entryTimeoutMs: 0 });
  expect(calls.ops.lookup(OTHER, 'y', ctx)).toEqual({ attributes: null, entryTimeoutMs: 0 });
  expect(done).toEqual([]);
});

test('a lookup without a ticket is a user’s, and a late one finds the present state', () => {
  void calls.ops.lookup(FOLDER, 'x', ctx);
  expect(done).toHaveLength(1);
  names.set(at(FOLDER, 'x'), FILE);
  calls.issue(CREATED);
  nowMs = 1_001;

  expect(calls.ops.lookup(FOLDER, 'x', ctx)).toEqual(entryOf(FILE));
});

test('the process is known by a positive id, and proven by a lookup', () => {
  expect(calls.pid).toBe(100);
  for (const none of [0, -1, null]) {
    calls.process(none);
    expect(calls.pid).toBeNull();
  }
  calls.process(100);
  calls.issue(lookCall('nonce'));
  void calls.ops.lookup(FOLDER, 'nonce', ctx);
  expect(calls.returned()).toBe(false);
  calls.issue(lookCall('nonce'));
  void calls.ops.lookup(ROOT_INODE, 'nonce', ctx);
  expect(calls.returned()).toBe(true);
});

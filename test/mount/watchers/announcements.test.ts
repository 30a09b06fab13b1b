import { expect, test } from 'vitest';
import { createLogger } from '../../../src/base/log.ts';
import { type Inode, ROOT_INODE } from '../../../src/base/vocabulary.ts';
import type { Entry, FileSystemOps, OpContext } from '../../../src/kernel/binding.ts';
import { AnnouncedCalls } from '../../../src/mount/watchers/announced-calls.ts';
import { Announcements, announcementsOf, callOf } from '../../../src/mount/watchers/announcements.ts';
import type { CallFields } from '../../../src/mount/watchers/announcer.ts';
import type { NodeRecord, StoreReader } from '../../../src/store/tables.ts';
import type { TreeInvalidation } from '../../../src/tree/tree.ts';
import { ManualClock } from '../../kernel/manual-clock.ts';

const FOLDER = 5 as Inode;
const UNUSED = 6 as Inode;
const UNLISTED = 8 as Inode;
const FILE = 7 as Inode;
const WAS = { content: 1, sizeBytes: 3, mtime: { sec: 1, nsec: 2 } };

/** A tree with one file, in `parent`. */
function treeOf(parent: Inode, name: string, kind: NodeRecord['kind'] = 'file', bytes: object = WAS) {
  const node = { ino: FILE, kind, local: { parent, name, ...bytes } } as unknown as NodeRecord;
  const folder = { ino: FOLDER, kind: 'folder', local: {} } as unknown as NodeRecord;
  return {
    node: (ino: Inode) => (ino === FILE ? node : ino === FOLDER ? folder : undefined),
    child: (at: Inode, called: string) => (at === parent && called === name ? node : undefined),
    isComplete: (at: Inode) => at !== UNLISTED,
  };
}

const isInUse = (folder: Inode): boolean => folder !== UNUSED;
const found = (changes: readonly unknown[], tree = treeOf(FOLDER, 'x')) =>
  announcementsOf(changes as readonly TreeInvalidation[], { tree, isInUse });

test('only folders in use that were listed before are announced', () => {
  for (const parent of [FOLDER, UNUSED, UNLISTED]) {
    const tree = treeOf(parent, 'x', 'file', { ...WAS, content: 2 });
    const changes = [
      { kind: 'entry', parent, name: 'x' },
      { kind: 'deleted', parent, ino: 9, name: 'y' },
      { kind: 'inode', ino: FILE, was: WAS },
    ];
    expect(found(changes, tree)).toHaveLength(parent === FOLDER ? 3 : 0);
  }
  expect(found([{ kind: 'entry', parent: UNUSED, name: 'old', ino: FILE }])).toHaveLength(1);
});

test('a move is announced once, and attributes or a doubt about equal bytes not at all', () => {
  const moved = [
    { kind: 'entry', parent: UNUSED, name: 'old', ino: FILE },
    { kind: 'entry', parent: FOLDER, name: 'x' },
    { kind: 'inode', ino: FILE, was: null },
    { kind: 'inode', ino: FILE, was: WAS },
  ];

  expect(found(moved)).toEqual([{ what: 'moved', parent: UNUSED, name: 'old', ino: FILE }]);
});

test('a change of the tree since then decides about the call', () => {
  const tree = treeOf(FOLDER, 'x');
  const place = { parent: FOLDER, name: 'x' };

  expect(callOf({ what: 'appeared', ...place }, tree)).toEqual({ op: 'mknod', ...place, ino: FILE });
  expect(callOf({ what: 'appeared', ...place }, treeOf(FOLDER, 'x', 'folder'))).toMatchObject({ op: 'mkdir' });
  expect(callOf({ what: 'appeared', ...place }, treeOf(FOLDER, 'x', 'symlink'))).toBeNull();
  expect(callOf({ what: 'appeared', ...place, name: 'y' }, tree)).toBeNull();
  expect(callOf({ what: 'gone', ...place, isFolder: false }, tree)).toBeNull();
  expect(callOf({ what: 'gone', parent: UNUSED, name: 'x', isFolder: false }, tree)).toBeNull();
  expect(callOf({ what: 'gone', ...place, name: 'y', isFolder: true }, tree)).toMatchObject({ op: 'rmdir' });
  expect(callOf({ what: 'moved', parent: UNUSED, name: 'old', ino: FILE }, tree)).toEqual({
    ...{ op: 'rename', parent: UNUSED, name: 'old', newParent: FOLDER, newName: 'x', ino: FILE },
  });
  expect(callOf({ what: 'moved', ...place, ino: FILE }, tree)).toMatchObject({ op: 'mknod' });
  expect(callOf({ what: 'changed', ino: FILE }, tree)).toMatchObject({ op: 'touch', mtime: WAS.mtime });
  expect(callOf({ what: 'changed', ino: FILE }, treeOf(FOLDER, 'x', 'folder'))).toBeNull();
});

const ctx = {} as OpContext;
const PID = 100;

/** Announcements of files in `FOLDER`; the calls come from a process that the kernel knows as `known`. */
function announcing(known: number) {
  const clock = new ManualClock();
  const nodeOf = (name: string) =>
    ({ ino: FILE, kind: 'file', local: { parent: FOLDER, name, mtime: WAS.mtime } }) as unknown as NodeRecord;
  const inUnused = {
    ino: UNUSED,
    kind: 'file',
    local: { parent: UNUSED, name: 'y', mtime: WAS.mtime },
  } as unknown as NodeRecord;
  const tree = {
    node: (ino: Inode) =>
      ino === FOLDER ? nodeOf('folder') : ino === FILE ? nodeOf('x') : ino === UNUSED ? inUnused : undefined,
    child: (parent: Inode, name: string) => (parent === FOLDER ? nodeOf(name) : undefined),
    isComplete: () => true,
  };
  const ops = {
    lookup: () => ({ attributes: null, entryTimeoutMs: 0 }),
    made: () => ({}) as Entry,
    mknod: () => made.push('as a user'),
  } as unknown as FileSystemOps;
  const calls = new AnnouncedCalls({ ops, tree, clock, owner: { uid: 0, gid: 0 } });
  const made: string[] = [];
  let starts = 0;
  let kills = 0;
  const perform = async ([op, , , inode, name]: CallFields): Promise<number> => {
    const own = calls.pid === known ? calls.ops : ops;
    if (op === 'look') void own.lookup(ROOT_INODE, name, ctx);
    else made.push(name);
    if (op === 'mknod') void own.mknod(inode as Inode, name, 'file', 0, ctx);
    return 0;
  };
  const announcements = new Announcements({
    begin: () => {
      starts += 1;
      return { pid: PID, perform, end: () => {}, kill: () => (kills += 1) };
    },
    store: { get: () => undefined } as unknown as StoreReader,
    log: createLogger({ level: 'silent', file: null }),
    ...{ calls, tree, isInUse, clock },
  });
  announcements.start({
    directory: '/mnt',
    device: '0:1',
    ended: new Promise(() => {}),
    notificationsFlushed: async () => {},
  });
  const appeared = (count: number): void =>
    announcements.changed(Array.from({ length: count }, (_, i) => ({ kind: 'entry', parent: FOLDER, name: `${i}` })));
  const settled = async (): Promise<void> => {
    for (let turn = 0; turn < 20_000; turn++) await undefined;
  };
  return { announcements, clock, made, appeared, settled, starts: () => starts, kills: () => kills };
}

test('at most 100 calls are made in a second, and at most 1,000 changes wait', async () => {
  const { clock, made, appeared, settled } = announcing(PID);

  appeared(1_500);

  for (let second = 1; second <= 10; second++) {
    await settled();
    expect(made).toHaveLength(100 * second);
    clock.advance(1_000);
  }
  await settled();
  expect(made).toHaveLength(1_000);
  expect(made).not.toContain('as a user');
});

test('an announcer whose process id the kernel does not know makes no call', async () => {
  const { made, appeared, settled, starts, kills } = announcing(PID + 1);

  appeared(3);
  await settled();
  appeared(3);
  await settled();

  expect([made, starts(), kills()]).toEqual([[], 1, 1]);
});

test('no announcer starts before the first change', async () => {
  const { announcements, settled, starts, appeared } = announcing(PID);

  announcements.changed([{ kind: 'entry', parent: UNUSED, name: 'x' }]);
  await settled();
  expect(starts()).toBe(0);
  appeared(1);
  await settled();
  expect(starts()).toBe(1);
});

test('files in folders in use that became readable are announced as changed, and no others', async () => {
  const { announcements, made, settled } = announcing(PID);

  announcements.readable([FILE, UNUSED]);
  await settled();

  expect(made).toEqual(['x']);
});

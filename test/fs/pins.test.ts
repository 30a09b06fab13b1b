import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { ApiError, SignInError, StorageError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { PinnedSet } from '../../src/fs/pinned-set.ts';
import { Pins, type PinsDeps } from '../../src/fs/pins.ts';
import { DamagedRow } from '../../src/store/record-codec.ts';
import type { NodeRecord, StoreWriter } from '../../src/store/tables.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { watchUnhandled } from '../harness/unhandled.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

const MIB = 1024 * 1024;
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
});

/** [S-pin-1] */
test.each([
  [0, true],
  [Number.MAX_SAFE_INTEGER, false],
])(
  'a file is told to be kept only when it is, not when the disk has no room for it (reserve %i)',
  async (reserveBytes, isKept) => {
    const service = new VersionService();
    service.put('file', Buffer.alloc(3 * MIB, 'bytes'));
    const side = await FileSystemSide.build({ listing: service, source: service, contents: { reserveBytes } });
    const shutdown = new AbortController();
    const { store, tree, freshness, reader } = side;
    const pins = new Pins({
      ...{ store, tree, freshness, reader, files: side.fileSystem.files },
      ...{ changes: side.changes, pinned: side.pinned },
      ...{ clock: systemClock, log: silentLogger, shutdown: shutdown.signal, roundMs: 60_000 },
    });
    closing.push(async () => {
      pins.stop();
      await side.close();
    });
    await freshness.refresh(ROOT_INODE);
    const ino = tree.child(ROOT_INODE, 'file')?.ino ?? ROOT_INODE;

    pins.start();
    pins.pin(ino);
    await expect.poll(() => pins.stateOf(ino)).toMatchObject({ files: 1 });
    await expect.poll(() => pins.stateOf(ino)?.trouble !== null || pins.stateOf(ino)?.isComplete).toBe(true);

    expect(pins.stateOf(ino)).toMatchObject({ isComplete: isKept, filesHere: isKept ? 1 : 0 });
    expect(side.contents.usage().cacheBytes).toBe(isKept ? 3 * MIB : 0);
  },
);

test.each([
  [
    'the record of a pinned file is damaged',
    (ino: Inode) => {
      throw new DamagedRow('node', ino);
    },
    'the store is damaged',
  ],
  ['the disk takes no note of a pinned file that is gone', () => undefined, 'the disk is full'],
] as const)('where %s, that is its trouble until a later round; all else is kept', async (_, node, trouble) => {
  const unhandled = watchUnhandled();
  const service = new VersionService();
  for (const name of ['afflicted', 'sound']) service.put(name, Buffer.alloc(MIB, name));
  const side = await FileSystemSide.build({ listing: service, source: service });
  const { store, tree, freshness, reader } = side;
  await freshness.refresh(ROOT_INODE);
  const inoOf = (name: string) => tree.child(ROOT_INODE, name)?.ino ?? ROOT_INODE;
  const [afflicted, sound] = [inoOf('afflicted'), inoOf('sound')];
  // As a mount finds them that begins.
  store.transact((tx) => tx.put('meta', 'pins', JSON.stringify([afflicted, sound])));
  let rounds = 0;
  let isHealed = false;
  const soundNode = tree.node.bind(tree);
  tree.node = (ino): NodeRecord | undefined => {
    if (ino !== afflicted || isHealed) return soundNode(ino);
    rounds++;
    return node(ino);
  };
  const fullStore = {
    get: store.get.bind(store),
    transact: () => {
      throw new StorageError('the disk is full');
    },
  } as unknown as StoreWriter;
  const clock = new ManualClock();
  const pins = new Pins({
    ...{ store: fullStore, tree, freshness, reader, files: side.fileSystem.files, clock },
    ...{ changes: side.changes, pinned: new PinnedSet(store) },
    ...{ log: silentLogger, shutdown: new AbortController().signal, roundMs: 60_000 },
  });
  closing.push(async () => {
    pins.stop();
    await side.close();
  });

  pins.start();
  clock.advance(0);
  await expect.poll(() => [unhandled, pins.stateOf(sound)?.isComplete]).toEqual([[], true]);
  expect(pins.stateOf(afflicted)).toMatchObject({ isComplete: false, trouble: expect.stringContaining(trouble) });
  await nextTurn();

  clock.advance(59_999);
  expect(rounds).toBe(1);
  clock.advance(1);
  expect(rounds).toBe(2);
  isHealed = true;
  await expect
    .poll(() => {
      clock.advance(60_000);
      return pins.stateOf(afflicted);
    })
    .toMatchObject({ isComplete: true, trouble: null });
  expect(unhandled).toEqual([]);
});

describe('of a pinned folder', () => {
  const NAMES = ['a', 'b', 'c', 'd', 'e'];
  const ROUND_MS = 60_000;
  const FORBIDDEN = new ApiError(403, 'GET /data', 'this file is forbidden');

  let service: VersionService;
  let side: FileSystemSide;
  let clock: ManualClock;
  let pins: Pins;
  /** What the service refuses the bytes of a file with, by its name. */
  let refusals: Map<string, Error>;
  /** What all other bytes wait for. */
  let hold: Promise<void>;
  /** Whose bytes were asked for, in order, each file once. */
  let asked: Set<string>;
  /** Files that rounds have in hand: now, and at most so far. */
  let inHand: number;
  let mostInHand: number;

  function build(changed: Partial<PinsDeps> = {}): void {
    const { store, tree, freshness, reader } = side;
    clock = new ManualClock();
    pins = new Pins({
      ...{ store, tree, freshness, reader, files: side.fileSystem.files, clock },
      ...{ changes: side.changes, pinned: new PinnedSet(store) },
      ...{ log: silentLogger, shutdown: new AbortController().signal, roundMs: ROUND_MS },
      ...changed,
    });
    pins.start();
    pins.pin(ROOT_INODE);
    clock.advance(0);
  }

  beforeEach(async () => {
    service = new VersionService();
    [refusals, hold, asked, inHand, mostInHand] = [new Map(), Promise.resolve(), new Set(), 0, 0];
    for (const name of NAMES) service.put(name, Buffer.alloc(MIB, name));
    const read = service.readVersion.bind(service);
    service.readVersion = async (version, ...rest) => {
      const name = NAMES.find((each) => version.includes(`/file/${each}/`)) ?? '';
      asked.add(name);
      const refusal = refusals.get(name);
      if (refusal !== undefined) throw refusal;
      await hold;
      return await read(version, ...rest);
    };
    side = await FileSystemSide.build({ listing: service, source: service });
    await side.freshness.refresh(ROOT_INODE);
    const { files } = side.fileSystem;
    const [acquire, release] = [files.acquire.bind(files), files.release.bind(files)];
    files.acquire = (...of) => {
      mostInHand = Math.max(mostInHand, ++inHand);
      return acquire(...of);
    };
    files.release = (...of) => {
      inHand--;
      release(...of);
    };
    closing.push(async () => {
      pins.stop();
      await side.close();
    });
  });

  const state = () => pins.stateOf(ROOT_INODE);
  const poll = <T>(what: () => T) => expect.poll(what, { timeout: 30_000 });
  /** What a round does that waits for nobody. */
  async function turns(): Promise<void> {
    for (let turn = 0; turn < 50; turn++) await nextTurn();
  }

  test('pinned files that always fail do not keep others from being fetched, and are reported until a round is complete', async () => {
    for (const name of ['a', 'b']) refusals.set(name, FORBIDDEN);
    build();

    await poll(state).toMatchObject({ filesHere: 3, bytesHere: 3 * MIB, trouble: FORBIDDEN.message });
    expect(state()).toMatchObject({ files: 5, isComplete: false });
    await turns();

    const { opened, open } = gate();
    hold = opened;
    refusals.clear();
    asked.clear();
    clock.advance(ROUND_MS);
    await poll(() => [...asked]).toEqual(['a', 'b']);
    expect(state()).toMatchObject({ filesHere: 3, isComplete: false, trouble: FORBIDDEN.message });
    open();
    await poll(state).toMatchObject({ filesHere: 5, bytesHere: 5 * MIB, isComplete: true, trouble: null });
  });

  test('a round that met a trouble lasts as long as its last fetch: never more than two files are in hand', async () => {
    refusals.set('a', FORBIDDEN);
    const { opened, open } = gate();
    hold = opened;
    build();
    await poll(() => [...asked]).toEqual(expect.arrayContaining(['a', 'b']));

    for (let round = 0; round < 5; round++) {
      await turns();
      clock.advance(ROUND_MS);
    }
    await turns();
    expect(mostInHand).toBe(2);
    open();

    await poll(state).toMatchObject({ filesHere: 4, trouble: FORBIDDEN.message });
    expect([mostInHand, inHand]).toEqual([2, 0]);
  });

  test('what is told is told anew for who pins it again, and when the service is back', async () => {
    refusals.set('a', FORBIDDEN);
    build();
    for (const again of [() => pins.pin(ROOT_INODE), () => pins.reachable()]) {
      await poll(state).toMatchObject({ filesHere: 4, trouble: FORBIDDEN.message });
      await turns();
      again();
      expect(state()).toMatchObject({ filesHere: 4, isComplete: false, trouble: null });
      clock.advance(0);
    }
    await poll(state).toMatchObject({ filesHere: 4, trouble: FORBIDDEN.message });
  });

  test('what every file would meet ends the round, also what is under way of it', async () => {
    const error = new SignInError('somebody has to sign in');
    refusals.set('a', error);
    hold = new Promise(() => {});
    build();

    await poll(state).toMatchObject({ filesHere: 0, isComplete: false, trouble: error.message });
    expect(inHand).toBe(0);
    expect([...asked].every((name) => name === 'a' || name === 'b')).toBe(true);
  });

  test.each(['the record of a file', 'the record of the folder', 'its listing'])(
    'the other pinned files are fetched although %s cannot be read',
    async (what) => {
      const { store, tree, freshness } = side;
      const broken = tree.child(ROOT_INODE, 'b')?.ino;
      const error = what === 'its listing' ? FORBIDDEN : new DamagedRow('node', broken);
      let isHealed = false;
      const get = store.get.bind(store);
      store.get = ((table, key) => {
        if (!isHealed && what === 'the record of a file' && table === 'node' && key === broken) throw error;
        return get(table, key);
      }) as typeof store.get;
      build({
        freshness: {
          isListed: (folder) => {
            if (isHealed || what === 'the record of a file') return freshness.isListed(folder);
            if (what === 'its listing') return false;
            throw error;
          },
          ensureListed: () => Promise.reject(error),
        },
      });

      const filesHere = what === 'the record of a file' ? 4 : 5;
      await poll(state).toMatchObject({ files: filesHere, filesHere, isComplete: false, trouble: error.message });
      isHealed = true;
      await turns();
      clock.advance(ROUND_MS);
      await poll(state).toMatchObject({ files: 5, filesHere: 5, isComplete: true, trouble: null });
    },
  );
});

/** A promise and what settles it. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

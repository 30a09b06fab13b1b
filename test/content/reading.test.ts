import { setMaxListeners } from 'node:events';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { ApiError, FsError, ProtocolError, SignInError, StorageError, TransportError } from '../../src/base/errors.ts';
import { type Logger, silentLogger } from '../../src/base/log.ts';
import { BLOCK_BYTES, type ContentId, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { VersionSource } from '../../src/content/version-source.ts';
import { type Disk, storageErrorOf, systemDisk } from '../../src/store/disk.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { missingAddon, testUnless, titled } from '../harness/requirement.ts';
import { HastyClock } from '../remote/client.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { VersionService } from './version-service.ts';

const MIB = 1024 * 1024;

let service: VersionService;
let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  service = new VersionService();
  side = await FileSystemSide.build({ listing: service, source: service });
  mount = new InProcessMount(side.fileSystem);
});

afterEach(() => side.close());

/** Bytes of which no two blocks are alike. */
function bytesOf(length: number, seed = 1): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(at, 0x9e3779b1) + seed;
  return Buffer.from(words.buffer, 0, length);
}

/** A promise and what settles it. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

test.each([0, 1, 16 * 1024, 100_000, MIB, MIB + 1, 3 * MIB + 77])(
  'a file of %i bytes is read with the bytes of the service',
  async (length) => {
    const bytes = bytesOf(length);
    service.put('file', bytes);

    expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
    const asked = service.fetches.length;
    expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
    expect(service.fetches.length).toBe(asked); // what was fetched is kept
  },
);

test('a small file costs one question and one fetch', async () => {
  service.put('file', bytesOf(MIB));

  await mount.readFile('file');

  expect(service.pins).toBe(1);
  expect(service.fetches.map(({ extent }) => extent)).toEqual([{ start: 0, end: MIB }]);
});

test('a small file is fetched whole, whatever part of it is read first', async () => {
  service.put('file', bytesOf(MIB));
  const fd = await mount.open('file', 'r');

  await mount.read(fd, MIB / 2, 10);
  await mount.read(fd, 0, 10);
  await mount.read(fd, MIB - 10, 10);

  expect(service.fetches.map(({ extent }) => extent)).toEqual([{ start: 0, end: MIB }]);
  await mount.close(fd);
});

test('a read in the middle of a large file fetches little more than it needs', async () => {
  const bytes = bytesOf(8 * MIB);
  service.put('file', bytes);
  const fd = await mount.open('file', 'r');

  const read = await mount.read(fd, 5 * MIB + 10, 4096);

  expect(Buffer.compare(read, bytes.subarray(5 * MIB + 10, 5 * MIB + 10 + 4096))).toBe(0);
  const fetched = service.fetches.reduce((sum, { extent }) => sum + extent.end - extent.start, 0);
  expect(fetched).toBeLessThanOrEqual(BLOCK_BYTES);
  await mount.close(fd);
});

describe('of a large file that was listed', () => {
  /** Lists the folder, and waits until no question is under way. */
  async function list(asked: number): Promise<void> {
    await mount.readdir('/');
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    while (service.pins < asked) await turn();
    for (let calm = 0; calm < 5; calm++) await turn();
  }

  test('the version is known when it is opened: the first byte is one request away', async () => {
    const bytes = bytesOf(3 * MIB);
    service.put('large', bytes);
    service.put('small', bytesOf(MIB));

    await list(1);

    expect(service.pins).toBe(1); // the small one is asked about when it is opened
    const fd = await mount.open('large', 'r');
    expect(Buffer.compare(await mount.read(fd, MIB, 100), bytes.subarray(MIB, MIB + 100))).toBe(0);
    expect(service.pins).toBe(1);
    await mount.close(fd);
  });

  test('an answer that does not fit the listing is not kept', async () => {
    service.put('large', bytesOf(3 * MIB));
    await mount.stat('large');
    const longer = bytesOf(4 * MIB, 7);
    service.put('large', longer, 2_000_000);

    await list(1);

    expect(side.tree.child(ROOT_INODE, 'large')?.local).toMatchObject({ content: null, sizeBytes: 3 * MIB });
  });

  test('a newer listing drops what was learnt', async () => {
    service.put('large', bytesOf(3 * MIB));
    await list(1);
    const { ino } = await mount.stat('large');
    const newer = bytesOf(3 * MIB, 7);
    service.put('large', newer, 2_000_000_000);

    await side.freshness.refresh(ROOT_INODE);

    expect(side.tree.node(ino)?.local?.content).toBeNull();
    expect(Buffer.compare(await mount.readFile('large'), newer)).toBe(0);
  });

  test('only some of many large listed files are requested in advance', async () => {
    for (let n = 0; n < 300; n++) service.put(`large-${n}`, bytesOf(MIB + 1));
    const { opened, open } = gate();
    await mount.stat('large-0');
    service.gate = opened;

    await list(2);
    open();
    await list(64);

    expect(service.pins).toBeLessThan(200);
  });

  test('a service that does not answer is not asked on', async () => {
    for (let n = 0; n < 30; n++) service.put(`large-${n}`, bytesOf(MIB + 1));
    await mount.stat('large-0');
    service.failuresLeft = 100;

    await list(1);
    await list(1);

    expect(service.pins).toBeLessThanOrEqual(2); // at once
  });
});

test('two readers of one missing block cost one request', async () => {
  service.put('file', bytesOf(4 * MIB));
  const [one, two] = [await mount.open('file', 'r'), await mount.open('file', 'r')];
  const { opened, open } = gate();
  await mount.read(one, 0, 1); // pins
  service.fetches.length = 0;
  service.gate = opened;

  const reads = Promise.all([mount.read(one, 3 * MIB, 4096), mount.read(two, 3 * MIB + 4096, 4096)]);
  open();
  await reads;

  expect(service.fetches.filter(({ extent }) => extent.start <= 3 * MIB && 3 * MIB < extent.end)).toHaveLength(1);
});

/**
 * Through one handle what was asked for ahead is given up when reading goes on elsewhere, and may be asked for again. Each through its own,
 * nothing is.
 */
test.each(['one handle', 'handles of their own'])(
  'reads side by side through %s are whole, a block that comes is not asked for again',
  async (through) => {
    const blocks = 40;
    const read = fc.record({
      block: fc.nat({ max: blocks - 1 }),
      length: fc.integer({ min: 1, max: 6 * BLOCK_BYTES }),
    });
    const wave = fc.array(read, { minLength: 1, maxLength: 5 });
    const runs = 12;
    const bytes = bytesOf(blocks * BLOCK_BYTES - 77);
    for (let file = 0; file < runs; file++) service.put(`file ${file}`, bytes);
    let files = 0;
    await fc.assert(
      fc.asyncProperty(wave, wave, fc.nat({ max: 8 * BLOCK_BYTES }), async (first, second, bytesBeforeHalt) => {
        const { opened, open } = gate();
        Object.assign(service, { bytesBeforeHalt, haltedAt: () => opened });
        const before = service.fetches.length;
        const name = `file ${files++}`;
        const shared = await mount.open(name, 'r');

        const readAll = (reads: typeof first) =>
          reads.map(async ({ block, length }) => {
            const start = block * BLOCK_BYTES;
            const wanted = bytes.subarray(start, start + length);
            const fd = through === 'one handle' ? shared : await mount.open(name, 'r');
            expect(Buffer.compare(await mount.read(fd, start, length), wanted)).toBe(0);
            return fd;
          });
        const begun = readAll(first);
        await nextTurn();
        begun.push(...readAll(second));
        await nextTurn();
        open();
        for (const fd of new Set([shared, ...(await Promise.all(begun))])) await mount.close(fd);
        if (through === 'one handle') return;

        const extents = service.fetches.slice(before).map(({ extent }) => extent);
        // A short read may have requested half of a block before.
        const halves = extents.filter(({ start, end }) => end - start === BLOCK_BYTES / 2);
        expect(new Set(halves.map(({ start }) => start)).size).toBe(halves.length);
        const times = new Map<number, number>();
        for (const extent of extents.filter((each) => !halves.includes(each)))
          for (let at = extent.start; at < extent.end; at += BLOCK_BYTES) times.set(at, (times.get(at) ?? 0) + 1);
        expect([...times].filter(([at, count]) => count > 1 || at % BLOCK_BYTES !== 0)).toEqual([]);
      }),
      { numRuns: runs, endOnFailure: true }, // each has a file of its own
    );
  },
);

test('a reader goes on when its own bytes have landed, while the rest of the range is still coming', async () => {
  const bytes = bytesOf(4 * MIB);
  service.put('file', bytes);
  const fd = await mount.open('file', 'r');
  await mount.read(fd, 0, 1);
  service.fetches.length = 0;
  const { opened, open } = gate();
  service.bytesBeforeHalt = 3 * BLOCK_BYTES + 5;
  service.haltedAt = () => opened;

  let isOver = false;
  const all = mount.read(fd, 2 * MIB, 6 * BLOCK_BYTES).finally(() => {
    isOver = true;
  });
  const early = await mount.read(fd, 2 * MIB + BLOCK_BYTES, 2 * BLOCK_BYTES);

  expect(Buffer.compare(early, bytes.subarray(2 * MIB + BLOCK_BYTES, 2 * MIB + 3 * BLOCK_BYTES))).toBe(0);
  expect(isOver).toBe(false);
  expect(service.fetches.filter(({ extent }) => extent.start <= 2 * MIB && 2 * MIB < extent.end)).toHaveLength(1);
  open();
  expect(Buffer.compare(await all, bytes.subarray(2 * MIB, 2 * MIB + 6 * BLOCK_BYTES))).toBe(0);
  await mount.close(fd);
});

test('blocks of a small file that have landed are not asked for again while the rest is still coming', async () => {
  const bytes = bytesOf(300 * 1024);
  service.put('file', bytes);
  const fd = await mount.open('file', 'r');
  const { opened, open } = gate();
  service.bytesBeforeHalt = BLOCK_BYTES + 5;
  service.haltedAt = () => opened;

  await mount.read(fd, 0, 64 * 1024);
  await mount.read(fd, 64 * 1024, 64 * 1024);
  const rest = [128, 192].map((kib) => mount.read(fd, kib * 1024, 64 * 1024));
  open();
  await Promise.all(rest);

  const asked = service.fetches.reduce((sum, { extent }) => sum + extent.end - extent.start, 0);
  expect(asked).toBe(bytes.byteLength);
  await mount.close(fd);
});

testUnless(missingAddon())(
  'the read-ahead of a sequential reader is an eighth of the cache, and its open file stays within the cache size',
  async () => {
    await side.close();
    side = await FileSystemSide.build({ listing: service, source: service, contents: { cacheBytes: 40 * MIB } });
    mount = new InProcessMount(side.fileSystem);
    const sizeBytes = 96 * MIB;
    service.put('long', bytesOf(sizeBytes));
    const fetchedBytes = (): number => service.fetches.reduce((sum, { extent }) => sum + extent.end - extent.start, 0);
    const fd = await mount.open('long', 'r');
    const read = async (from: number, to: number): Promise<void> => {
      for (let at = from; at < to; at += 64 * 1024) await mount.read(fd, at, 64 * 1024);
    };
    await side.contents.takeStock(new AbortController().signal);

    await read(0, 25 * MIB);
    expect(fetchedBytes()).toBeLessThanOrEqual(30 * MIB);

    await read(25 * MIB, 90 * MIB);
    side.contents.collect();
    // What is read just now may take 32 MiB beyond the cache size.
    expect(side.contents.usage().cacheBytes).toBeLessThanOrEqual(73 * MIB);
    expect(fetchedBytes()).toBeLessThanOrEqual(sizeBytes);
    await mount.close(fd);
  },
);

test('a range that is cut is gone on with from the last block that landed', async () => {
  const bytes = bytesOf(4 * MIB);
  service.put('file', bytes);
  const fd = await mount.open('file', 'r');
  await mount.read(fd, 0, 1);
  service.fetches.length = 0;
  service.bytesBeforeHalt = 2 * BLOCK_BYTES + 5;
  service.haltedAt = async () => {
    service.haltedAt = async () => {};
    throw new TransportError('the line is cut');
  };

  const read = await mount.read(fd, 3 * MIB, 5 * BLOCK_BYTES);

  expect(Buffer.compare(read, bytes.subarray(3 * MIB, 3 * MIB + 5 * BLOCK_BYTES))).toBe(0);
  expect(service.fetches.map(({ extent }) => extent)).toEqual([
    { start: 3 * MIB, end: 3 * MIB + 5 * BLOCK_BYTES },
    { start: 3 * MIB + 2 * BLOCK_BYTES, end: 3 * MIB + 5 * BLOCK_BYTES },
  ]);
  await mount.close(fd);
});

test.skipIf(missingAddon() !== null).each(['the range', 'everything'])(
  titled('what the cache gave up while %s was still coming is fetched again, not taken for zeros', missingAddon()),
  async (sent) => {
    let skewMs = 0;
    const clock: Clock = { ...systemClock, elapsedMs: () => systemClock.elapsedMs() + skewMs };
    const small = await FileSystemSide.build({
      ...{ listing: service, source: service, clock },
      contents: { cacheBytes: 2 * MIB },
    });
    await small.contents.takeStock(new AbortController().signal);
    const mount = new InProcessMount(small.fileSystem);
    const bytes = bytesOf(4 * MIB);
    service.put('file', bytes);
    service.put('other', bytesOf(4 * MIB, 7));
    const interrupt = new AbortController();
    const hasty = new InProcessMount(small.fileSystem, { signal: interrupt.signal });
    const [fd, hastyFd] = [await mount.open('file', 'r'), await hasty.open('file', 'r')];
    const other = await mount.open('other', 'r');
    await mount.read(fd, 3 * MIB, MIB);
    service.ignoresRange = sent === 'everything';
    const { opened, open } = gate();
    service.bytesBeforeHalt = sent === 'everything' ? 3.5 * MIB + 100 : MIB + BLOCK_BYTES;
    service.haltedAt = () => opened;
    const all = hasty.read(hastyFd, MIB, MIB + 3 * BLOCK_BYTES).catch(() => {});
    await mount.read(fd, MIB, 10); // the beginning has landed
    interrupt.abort(new DOMException('a signal', 'AbortError'));
    await all;
    [service.bytesBeforeHalt, service.ignoresRange] = [Number.POSITIVE_INFINITY, false];

    skewMs += 31_000; // now what is open may go, too
    await mount.read(other, MIB, MIB);
    await mount.read(other, 2 * MIB, MIB);
    const content = small.tree.child(ROOT_INODE, 'file')?.local?.content as ContentId;
    expect(small.contents.pieces(content, { start: MIB, end: MIB + 1 })[0]?.kind).toBe('missing');
    open();

    await mount.read(fd, 2 * MIB + 2 * BLOCK_BYTES, 1); // the end has landed
    for (let at = 0; at < 4 * MIB; at += MIB)
      expect(Buffer.compare(await mount.read(fd, at, MIB), bytes.subarray(at, at + MIB)), `${at}`).toBe(0);
    await small.close();
  },
);

test('a disk that fills while bytes land is not heard of by who reads them: they are kept in memory for him', async () => {
  const bytes = bytesOf(4 * MIB);
  service.put('file', bytes);
  const fd = await mount.open('file', 'r');
  service.bytesBeforeHalt = 2 * BLOCK_BYTES + 100;
  service.haltedAt = () => Promise.reject(new StorageError('no room', { full: true }));

  const found = await mount.read(fd, 2 * MIB, MIB);

  expect(Buffer.compare(found, bytes.subarray(2 * MIB, 3 * MIB))).toBe(0);
  await mount.close(fd);
});

test('on a disk that became read-only, uncached files are read and not cached', async () => {
  await side.close();
  let isReadOnly = false;
  const refused = (what: string): StorageError => storageErrorOf(Object.assign(new Error(), { code: 'EROFS' }), what);
  const write: Disk['write'] = (...args) => {
    if (isReadOnly) throw refused('write failed');
    systemDisk.write(...args);
  };
  const open: Disk['open'] = (path, how) => {
    if (isReadOnly && how !== 'read') throw refused(`cannot open ${path}`);
    return systemDisk.open(path, how);
  };
  const source: VersionSource = {
    newestVersion: (...args) => service.newestVersion(...args),
    versionOfLength: (...args) => service.versionOfLength(...args),
    readVersion: (version, extent, sizeBytes, target, ...rest) => {
      if (isReadOnly && target.kind === 'file') return Promise.reject(refused(target.path));
      return service.readVersion(version, extent, sizeBytes, target, ...rest);
    },
  };
  side = await FileSystemSide.build({ listing: service, source, disk: { ...systemDisk, write, open } });
  mount = new InProcessMount(side.fileSystem);
  const [begun, unread] = [bytesOf(4 * MIB), bytesOf(3 * MIB, 7)];
  service.put('begun', begun);
  service.put('unread', unread);
  service.put('small', Buffer.from('small'));
  const fd = await mount.open('begun', 'r');
  await mount.read(fd, 0, 1);
  isReadOnly = true;

  expect(Buffer.compare(await mount.read(fd, 3 * MIB, MIB), begun.subarray(3 * MIB))).toBe(0);
  expect(Buffer.compare(await mount.readFile('unread'), unread)).toBe(0);
  expect((await mount.readFile('small')).toString()).toBe('small');
  await expect(mount.writeFile('small', Buffer.from('mine'))).rejects.toThrow();

  // What was learnt meanwhile is recorded with the next change.
  isReadOnly = false;
  await mount.writeFile('made', Buffer.from('here'));
  await mount.close(fd);
});

test('a range of which all has landed is not asked for again when the line is cut behind it', async () => {
  const paused = gate();
  let isCut = false;
  const sleep: Clock['sleep'] = async (ms, signal) => (isCut ? paused.open() : systemClock.sleep(ms, signal));
  const clock: Clock = { ...systemClock, sleep };
  const hasty = await FileSystemSide.build({ listing: service, source: service, clock });
  const mount = new InProcessMount(hasty.fileSystem);
  service.put('file', bytesOf(4 * MIB));
  const fd = await mount.open('file', 'r');
  await mount.read(fd, MIB, 1);
  service.fetches.length = 0;
  const read = service.readVersion.bind(service);
  service.readVersion = async (...asked) => {
    const fetched = await read(...asked);
    if (isCut) return fetched;
    isCut = true;
    throw new TransportError('the line is cut');
  };

  await mount.read(fd, 3 * MIB, 2 * BLOCK_BYTES);
  await paused.opened;
  await new Promise((resolve) => setImmediate(resolve));

  expect(service.fetches.map(({ extent }) => extent)).toEqual([{ start: 3 * MIB, end: 3 * MIB + 2 * BLOCK_BYTES }]);
  await hasty.close();
});

test('a file that is read from its start is read ahead from the first answer on', async () => {
  service.put('file', bytesOf(4 * MIB));
  const fd = await mount.open('file', 'r');

  await mount.read(fd, 0, 2 * BLOCK_BYTES);

  const asked = Math.max(...service.fetches.map(({ extent }) => extent.end));
  expect(asked).toBeGreaterThan(2 * BLOCK_BYTES);
  await mount.close(fd);
});

/** [S-read-3] */
test('bytes that somebody had asked for and gave up are asked for anew, however slowly the rest of the read came', async () => {
  const bytes = bytesOf(2 * MIB);
  service.put('file', bytes);
  const slowly: VersionSource = {
    newestVersion: (...asked) => service.newestVersion(...asked),
    versionOfLength: (...asked) => service.versionOfLength(...asked),
    async readVersion(...asked) {
      const [, extent, , { isAhead }, written, signal] = asked;
      // What is given up ends over there a moment later.
      if (isAhead === true)
        await new Promise((_, reject) => signal.addEventListener('abort', () => setTimeout(reject, 20, signal.reason)));
      if (extent.start === BLOCK_BYTES) {
        for (let n = 0; n < 8; n++) {
          await sleep(50);
          written({ start: extent.start, end: extent.start });
        }
      }
      return service.readVersion(...asked);
    },
  };
  const slow = await FileSystemSide.build({ listing: service, source: slowly, readTimeoutMs: 200 });
  onTestFinished(() => slow.close());
  const mounted = new InProcessMount(slow.fileSystem);
  const fd = await mounted.open('file', 'r');
  await mounted.read(fd, MIB, 1);
  const content = slow.tree.child(ROOT_INODE, 'file')?.local?.content as ContentId;
  const ahead = new AbortController();
  slow.reader.prefetch(content, { start: 0, end: BLOCK_BYTES }, ahead.signal);
  ahead.abort();

  expect(Buffer.compare(await mounted.read(fd, 0, 2 * BLOCK_BYTES), bytes.subarray(0, 2 * BLOCK_BYTES))).toBe(0);
  await mounted.close(fd);
});

test('interrupting one of two who wait for the same bytes does not fail the other', async () => {
  const bytes = bytesOf(4 * MIB);
  service.put('file', bytes);
  const interrupt = new AbortController();
  const hasty = new InProcessMount(side.fileSystem, { signal: interrupt.signal });
  const [one, two] = [await hasty.open('file', 'r'), await mount.open('file', 'r')];
  await mount.read(two, 0, 1);
  const { opened, open } = gate();
  service.gate = opened;

  const first = hasty.read(one, 2 * MIB, 100);
  const second = mount.read(two, 2 * MIB, 100);
  interrupt.abort(new DOMException('a signal', 'AbortError'));
  await expect(first).rejects.toMatchObject({ errno: 'EINTR' });
  open();

  expect(Buffer.compare(await second, bytes.subarray(2 * MIB, 2 * MIB + 100))).toBe(0);
});

test('a line that is cut is tried again behind the reader, for the version and for its bytes', async () => {
  const bytes = bytesOf(200_000);
  service.put('file', bytes);
  const fd = await mount.open('file', 'r');
  service.failuresLeft = 2;

  expect(Buffer.compare(await mount.read(fd, 0, 200_000), bytes)).toBe(0);
  expect(service.failuresLeft).toBe(0);
  expect(service.pins).toBe(3);
  await mount.close(fd);
});

test('a read without the service is ETIMEDOUT after --read-timeout, never the end of the file', async () => {
  const clock = new HastyClock();
  clock.sleep = systemClock.sleep;
  const told = await FileSystemSide.build({ listing: service, source: service, clock });
  const mount = new InProcessMount(told.fileSystem);
  service.put('file', bytesOf(4 * MIB));
  const fd = await mount.open('file', 'r');
  await mount.read(fd, 0, 1);
  service.failuresLeft = 1_000;
  const stoppedMs = clock.elapsedMs();
  // The waits between two tries are over at once, and count.
  clock.sleep = async (ms) => {
    clock.aheadMs += ms;
    await nextTurn();
  };

  await expect(mount.read(fd, 3 * MIB, 100)).rejects.toMatchObject({ errno: 'ETIMEDOUT' });
  expect(clock.elapsedMs() - stoppedMs).toBeGreaterThan(25_000);

  // Back again, everything is as before.
  service.failuresLeft = 0;
  clock.sleep = systemClock.sleep;
  expect(await mount.read(fd, 2 * MIB, 100)).toHaveLength(100);
  await mount.close(fd);
  await told.close();
});

test('a read of a version that was deleted meanwhile is ESTALE, never short data', async () => {
  const warnings: string[] = [];
  const log: Logger = { ...silentLogger, warn: (_fields: unknown, message?: string) => warnings.push(String(message)) };
  const told = await FileSystemSide.build({ listing: service, source: service, log });
  const mount = new InProcessMount(told.fileSystem);
  const { version } = service.put('file', bytesOf(4 * MIB));
  const fd = await mount.open('file', 'r');
  await mount.read(fd, 0, 1);
  service.put('file', bytesOf(4 * MIB, 2));
  service.dropVersion(version);

  await expect(mount.read(fd, 3 * MIB, 100)).rejects.toMatchObject({ errno: 'ESTALE' });
  expect(warnings).toContain('version gone while it was read');
  await mount.close(fd);
  await told.close();
});

test('a service without Range is read once, and all of it is kept', async () => {
  const bytes = bytesOf(3 * MIB);
  service.put('file', bytes);
  service.ignoresRange = true;
  const fd = await mount.open('file', 'r');

  await mount.read(fd, 2 * MIB, 10);
  const asked = service.fetches.length;
  for (let at = 0; at < bytes.length; at += MIB) {
    expect(Buffer.compare(await mount.read(fd, at, MIB), bytes.subarray(at, at + MIB))).toBe(0);
  }

  expect(service.fetches.length).toBe(asked);
  await mount.close(fd);
});

describe('fetching ahead', () => {
  test('says of each fetch whether somebody waits for it: the line is theirs first', async () => {
    service.put('file', bytesOf(16 * MIB));
    const fd = await mount.open('file', 'r');
    await mount.read(fd, 0, MIB);
    await expect.poll(() => service.fetches.length).toBeGreaterThan(1);

    const waitedFor = service.fetches.filter(({ isAhead }) => !isAhead);
    expect(waitedFor.map(({ extent }) => extent)).toEqual([{ start: 0, end: MIB }]);
    await mount.close(fd);
  });

  test('meets damage further on, which is no error for who reads here', async () => {
    const bytes = bytesOf(16 * MIB);
    service.put('file', bytes);
    const { contents } = side;
    const pieces = contents.pieces.bind(contents);
    let refused = 0;
    contents.pieces = (id, extent) => {
      if (extent.end <= 2 * MIB) return pieces(id, extent);
      refused += 1;
      throw new FsError('EIO', 'a block is not what was written');
    };
    const fd = await mount.open('file', 'r');

    for (let at = 0; at < 2 * MIB; at += MIB / 8)
      expect(Buffer.compare(await mount.read(fd, at, MIB / 8), bytes.subarray(at, at + MIB / 8))).toBe(0);

    expect(refused).toBeGreaterThan(0);
    await expect(mount.read(fd, 2 * MIB, MIB)).rejects.toMatchObject({ errno: 'EIO' });
    await mount.close(fd);
  });

  test('ends with the handle, but not where a reader waits for the same bytes', async () => {
    const bytes = bytesOf(32 * MIB);
    service.put('file', bytes);
    const [one, two] = [await mount.open('file', 'r'), await mount.open('file', 'r')];
    await mount.read(one, 0, 1);
    const { opened, open } = gate();
    service.gate = opened;
    const reads: Promise<unknown>[] = [];
    for (let at = MIB; at < 3 * MIB; at += 256 * 1024) reads.push(mount.read(one, at, 256 * 1024));
    await expect.poll(() => service.fetches.filter(({ isAhead }) => isAhead).length).toBeGreaterThan(0);
    const { start } = service.fetches.findLast(({ isAhead }) => isAhead)?.extent ?? { start: 0 };
    const joined = mount.read(two, start, 1000);

    await mount.close(one);
    await nextTurn();
    open();

    expect(Buffer.compare(await joined, bytes.subarray(start, start + 1000))).toBe(0);
    await Promise.all(reads);
    await mount.close(two);
  });

  test('has a budget over all handles: what nobody waits for never takes more of the line', async () => {
    const length = 300 * MIB;
    const step = 8 * MIB;
    for (const name of ['one', 'two']) service.put(name, Buffer.alloc(length));
    for (const name of ['one', 'two']) {
      const fd = await mount.open(name, 'r');
      await mount.read(fd, length - 1, 1);
      await mount.close(fd);
    }
    const [one, two] = ['one', 'two'].map((name) => side.tree.child(ROOT_INODE, name)?.local?.content as ContentId);
    const { opened, open } = gate();
    service.gate = opened;
    service.fetches.length = 0;
    const asked = () => service.fetches.reduce((sum, { extent }) => sum + extent.end - extent.start, 0);
    const handle = new AbortController();
    setMaxListeners(0, handle.signal); // as of an open file (fs/file-handle): one for each fetch under way
    for (let at = 0; at + step < length; at += step)
      side.reader.prefetch(one as ContentId, { start: at, end: at + step }, handle.signal);
    expect(asked()).toBeGreaterThanOrEqual(256 * MIB);
    expect(asked()).toBeLessThan(256 * MIB + step);
    const before = asked();
    const other = new AbortController();
    side.reader.prefetch(two as ContentId, { start: 0, end: step }, other.signal);
    expect(asked()).toBe(before);

    handle.abort(new DOMException('closed', 'AbortError'));
    open();
    const isTaken = () => {
      side.reader.prefetch(two as ContentId, { start: 0, end: step }, other.signal);
      return asked() > before;
    };
    await expect.poll(isTaken, { interval: 5, timeout: 30_000 }).toBe(true);
    other.abort(new DOMException('closed', 'AbortError'));
  });

  test.each([
    ['closed', (fd: number) => mount.close(fd)],
    ['read elsewhere', (fd: number) => mount.read(fd, 30 * MIB + 5, 10)],
  ] as const)('a handle that is %s at once leaves no fetch of the rest behind', async (_, turn) => {
    service.put('file', bytesOf(32 * MIB));
    const fd = await mount.open('file', 'r');
    await mount.read(fd, 0, 1);
    const { opened, open } = gate();
    service.gate = opened;
    const reads: Promise<unknown>[] = [];
    for (let at = MIB; at < 3 * MIB; at += 256 * 1024) reads.push(mount.read(fd, at, 256 * 1024));
    await expect.poll(() => service.fetches.length).toBeGreaterThan(2);
    reads.push(turn(fd));
    await nextTurn();
    open();
    await Promise.all(reads);
    service.gate = null;

    const { ino } = await mount.stat('file');
    const content = side.store.get('node', ino)?.local?.content;
    if (content == null) throw new Error('not pinned');
    const missing = side.contents
      .pieces(content, { start: 4 * MIB, end: 32 * MIB })
      .filter(({ kind }) => kind === 'missing');
    expect(missing.reduce((sum, { length }) => sum + length, 0)).toBeGreaterThan(20 * MIB);
  });
});

describe('one open never mixes two versions', () => {
  test('another client uploads between any two reads', async () => {
    const before = bytesOf(4 * MIB, 1);
    const after = bytesOf(4 * MIB, 2);
    service.put('file', before, 1_000_000);
    const fd = await mount.open('file', 'r');
    const pieces: Buffer[] = [];
    for (let at = 0; at < before.length; at += MIB) {
      pieces.push(await mount.read(fd, at, MIB));
      service.put('file', after, 2_000_000 + at);
      await side.freshness.refresh();
    }
    expect(Buffer.compare(Buffer.concat(pieces), before)).toBe(0);
    await mount.close(fd);

    expect(Buffer.compare(await mount.readFile('file'), after)).toBe(0);
  });

  test.each([
    ['as long', 3 * MIB],
    ['longer', 3 * MIB + 100_000],
    ['shorter', 2 * MIB + 10],
  ])(
    'one open reads one version although another client uploads one that is %s between any two requests',
    async (_how, length) => {
      const versions = [bytesOf(3 * MIB, 1), bytesOf(length, 2)] as const;
      let isOver = false;
      for (let nth = 1; !isOver; nth++) {
        const service = new VersionService();
        const struck = await FileSystemSide.build({ listing: service, source: service });
        const mount = new InProcessMount(struck.fileSystem);
        service.put('file', versions[0]);
        await mount.stat('file');
        let asked = 0;
        const strike = (): void => {
          if (++asked === nth) service.put('file', versions[1], 2_000_000);
        };
        for (const name of ['newestVersion', 'versionOfLength', 'readVersion'] as const) {
          const answer = service[name].bind(service) as (...args: unknown[]) => Promise<never>;
          service[name] = (...args: unknown[]) => {
            strike();
            return answer(...args);
          };
        }

        const fd = await mount.open('file', 'r');
        const pieces: Buffer[] = [];
        for (let at = 0, got = 1; got > 0; at += got) {
          const piece = await mount.read(fd, at, 300_000);
          pieces.push(piece);
          got = piece.byteLength;
        }
        const found = Buffer.concat(pieces);
        expect(
          versions.some((bytes) => bytes.equals(found)),
          `before request ${nth}: ${found.byteLength} bytes`,
        ).toBe(true);
        await mount.close(fd);
        isOver = asked < nth;
        if (isOver) expect(nth, 'requests that were preceded').toBeGreaterThan(3);
        await struck.close();
      }
    },
  );

  test.each([
    ['longer', 300_000],
    ['shorter', 10],
  ])(
    'a %s version than the listed one is not mixed into an open file; the next open shows it',
    async (_how, length) => {
      const before = bytesOf(1_000);
      service.put('file', before);
      expect((await mount.stat('file')).sizeBytes).toBe(1_000);
      const newer = bytesOf(length, 7);
      service.put('file', newer, 2_000_000);

      const fd = await mount.open('file');
      expect(Buffer.compare(await mount.read(fd, 0, 2_000), before)).toBe(0);
      expect((await mount.fstat(fd)).sizeBytes).toBe(1_000);
      const next = await mount.open('file');
      expect(Buffer.compare(await mount.read(next, 0, 400_000), newer)).toBe(0);
      expect((await mount.fstat(next)).sizeBytes).toBe(length);
      await mount.close(fd);
      await mount.close(next);
    },
  );

  test('a newer version is read where the service dropped the one that the listing told of', async () => {
    const { version } = service.put('file', bytesOf(1_000));
    expect((await mount.stat('file')).sizeBytes).toBe(1_000);
    const longer = bytesOf(300_000, 7);
    service.put('file', longer, 2_000_000);
    service.dropVersion(version);

    expect(Buffer.compare(await mount.readFile('file'), longer)).toBe(0);
    expect((await mount.stat('file')).sizeBytes).toBe(300_000);
  });
});

describe('writing over what the service has', () => {
  test.each([10, 20_000, 400_000, 2 * MIB])(
    'one changed byte leaves the others as they were (%i bytes)',
    async (length) => {
      const bytes = bytesOf(length);
      service.put('file', bytes);
      const fd = await mount.open('file', 'r+');
      const at = Math.floor(length / 2);
      await mount.write(fd, at, Buffer.from('X'));
      await mount.close(fd);

      bytes.write('X', at);
      expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
    },
  );

  test('the base is fetched behind the writer, so that its loss on the service does not matter', async () => {
    const bytes = bytesOf(3 * MIB);
    const { version } = service.put('file', bytes);
    const fd = await mount.open('file', 'r+');
    await mount.write(fd, 0, Buffer.from('X'));
    await mount.close(fd);
    const { ino } = await mount.stat('file');
    const content = side.store.get('node', ino)?.local?.content;
    if (content == null) throw new Error('no draft');
    await side.reader.complete(content, { start: 0, end: bytes.length }, AbortSignal.timeout(5_000));
    service.dropVersion(version);

    bytes.write('X', 0);
    expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
  });

  test('a base that cannot be had at first is fetched when the service is back, although nobody asks for it', async () => {
    const sleep: Clock['sleep'] = (_ms, signal) => systemClock.sleep(1, signal);
    const hasty = await FileSystemSide.build({
      ...{ listing: service, source: service, readTimeoutMs: 20 },
      clock: { ...systemClock, sleep },
    });
    const mount = new InProcessMount(hasty.fileSystem);
    const bytes = bytesOf(3 * MIB);
    const { version } = service.put('file', bytes);
    const fd = await mount.open('file', 'r+');
    await mount.read(fd, 0, 1);
    service.failuresLeft = Number.POSITIVE_INFINITY;
    await mount.write(fd, 0, Buffer.from('X'));
    await mount.close(fd);
    const asked = service.fetches.length;
    await expect.poll(() => service.fetches.length, { timeout: 30_000 }).toBeGreaterThan(asked + 10);
    service.failuresLeft = 0;
    const base = hasty.store.get('version', version) as ContentId;
    const isHere = () =>
      hasty.contents.pieces(base, { start: 0, end: bytes.length }).every(({ kind }) => kind === 'slice');
    await expect.poll(isHere, { timeout: 30_000 }).toBe(true);

    service.dropVersion(version);
    bytes.write('X', 0);
    expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
    await hasty.close();
  });

  test.each([
    ['has trouble of its own', true, () => new ApiError(503, 'GET /data', 'unavailable')],
    ['has had too many requests', true, () => new ApiError(429, 'GET /data', 'too many')],
    ['answers with what does not fit', true, () => new ProtocolError('no XML')],
    ['waits for somebody to sign in', true, () => new SignInError('signed out')],
    ['refuses it', false, () => new ApiError(403, 'GET /data', 'forbidden')],
    ['no longer has it', false, () => new ApiError(404, 'GET /data', 'no such version')],
  ] as const)(
    'where the service %s for two minutes, the base is asked for again behind the writer: %s',
    async (_, isAskedAgain, refusal) => {
      const clock = new ManualClock();
      const patient = await FileSystemSide.build({ clock, listing: service, source: service });
      const mount = new InProcessMount(patient.fileSystem);
      const bytes = bytesOf(3 * MIB);
      const { version } = service.put('file', bytes);
      const fd = await mount.open('file', 'r+');
      await mount.read(fd, 0, 1);
      const read = service.readVersion.bind(service);
      let isRefused = true;
      let asked = 0;
      service.readVersion = (...of) => {
        asked++;
        return isRefused ? Promise.reject(refusal()) : read(...of);
      };
      /** Time passes in steps, and what comes of each happens. */
      const pass = async (seconds: number): Promise<void> => {
        for (let second = 0; second < seconds; second++) {
          clock.advance(1_000);
          for (let turn = 0; turn < 5; turn++) await nextTurn();
        }
      };
      await mount.write(fd, 0, Buffer.from('X'));
      await mount.close(fd);
      await pass(120);
      expect(asked).toBeGreaterThan(0);
      isRefused = false;
      asked = 0;
      // Longer than the longest pause.
      await pass(90);

      const base = patient.store.get('version', version) as ContentId;
      const pieces = patient.contents.pieces(base, { start: 0, end: bytes.length });
      expect(pieces.every(({ kind }) => kind === 'slice')).toBe(isAskedAgain);
      if (!isAskedAgain) expect(asked).toBe(0);
      await patient.close();
    },
  );

  test('truncating to nothing asks the service for nothing', async () => {
    service.put('file', bytesOf(3 * MIB));
    await mount.writeFile('file', Buffer.from('new'));

    expect((await mount.readFile('file')).toString()).toBe('new');
    expect(service.pins).toBe(0);
    expect(service.fetches).toEqual([]);
  });

  test('a file cut short and made longer again has zeros, not old bytes, at its end', async () => {
    const bytes = bytesOf(300_000);
    service.put('file', bytes);
    await mount.truncate('file', 100_000);
    await mount.truncate('file', 200_000);

    const found = await mount.readFile('file');
    expect(Buffer.compare(found, Buffer.concat([bytes.subarray(0, 100_000), Buffer.alloc(100_000)]))).toBe(0);
  });

  test('a file that is removed while nobody has read it can still be read by who has it open', async () => {
    const bytes = bytesOf(100_000);
    service.put('file', bytes);
    const fd = await mount.open('file', 'r');
    await mount.unlink('file');

    expect(Buffer.compare(await mount.read(fd, 0, 200_000), bytes)).toBe(0);
    await mount.close(fd);
  });
});

import { copyFileSync, mkdirSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { StorageError } from '../../src/base/errors.ts';
import { type Logger, silentLogger } from '../../src/base/log.ts';
import { type Disk, storageErrorOf, systemDisk } from '../../src/store/disk.ts';
import { Journal } from '../../src/store/journal.ts';
import { HEADER_BYTES, RECORD_HEADER_BYTES } from '../../src/store/journal-segment.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

interface Opened {
  readonly journal: Journal;
  readonly replayed: { readonly sequence: number; readonly text: string }[];
}

async function open(
  directory: string,
  options: { applied?: number; segmentBytes?: number; disk?: Disk; clock?: Clock; log?: Logger } = {},
): Promise<Opened> {
  const replayed: { sequence: number; text: string }[] = [];
  const { applied = 0, segmentBytes = 4096, disk = systemDisk, clock = systemClock, log = silentLogger } = options;
  const journal = await Journal.open({ directory, segmentBytes, disk, log, clock }, applied, ({ sequence, payload }) =>
    replayed.push({ sequence, text: Buffer.from(payload).toString() }),
  );
  return { journal, replayed };
}

function append(journal: Journal, text: string): number {
  const bytes = Buffer.from(text);
  return journal.append(bytes.byteLength, (target) => target.set(bytes));
}

const textOf = (n: number) => `record ${n} ${'x'.repeat((n * 37) % 300)}`;

test('what was appended comes back, over many files and several starts', async () => {
  const directory = join(stores.directory(), 'journal');
  let expected = 0;
  for (let run = 0; run < 3; run++) {
    const { journal, replayed } = await open(directory);
    expect(replayed.map(({ text }) => text)).toEqual(Array.from({ length: expected }, (_, i) => textOf(i + 1)));
    for (let i = 0; i < 60; i++) expect(append(journal, textOf(++expected))).toBe(expected);
    expect(journal.files).toBeGreaterThan(2);
    await journal.close();
  }
});

test('a record larger than a file gets a file of its own', async () => {
  const directory = join(stores.directory(), 'journal');
  const { journal } = await open(directory);
  append(journal, 'small');
  append(journal, 'y'.repeat(10_000));
  append(journal, 'small again');
  await journal.close();

  const { journal: next, replayed } = await open(directory);
  expect(replayed.map(({ text }) => text.length)).toEqual([5, 10_000, 11]);
  await next.close();
});

/** A journal file that holds `record 1` to `record 3`. */
async function threeRecords(): Promise<{ readonly name: string; readonly whole: Buffer }> {
  const directory = join(stores.directory(), 'journal');
  const { journal } = await open(directory, { segmentBytes: 512 });
  for (let i = 1; i <= 3; i++) append(journal, `record ${i}`);
  await journal.close();
  const [name] = readdirSync(directory).filter((file) => file !== 'spare') as [string];
  const whole = readFileSync(join(directory, name));
  return { name, whole };
}

test('a record that is torn at any byte is not there, and nothing before it is lost', async () => {
  const { name, whole } = await threeRecords();
  const recordBytes = RECORD_HEADER_BYTES + 'record 1'.length;
  const last = HEADER_BYTES + 2 * recordBytes;

  for (let cut = 0; cut <= recordBytes; cut++) {
    for (const fill of [0x00, 0xff]) {
      const torn = join(stores.directory(), 'journal');
      mkdirSync(torn);
      const bytes = Buffer.from(whole);
      bytes.fill(fill, last + cut, last + recordBytes);
      writeFileSync(join(torn, name), bytes);
      const { journal: next, replayed } = await open(torn, { segmentBytes: 512 });
      const isWhole = bytes.equals(whole);
      expect(replayed, `cut at ${cut} with ${fill}`).toHaveLength(isWhole ? 3 : 2);
      expect(append(next, 'next')).toBe(isWhole ? 4 : 3);
      await next.close();
    }
  }
});

test('wherever a bit flips in a file, the log says that records are forgotten', async () => {
  const { name, whole } = await threeRecords();

  for (let at = -1; at < HEADER_BYTES + 3 * (RECORD_HEADER_BYTES + 'record 1'.length); at++) {
    const damaged = join(stores.directory(), 'journal');
    mkdirSync(damaged);
    const bytes = Buffer.from(whole);
    if (at >= 0) bytes.writeUInt8(bytes.readUInt8(at) ^ 0x10, at);
    writeFileSync(join(damaged, name), bytes);
    let told = 0;
    const log: Logger = Object.create(silentLogger, { warn: { value: () => told++ } });
    const { journal: next, replayed } = await open(damaged, { segmentBytes: 512, log });
    expect([replayed.length < 3, told], `flipped at ${at}`).toEqual(at < 0 ? [false, 0] : [true, 1]);
    await next.close();
  }
});

test('a file that is cut short loses its end only', async () => {
  const directory = join(stores.directory(), 'journal');
  const { journal } = await open(directory);
  for (let i = 1; i <= 5; i++) append(journal, textOf(i));
  await journal.close();
  const [name] = readdirSync(directory).filter((file) => file !== 'spare') as [string];
  truncateSync(join(directory, name), HEADER_BYTES + RECORD_HEADER_BYTES + textOf(1).length + 5);

  const { journal: next, replayed } = await open(directory);
  expect(replayed).toEqual([{ sequence: 1, text: textOf(1) }]);
  await next.close();
});

test('behind damage nothing is believed, not in later files and not at later starts', async () => {
  const directory = join(stores.directory(), 'journal');
  const { journal } = await open(directory);
  for (let i = 1; i <= 60; i++) append(journal, textOf(i));
  await journal.close();
  const files = readdirSync(directory)
    .filter((file) => file !== 'spare')
    .sort();
  expect(files.length).toBeGreaterThan(2);
  // Records 2… of the first file are lost; those of the later files are whole.
  const first = join(directory, files[0] as string);
  const bytes = readFileSync(first);
  bytes.fill(0, HEADER_BYTES + RECORD_HEADER_BYTES + textOf(1).length);
  writeFileSync(first, bytes);

  const { journal: second, replayed } = await open(directory);
  expect(replayed.map(({ sequence }) => sequence)).toEqual([1]);
  expect(append(second, 'other history 2')).toBe(2);
  await second.close();

  // Even when LMDB has come to where the old files would continue.
  for (const applied of [0, 1, 2, 30]) {
    const copy = join(stores.directory(), 'journal');
    mkdirSync(copy);
    for (const file of readdirSync(directory)) copyFileSync(join(directory, file), join(copy, file));
    const { journal: third, replayed: again } = await open(copy, { applied });
    const all = [textOf(1), 'other history 2'];
    expect(again.map(({ text }) => text)).toEqual(all.slice(Math.min(applied, 2)));
    await third.close();
  }
});

test('LMDB may be ahead of a journal whose unsynced end was lost', async () => {
  const directory = join(stores.directory(), 'journal');
  const { journal } = await open(directory);
  for (let i = 1; i <= 5; i++) append(journal, textOf(i));
  await journal.close();

  const { journal: second, replayed } = await open(directory, { applied: 9 });
  expect(replayed).toEqual([]);
  expect(append(second, 'ten')).toBe(10);
  await second.close();

  const { journal: third, replayed: again } = await open(directory, { applied: 9 });
  expect(again).toEqual([{ sequence: 10, text: 'ten' }]);
  await third.close();
});

test('a disk that has no room for the next file, and does not let go of what was begun of it, ends nothing', async () => {
  const directory = join(stores.directory(), 'journal');
  let asked = 0;
  const refused = (): never => {
    asked++;
    throw new StorageError('read-only');
  };
  const { journal } = await open(directory, {
    disk: {
      ...systemDisk,
      allocate: async (path, sizeBytes) => (/spare$/.test(path) ? refused() : systemDisk.allocate(path, sizeBytes)),
      remove: (path) => (asked > 0 ? refused() : systemDisk.remove(path)),
    },
  });

  // A rejection that nobody hears would end the process: the runner tells of it.
  for (let n = 1; asked < 2; n++) {
    append(journal, textOf(n));
    await new Promise((resolve) => setImmediate(resolve));
  }

  await journal.close();
});

test('a file that the disk does not let go is tried again, and nobody is told: no promise waits for it', async () => {
  const directory = join(stores.directory(), 'journal');
  let refuses = true;
  const disk: Disk = {
    ...systemDisk,
    remove: (path) => {
      if (refuses && /\d{10}$/.test(path)) throw new StorageError(`cannot remove ${path}: EROFS`);
      systemDisk.remove(path);
    },
  };
  const { journal } = await open(directory, { disk });
  for (let n = 1; n <= 60; n++) append(journal, textOf(n));
  const files = journal.files;

  journal.release(60);
  expect(journal.files).toBe(files);
  refuses = false;
  journal.release(60);

  expect(journal.files).toBe(1);
  expect(readdirSync(directory).filter((name) => /^\d{10}$/.test(name))).toHaveLength(1);
  await journal.close();
});

test('files are dropped when LMDB holds their records, oldest first', async () => {
  const directory = join(stores.directory(), 'journal');
  const { journal } = await open(directory);
  for (let i = 1; i <= 60; i++) append(journal, textOf(i));
  const before = journal.files;

  journal.release(30);
  expect(journal.files).toBeLessThan(before);
  expect(journal.files).toBeGreaterThan(1);
  await journal.close();

  const { journal: next, replayed } = await open(directory, { applied: 30 });
  expect(replayed.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 30 }, (_, i) => i + 31));
  next.release(60);
  expect(next.files).toBe(1);
  await next.close();
});

test.each([1, 2, 3])('an append that fails leaves no trace and the journal usable (SEED=%i)', async (seed) => {
  const random = new SeededRandom(seed);
  const directory = join(stores.directory(), 'journal');
  let failing = false;
  const disk: Disk = {
    ...systemDisk,
    write: (fd, bytes, position) => {
      if (!failing) return systemDisk.write(fd, bytes, position);
      const part = random.below(bytes.byteLength + 1);
      systemDisk.write(fd, bytes.subarray(0, part), position);
      throw new StorageError('no space', { full: true });
    },
  };
  const { journal } = await open(directory, { disk });
  const kept: string[] = [];
  for (let i = 1; i <= 80; i++) {
    failing = random.below(3) === 0;
    try {
      append(journal, textOf(i));
      kept.push(textOf(i));
    } catch (error) {
      expect(error).toBeInstanceOf(StorageError);
    }
    if (i % 10 !== 0) continue;
    // As after SIGKILL: the files as they are.
    const copy = join(stores.directory(), 'journal');
    mkdirSync(copy);
    for (const file of readdirSync(directory)) copyFileSync(join(directory, file), join(copy, file));
    const { journal: other, replayed } = await open(copy);
    // A record whose write failed behind its last byte may be there: it was whole. Nothing else may differ.
    const texts = replayed.map(({ text }) => text);
    expect(texts.slice(0, kept.length)).toEqual(kept);
    expect(texts.length - kept.length).toBeLessThanOrEqual(1);
    await other.close();
  }
  failing = false;
  await journal.close();
});

test('a missing spare file is reserved immediately, without writing it', async () => {
  const directory = join(stores.directory(), 'journal');
  const segmentBytes = 8 * 1024 * 1024;
  let written = 0;
  let isFull = false;
  const disk: Disk = {
    ...systemDisk,
    // The first file is made before anything is appended; no other becomes ready.
    allocate: (path, sizeBytes) =>
      path.endsWith('spare') ? new Promise(() => {}) : systemDisk.allocate(path, sizeBytes),
    write: (fd, bytes, position) => {
      written += bytes.byteLength;
      systemDisk.write(fd, bytes, position);
    },
    reserve: (fd, sizeBytes) => {
      if (isFull) throw new StorageError('no room', { full: true });
      systemDisk.reserve(fd, sizeBytes);
    },
  };
  const { journal } = await open(directory, { disk, segmentBytes });
  const text = 'x'.repeat(1024 * 1024);
  for (let i = 0; i < 12; i++) append(journal, text);
  expect(journal.files).toBe(2);
  expect(written).toBeLessThan(13 * text.length);
  // All of the room is there: what is accepted from now on can be recorded.
  const second = statSync(join(directory, '0000000002'));
  expect(second.size).toBe(segmentBytes);
  expect(second.blocks * 512).toBeGreaterThanOrEqual(segmentBytes);

  isFull = true;
  const accepted = () => {
    for (let i = 0; i < 8; i++) append(journal, text);
  };
  expect(accepted).toThrow(expect.objectContaining({ full: true }));
  const last = journal.last;
  isFull = false;
  expect(append(journal, text)).toBe(last + 1);
  const { journal: next, replayed } = await open(stores.copyOf(directory));
  expect(replayed).toHaveLength(last + 1);
  await next.close();
});

/** A disk on which files may take so much together. */
function diskOf(room: { bytes: number }): Disk {
  const sizes = new Map<string, number>();
  const takes = (path: string, sizeBytes: number): void => {
    const others = [...sizes].reduce((sum, [name, bytes]) => sum + (name === path ? 0 : bytes), 0);
    if (others + sizeBytes > room.bytes) throw new StorageError('no room', { full: true });
    sizes.set(path, sizeBytes);
  };
  const pathOf = new Map<number, string>();
  return {
    ...systemDisk,
    open: (path, how) => {
      const fd = systemDisk.open(path, how);
      pathOf.set(fd, path);
      return fd;
    },
    allocate: async (path, sizeBytes) => {
      takes(path, sizeBytes);
      await systemDisk.allocate(path, sizeBytes);
    },
    freeBytes: async () => room.bytes - [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0),
    reserve: (fd, sizeBytes) => {
      takes(pathOf.get(fd) as string, sizeBytes);
      systemDisk.reserve(fd, sizeBytes);
    },
    truncate: (fd, sizeBytes) => {
      systemDisk.truncate(fd, sizeBytes);
      sizes.set(pathOf.get(fd) as string, sizeBytes);
    },
    rename: (from, to) => {
      systemDisk.rename(from, to);
      sizes.set(to, sizes.get(from) as number);
      sizes.delete(from);
    },
    remove: (path) => {
      systemDisk.remove(path);
      sizes.delete(path);
    },
  };
}

describe('on an almost full disk', () => {
  const segmentBytes = 1024 * 1024;
  const text = 'x'.repeat(10_000);

  test('on an almost full disk a journal file is as long as fits, at a start and later', async () => {
    const directory = join(stores.directory(), 'journal');
    const room = { bytes: 300 * 1024 };
    const { journal } = await open(directory, { segmentBytes, disk: diskOf(room) });
    // Half of what it could have: the index needs some as well.
    expect(statSync(join(directory, '0000000001')).size).toBe(128 * 1024);

    room.bytes = 400 * 1024;
    let accepted = 0;
    const fill = (): void => {
      for (; accepted < 1_000; accepted++) append(journal, text);
    };
    expect(fill).toThrow(expect.objectContaining({ full: true }));
    expect(statSync(join(directory, '0000000002')).size).toBe(256 * 1024);
    expect(accepted).toBeGreaterThan(30);
    await journal.close();
    const { journal: next, replayed } = await open(directory);
    expect(replayed).toHaveLength(accepted);
    await next.close();
  });

  test('the next file is not begun ahead while it would leave those who write without room, and nobody is told twice', async () => {
    const directory = join(stores.directory(), 'journal');
    const room = { bytes: 3 * segmentBytes - 1 };
    const disk = diskOf(room);
    const clock = new ManualClock();
    const told: unknown[] = [];
    const log = { ...silentLogger, warn: (...args: unknown[]) => void told.push(args) };
    const tried: string[] = [];
    const { journal } = await open(directory, {
      segmentBytes,
      clock,
      log,
      disk: {
        ...disk,
        allocate: (path, sizeBytes) => {
          tried.push(path);
          return disk.allocate(path, sizeBytes);
        },
      },
    });
    const appended = async (): Promise<boolean> => {
      append(journal, text);
      for (let turn = 0; turn < 10; turn++) await systemClock.sleep(1);
      return readdirSync(directory).includes('spare');
    };
    tried.length = 0;
    for (let n = 0; n < 20; n++) {
      expect(await appended()).toBe(false);
      clock.advance(n < 15 ? 1001 : 10);
    }
    expect(tried).toEqual([]);
    expect(told).toHaveLength(1);

    room.bytes += 1;
    clock.advance(900);
    expect(await appended()).toBe(false);
    clock.advance(101);
    await appended();
    await expect.poll(() => readdirSync(directory)).toContain('spare');
    expect(tried).toEqual([join(directory, 'spare')]);
    await journal.close();
  });

  test('a start without any space replays the journal, refuses records, and accepts them once there is space', async () => {
    const directory = join(stores.directory(), 'journal');
    const { journal } = await open(directory, { segmentBytes });
    append(journal, text);
    await journal.close();

    const room = { bytes: 1024 };
    const { journal: full, replayed: there } = await open(directory, { segmentBytes, disk: diskOf(room) });

    expect(there).toHaveLength(1);
    expect(() => append(full, text)).toThrow(expect.objectContaining({ full: true }));
    await full.sync();
    room.bytes = segmentBytes;
    append(full, text);
    await full.close();
    const { journal: next, replayed } = await open(directory);
    expect(replayed).toHaveLength(2);
    await next.close();
  });

  test('a file that nothing was written into goes at the end', async () => {
    const directory = join(stores.directory(), 'journal');
    for (let start = 0; start < 3; start++) await (await open(directory, { segmentBytes })).journal.close();

    expect(readdirSync(directory)).toEqual([]);
  });

  test('a start has the room of the files that are not needed any more', async () => {
    const directory = join(stores.directory(), 'journal');
    const disk = diskOf({ bytes: 2 * segmentBytes });
    const { journal } = await open(directory, { segmentBytes, disk });
    for (let i = 0; i < 20; i++) append(journal, text);
    const applied = journal.last;
    await journal.close();

    const { journal: next, replayed } = await open(directory, { segmentBytes, disk, applied });

    expect(replayed).toEqual([]);
    expect(readdirSync(directory)).toEqual(['0000000002']);
    expect(statSync(join(directory, '0000000002')).size).toBe(segmentBytes);
    await next.close();
  });
});

test('a failed fdatasync is not forgotten: nothing is promised any more in this run', async () => {
  const directory = join(stores.directory(), 'journal');
  let failing = false;
  const disk: Disk = {
    ...systemDisk,
    sync: (fd) => (failing ? Promise.reject(new StorageError('sync failed')) : systemDisk.sync(fd)),
  };
  const { journal } = await open(directory, { disk });
  append(journal, 'one');
  failing = true;
  await expect(journal.sync()).rejects.toThrow(StorageError);
  failing = false;
  await expect(journal.sync()).rejects.toThrow(StorageError);
  expect(() => append(journal, 'two')).toThrow(StorageError);
  await expect(journal.close()).rejects.toThrow(StorageError);
});

test('a folder for which no descriptor is left fails a sync, and nothing after it', async () => {
  const directory = join(stores.directory(), 'journal');
  let isOut = false;
  const disk: Disk = {
    ...systemDisk,
    syncDirectory: async (path) => {
      if (isOut) throw storageErrorOf(Object.assign(new Error('out'), { code: 'EMFILE' }), `cannot open ${path}`);
      await systemDisk.syncDirectory(path);
    },
  };
  const { journal } = await open(directory, { disk });
  isOut = true;
  for (let n = 1; n <= 40; n++) append(journal, textOf(n));
  await expect(journal.sync()).rejects.toThrow('EMFILE');
  await expect(journal.sync()).rejects.toThrow('EMFILE');
  for (let n = 41; n <= 80; n++) append(journal, textOf(n));

  isOut = false;
  await journal.sync().catch(() => {}); // of the folder as it was asked for before
  await journal.sync();
  append(journal, textOf(81));
  await journal.close();

  const { journal: next, replayed } = await open(directory);
  expect(replayed.map(({ text }) => text)).toEqual(Array.from({ length: 81 }, (_, i) => textOf(i + 1)));
  await next.close();
});

test('callers of sync share an fdatasync, but never one that began before they asked', async () => {
  const directory = join(stores.directory(), 'journal');
  let syncs = 0;
  const release: (() => void)[] = [];
  const disk: Disk = {
    ...systemDisk,
    sync: async () => {
      syncs++;
      await new Promise<void>((resolve) => release.push(resolve));
    },
  };
  const { journal } = await open(directory, { disk });
  const first = journal.sync();
  append(journal, 'one');
  let secondDone = false;
  const second = Promise.all([journal.sync(), journal.sync()]).then(() => {
    secondDone = true;
  });
  await until(() => syncs === 1);
  (release.shift() as () => void)();
  await first;
  expect(secondDone).toBe(false);
  await until(() => syncs === 2);
  (release.shift() as () => void)();
  await second;
  expect(syncs).toBe(2);
  const closing = journal.close();
  await until(() => release.length > 0);
  (release.shift() as () => void)();
  await closing;
});

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}

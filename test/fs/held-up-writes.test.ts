import { constants } from 'node:fs';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { StorageError } from '../../src/base/errors.ts';
import { WritePace } from '../../src/bytes/write-pace.ts';
import { openFlags } from '../../src/kernel/open-flags.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { SETTLE_MS, SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';

const { O_CREAT, O_RDWR } = constants;
/** Beyond what is kept in memory: it goes into a file. */
const LONG = 40_000;

/** The system has made somebody wait just now, and will again. */
class HeldUp extends WritePace {
  isOver = false;
  override get isHeldUp(): boolean {
    return !this.isOver;
  }
}

/** A disk that lets a write go on when the test says so. */
class SlowDisk {
  isFull = false;
  readonly #waiting: (() => void)[] = [];
  /** Let through at once, each after a turn of the loop. */
  isFast = false;
  writes = 0;
  readonly disk: Disk = {
    ...systemDisk,
    writeLater: async (fd, bytes, position) => {
      this.writes++;
      if (this.isFast) await new Promise((resolve) => setImmediate(resolve));
      else await new Promise<void>((resolve) => this.#waiting.push(resolve));
      if (this.isFull) throw new StorageError('no space', { full: true });
      await systemDisk.writeLater(fd, bytes, position);
    },
  };

  get waiting(): number {
    return this.#waiting.length;
  }

  letThrough(): void {
    this.#waiting.shift()?.();
  }
}

const pace = new HeldUp({ clock: systemClock });
const bytesOf = (letter: string, length = LONG): Buffer => Buffer.alloc(length, letter);
const turns = async (count = 20): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

describe('while the disk makes writers wait', () => {
  let slow: SlowDisk;
  let side: FileSystemSide;
  let mount: InProcessMount;
  beforeEach(async () => {
    slow = new SlowDisk();
    side = await FileSystemSide.build({ disk: slow.disk, pace });
    mount = new InProcessMount(side.fileSystem);
  });
  afterEach(() => side.close());

  test('only the writer waits, and a write is visible when its bytes are in the file', async () => {
    await mount.writeFile('other', Buffer.from('short'));
    const fd = await mount.open('slow', O_RDWR | O_CREAT);
    let isDone = false;
    const written = mount.write(fd, 0, bytesOf('a')).then(() => {
      isDone = true;
    });
    await turns();

    expect((await mount.stat('other')).sizeBytes).toBe(5);
    expect((await mount.readFile('other')).toString()).toBe('short');
    await mount.writeFile('new', Buffer.from('made meanwhile'));
    expect((await mount.fstat(fd)).sizeBytes).toBe(0);
    expect([slow.waiting, isDone]).toEqual([1, false]);

    slow.letThrough();
    await written;
    expect((await mount.fstat(fd)).sizeBytes).toBe(LONG);
    expect(await mount.read(fd, 0, LONG)).toEqual(bytesOf('a'));
    await mount.close(fd);
    expect(await mount.readFile('slow')).toEqual(bytesOf('a'));
  });

  test('what is done to the same file comes after it, in order', async () => {
    const fd = await mount.open('slow', O_RDWR | O_CREAT);
    let isOver = false;
    const all = Promise.all([
      mount.write(fd, 0, bytesOf('a')),
      mount.write(fd, 10_000, bytesOf('b')),
      mount.ftruncate(fd, 30_000),
      mount.write(fd, 20_000, bytesOf('c', 100)),
    ]).finally(() => {
      isOver = true;
    });
    while (!isOver) {
      await turns(2);
      slow.letThrough();
    }
    await all;

    const expected = Buffer.concat([bytesOf('a', 10_000), bytesOf('b', 20_000)]);
    bytesOf('c', 100).copy(expected, 20_000);
    expect(await mount.read(fd, 0, 2 * LONG)).toEqual(expected);
    await mount.close(fd);
  });

  test('a disk that turns out to be full tells who waits, and what was there stays', async () => {
    const fd = await mount.open('slow', O_RDWR | O_CREAT);
    slow.isFast = true;
    await mount.write(fd, 0, bytesOf('a'));
    slow.isFull = true;
    await expect(mount.write(fd, LONG, bytesOf('b'))).rejects.toMatchObject({ errno: 'ENOSPC' });
    slow.isFull = false;

    expect((await mount.fstat(fd)).sizeBytes).toBe(LONG);
    await mount.write(fd, LONG, bytesOf('c'));
    await mount.close(fd);
    expect(await mount.readFile('slow')).toEqual(Buffer.concat([bytesOf('a'), bytesOf('c')]));
  });

  test('the store closes no file under the pool’s hands', async () => {
    const fd = await mount.open('slow', O_RDWR | O_CREAT);
    const written = mount.write(fd, 0, bytesOf('a'));
    await turns();

    side.contents.close();
    const others = Array.from({ length: 4 }, (_, i) => systemDisk.open(`${side.directory}/other-${i}`, 'create'));
    slow.letThrough();
    await written;

    expect(others.map((each) => systemDisk.sizeBytes(each))).toEqual([0, 0, 0, 0]);
    for (const each of others) systemDisk.close(each);
  });

  test('a file is what its changes make of it one after another, whenever they are answered', async () => {
    slow.isFast = true;
    const change = fc.oneof(
      fc.record({
        kind: fc.constant('write' as const),
        at: fc.nat(100_000),
        length: fc.integer({ min: 1, max: LONG }),
      }),
      fc.record({ kind: fc.constant('cut' as const), at: fc.nat(100_000), length: fc.constant(0) }),
    );
    let round = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 12 }), async (changes) => {
        const name = `file ${round++}`;
        const fd = await mount.open(name, O_RDWR | O_CREAT);
        let model = Buffer.alloc(0);
        await Promise.all(
          changes.map(({ kind, at, length }, i) => {
            const end = kind === 'cut' ? at : Math.max(model.length, at + length);
            model = Buffer.concat([model, Buffer.alloc(Math.max(0, end - model.length))]).subarray(0, end);
            model.fill(i + 1, at, kind === 'cut' ? at : at + length);
            return kind === 'cut' ? mount.ftruncate(fd, at) : mount.write(fd, at, Buffer.alloc(length, i + 1));
          }),
        );
        await mount.close(fd);
        expect((await mount.readFile(name)).equals(model)).toBe(true);
      }),
      { numRuns: 40 },
    );
    // Not all of them were kept in memory.
    expect(slow.writes).toBeGreaterThan(10);
  });
});

describe('who is killed while a write waits for the disk', () => {
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  let slow: SlowDisk;
  let pace: HeldUp;
  let world: SyncedSide;
  beforeEach(async () => {
    slow = new SlowDisk();
    pace = new HeldUp({ clock: systemClock });
    world = await SyncedSide.build({ disk: slow.disk, pace });
    pace.isOver = true;
    await world.mount.writeFile('file', bytesOf('a'));
    await world.converge();
  });
  afterEach(() => world.close());

  /**
   * As the kernel does it: the write(2) is answered EINTR at once (`OpBoundary.interrupt`), and the process ends, which closes its descriptors.
   * @returns lets the disk get on with it, and waits for what comes of that
   */
  async function killed(offset: number): Promise<() => Promise<void>> {
    const { fileSystem } = world.side;
    const { ino } = await world.mount.stat('file');
    pace.isOver = false;
    const { handle } = await fileSystem.open(ino, openFlags(O_RDWR), ctx);
    const written = fileSystem.write(ino, handle, offset, bytesOf('b'), ctx, 'offset');
    await turns();
    expect(slow.waiting).toBe(1);
    pace.isOver = true;
    await fileSystem.flush(ino, handle);
    const released = fileSystem.release(ino, handle);
    return async () => {
      slow.letThrough();
      await Promise.all([written, released]);
    };
  }

  test('a writer that is killed while it waits does not damage the next write to the same place', async () => {
    const goOn = await killed(0);
    const fd = await world.mount.open('file', O_RDWR);
    const next = world.mount.write(fd, 0, bytesOf('c'));
    await turns();

    await goOn();
    await next;
    await world.mount.fsync(fd);
    await world.mount.close(fd);

    expect((await world.mount.readFile('file')).equals(bytesOf('c'))).toBe(true);
  });

  test('keeps nobody from emptying the file', async () => {
    const goOn = await killed(0);
    const emptied = world.mount.writeFile('file', Buffer.from('anew'));
    await turns();

    await goOn();
    await emptied;

    expect((await world.mount.readFile('file')).toString()).toBe('anew');
  });

  test('leaves a file that has one length for all who ask, and for the service', async () => {
    await world.mount.writeFile('file', Buffer.from('changed'), { flag: 'r+' });
    const goOn = await killed(LONG);
    expect(world.side.fileSystem.files.isBeingWritten((await world.mount.stat('file')).ino)).toBe(true);

    await goOn();
    await world.converge();

    const [told, read] = [(await world.mount.stat('file')).sizeBytes, (await world.mount.readFile('file')).length];
    const there = world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === 'file')?.versions?.[0]?.bytes.length;
    expect({ told, read, there }).toEqual({ told: 2 * LONG, read: 2 * LONG, there: 2 * LONG });
    expect(world.side.fileSystem.files.isOpen((await world.mount.stat('file')).ino)).toBe(false);
  });

  test('a mount ends without waiting for the disk of a writer that was killed', async () => {
    const goOn = await killed(0);
    const { directory } = world.side;

    await world.close('keep');

    await goOn().catch(() => {});
    world = await SyncedSide.build({ left: world });
    expect(world.side.directory).toBe(directory);
    expect((await world.mount.stat('file')).sizeBytes).toBe(LONG);
  });
});

test('a file is not pushed while a write into it waits for the disk, and whole when that is over', async () => {
  const slow = new SlowDisk();
  const world = await SyncedSide.build({ disk: slow.disk, pace });
  const versions = (): string[] =>
    (world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === 'log')?.versions ?? []).map(({ bytes }) =>
      bytes.toString('latin1').replaceAll(/(.)\1*/g, '$1'),
    );
  try {
    slow.isFast = true;
    const fd = await world.mount.open('log', O_RDWR | O_CREAT);
    await world.mount.write(fd, 0, bytesOf('a'));
    await world.mount.fsync(fd);
    slow.isFast = false;
    const written = world.mount.write(fd, 0, bytesOf('b'));
    for (let i = 0; i < 5; i++) await world.pass(10 * SETTLE_MS);
    expect([slow.waiting, versions()]).toEqual([1, []]);

    slow.letThrough();
    await written;
    await world.mount.close(fd);
    await world.converge();
    expect(versions()[0]).toBe('b');
  } finally {
    await world.close();
  }
});

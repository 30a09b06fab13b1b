import { constants } from 'node:fs';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { StorageError } from '../../src/base/errors.ts';
import { InProcessMount } from '../../src/kernel/in-process.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { WritePace } from '../../src/store/write-pace.ts';
import { LeftTower } from '../harness/left-tower.ts';
import { SETTLE_MS, SyncedTower } from '../harness/synced-tower.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';

const { O_CREAT, O_RDWR } = constants;
/** Beyond what is kept in memory: it goes into a file. */
const LONG = 40_000;

/** The system has made somebody wait just now, and will again. */
class HeldUp extends WritePace {
  override get isHeldUp(): boolean {
    return true;
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
  let tower: LeftTower;
  let mount: InProcessMount;
  beforeEach(async () => {
    slow = new SlowDisk();
    tower = await LeftTower.build({ disk: slow.disk, pace });
    mount = new InProcessMount(tower.fileSystem);
  });
  afterEach(() => tower.close());

  test('who writes waits, nobody else does, and what is written counts when it is there', async () => {
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

    tower.contents.close();
    const others = Array.from({ length: 4 }, (_, i) => systemDisk.open(`${tower.directory}/other-${i}`, 'create'));
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

test('a file is not pushed while a write into it waits for the disk, and whole when that is over', async () => {
  const slow = new SlowDisk();
  const world = await SyncedTower.build({ disk: slow.disk, pace });
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

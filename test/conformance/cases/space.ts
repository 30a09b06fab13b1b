import { expect } from 'vitest';
import {
  FALLOC_ALLOCATE,
  FALLOC_KEEP_SIZE,
  FALLOC_PUNCH_HOLE,
  FALLOC_ZERO_RANGE,
  O_CREAT,
  O_RDONLY,
  O_RDWR,
  SEEK_DATA,
  SEEK_HOLE,
} from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { expectSameBytes, fails, pattern } from '../workplace.ts';

const KIB = 1024;
const MIB = 1024 * KIB;

/** fallocate(2) in its modes, and where holes are: lseek(2) with SEEK_DATA and SEEK_HOLE. */
export const spaceScenarios: readonly Scenario[] = [
  scenario('fallocate past the end makes the file longer, with zeros', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 0, 'abc');

    await fs.fallocate(fd, FALLOC_ALLOCATE, 0, 10_000);

    expect((await fs.fstat(fd)).sizeBytes).toBe(10_000);
    expectSameBytes(await fs.read(fd, 0, 20_000), Buffer.concat([Buffer.from('abc'), Buffer.alloc(9997)]));
  }),
  scenario('fallocate within the file changes neither size nor bytes', async (fs) => {
    await fs.put('file', pattern(50_000));
    const fd = await fs.open('file', O_RDWR);

    await fs.fallocate(fd, FALLOC_ALLOCATE, 1000, 20_000);

    expectSameBytes(await fs.get('file'), pattern(50_000));
  }),
  scenario('fallocate with KEEP_SIZE leaves the size', async (fs) => {
    await fs.put('file', 'abc');
    const fd = await fs.open('file', O_RDWR);

    await fs.fallocate(fd, FALLOC_KEEP_SIZE, 0, 1 * MIB);

    expect((await fs.fstat(fd)).sizeBytes).toBe(3);
    expect(await fs.text('file')).toBe('abc');
  }),
  scenario('punching a hole makes zeros there and keeps the size', async (fs) => {
    const bytes = pattern(600 * KIB);
    await fs.put('file', bytes);
    const fd = await fs.open('file', O_RDWR);

    await fs.fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 100_001, 300_000);

    bytes.fill(0, 100_001, 400_001);
    expectSameBytes(await fs.get('file'), bytes);
  }),
  scenario('punching a hole across the end does not make the file longer', async (fs) => {
    const bytes = pattern(10_000);
    await fs.put('file', bytes);
    const fd = await fs.open('file', O_RDWR);

    await fs.fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 9000, 50_000);
    await fs.fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 80_000, 50_000);

    expectSameBytes(await fs.get('file'), bytes.fill(0, 9000));
  }),
  scenario('punching without KEEP_SIZE is EOPNOTSUPP', ['process'], async (fs) => {
    await fs.put('file', 'abc');
    const fd = await fs.open('file', O_RDWR);

    await fails('EOPNOTSUPP', fs.fallocate(fd, FALLOC_PUNCH_HOLE, 0, 1));
  }),
  scenario('zeroing a range writes zeros, and may make the file longer', async (fs) => {
    const bytes = pattern(300_000);
    await fs.put('file', bytes);
    const fd = await fs.open('file', O_RDWR);

    await fs.fallocate(fd, FALLOC_ZERO_RANGE, 200_000, 150_000);

    expectSameBytes(await fs.get('file'), Buffer.concat([bytes.subarray(0, 200_000), Buffer.alloc(150_000)]));
  }),
  scenario('zeroing a range with KEEP_SIZE leaves the size', async (fs) => {
    const bytes = pattern(300_000);
    await fs.put('file', bytes);
    const fd = await fs.open('file', O_RDWR);

    await fs.fallocate(fd, FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, 200_000, 150_000);

    expectSameBytes(await fs.get('file'), bytes.fill(0, 200_000));
  }),
  scenario('fallocate of no length or a negative offset is EINVAL', ['process'], async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);

    await fails('EINVAL', fs.fallocate(fd, FALLOC_ALLOCATE, 0, 0));
    await fails('EINVAL', fs.fallocate(fd, FALLOC_ALLOCATE, -1, 10));
  }),
  scenario('fallocate through a read-only descriptor is EBADF', ['process'], async (fs) => {
    await fs.put('file', 'abc');
    const fd = await fs.open('file', O_RDONLY);

    await fails('EBADF', fs.fallocate(fd, FALLOC_ALLOCATE, 0, 10));
  }),
  scenario('fallocate moves mtime and ctime when it changes the file', async (fs) => {
    await fs.put('file', 'abc');
    const before = await fs.stat('file');
    await fs.tick();
    const fd = await fs.open('file', O_RDWR);

    await fs.fallocate(fd, FALLOC_ALLOCATE, 0, 100);

    const after = await fs.fstat(fd);
    expect(after.mtimeNs).toBeGreaterThan(before.mtimeNs);
    expect(after.ctimeNs).toBeGreaterThan(before.ctimeNs);
  }),
  scenario('a write into a punched hole is there, the rest of the hole stays zero', async (fs) => {
    const bytes = pattern(400 * KIB);
    await fs.put('file', bytes);
    const fd = await fs.open('file', O_RDWR);
    await fs.fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 0, 300 * KIB);

    await fs.write(fd, 150_000, 'island');
    await fs.close(fd);

    bytes.fill(0, 0, 300 * KIB);
    Buffer.from('island').copy(bytes, 150_000);
    expectSameBytes(await fs.get('file'), bytes);
  }),
  scenario('in a full file data begins at once and the only hole is at the end', async (fs) => {
    await fs.put('file', pattern(300 * KIB));
    const fd = await fs.open('file', O_RDONLY);

    expect(await fs.lseek(fd, 0, SEEK_DATA)).toBe(0);
    expect(await fs.lseek(fd, 1234, SEEK_DATA)).toBe(1234);
    expect(await fs.lseek(fd, 0, SEEK_HOLE)).toBe(300 * KIB);
    expect(await fs.lseek(fd, 1234, SEEK_HOLE)).toBe(300 * KIB);
  }),
  scenario('SEEK_DATA and SEEK_HOLE at or past the end are ENXIO', async (fs) => {
    await fs.put('file', 'abc');
    await fs.put('empty');
    const fd = await fs.open('file', O_RDONLY);
    const empty = await fs.open('empty', O_RDONLY);

    await fails('ENXIO', fs.lseek(fd, 3, SEEK_DATA));
    await fails('ENXIO', fs.lseek(fd, 3, SEEK_HOLE));
    await fails('ENXIO', fs.lseek(fd, 100, SEEK_DATA));
    for (const offset of [-1, 2 ** 53 - 1, 2 ** 53, 2 ** 62]) {
      await fails('ENXIO', fs.lseek(fd, offset, SEEK_DATA));
      await fails('ENXIO', fs.lseek(fd, offset, SEEK_HOLE));
    }
    await fails('ENXIO', fs.lseek(empty, 0, SEEK_DATA));
    await fails('ENXIO', fs.lseek(empty, 0, SEEK_HOLE));
  }),
  // A file system may report less holes than there are (lseek(2)), never data as a hole: that is what is asserted.
  scenario('what SEEK_DATA skips is zeros, and all that was written is found', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 2 * MIB, pattern(100_000));
    await fs.write(fd, 5 * MIB + 3, pattern(10));
    await fs.ftruncate(fd, 8 * MIB);
    await fs.fsync(fd);

    const data: [number, number][] = [];
    for (let at = 0; ; ) {
      const start = await fs.lseek(fd, at, SEEK_DATA).catch(() => -1);
      if (start < 0) break;
      const end = await fs.lseek(fd, start, SEEK_HOLE);
      expect(start).toBeGreaterThanOrEqual(at);
      expect(end).toBeGreaterThan(start);
      data.push([start, end]);
      at = end;
    }

    const covered = (offset: number, length: number) =>
      data.some(([start, end]) => start <= offset && offset + length <= end);
    expect(covered(2 * MIB, 100_000)).toBe(true);
    expect(covered(5 * MIB + 3, 10)).toBe(true);
  }),
  scenario('tail of a file that was cut inside a block and grown again is zeros', async (fs) => {
    await fs.put('file', pattern(200_000));
    const fd = await fs.open('file', O_RDWR);

    await fs.ftruncate(fd, 131_073);
    await fs.fallocate(fd, FALLOC_ALLOCATE, 0, 200_000);

    const bytes = pattern(200_000).fill(0, 131_073);
    expectSameBytes(await fs.get('file'), bytes);
  }),
];

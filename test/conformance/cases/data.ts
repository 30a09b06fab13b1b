import { expect } from 'vitest';
import { O_CREAT, O_RDONLY, O_RDWR, O_WRONLY, SEEK_CUR, SEEK_END, SEEK_SET } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { expectSameBytes, fails, pattern } from '../workplace.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const GIB = 1024 * MIB;

/** read(2), write(2), truncate(2): a file is a row of bytes that grows with zeros. */
export const dataScenarios: readonly Scenario[] = [
  scenario('what was written is read back', async (fs) => {
    await fs.put('file', 'hello, world');

    expect(await fs.text('file')).toBe('hello, world');
    expect((await fs.stat('file')).sizeBytes).toBe(12);
  }),
  scenario('an empty file reads as nothing', async (fs) => {
    await fs.put('file');

    expect((await fs.get('file')).byteLength).toBe(0);
  }),
  scenario('every byte value survives', async (fs) => {
    const all = Buffer.from(Array.from({ length: 256 }, (_, value) => value));
    await fs.put('file', all);

    expectSameBytes(await fs.get('file'), all);
  }),
  ...[1, 4095, 4096, 4097, 16_384, 16_385, 128 * KIB - 1, 128 * KIB, 128 * KIB + 1, MIB, MIB + 1, 3 * MIB + 5].map(
    (lengthBytes) =>
      scenario(`${lengthBytes} bytes written in one go are read back`, async (fs) => {
        const bytes = pattern(lengthBytes, lengthBytes);
        await fs.put('file', bytes);

        expect((await fs.stat('file')).sizeBytes).toBe(lengthBytes);
        expectSameBytes(await fs.get('file'), bytes);
      }),
  ),
  scenario('reading at and past the end gives nothing', async (fs) => {
    await fs.put('file', '12345');
    const fd = await fs.open('file', O_RDONLY);

    expect((await fs.read(fd, 5, 10)).byteLength).toBe(0);
    expect((await fs.read(fd, 6, 10)).byteLength).toBe(0);
    expect((await fs.read(fd, 5 * GIB, 10)).byteLength).toBe(0);
  }),
  scenario('a read across the end gives what is there', async (fs) => {
    await fs.put('file', '12345');
    const fd = await fs.open('file', O_RDONLY);

    expect(Buffer.from(await fs.read(fd, 3, 100)).toString()).toBe('45');
  }),
  scenario('a read or write of no bytes succeeds and changes nothing', async (fs) => {
    await fs.put('file', '12345');
    const fd = await fs.open('file', O_RDWR);

    expect((await fs.read(fd, 0, 0)).byteLength).toBe(0);
    expect(await fs.write(fd, 9, '')).toBe(0);
    expect((await fs.stat('file')).sizeBytes).toBe(5);
  }),
  scenario('a write in the middle changes those bytes only', async (fs) => {
    await fs.put('file', 'abcdefgh');
    const fd = await fs.open('file', O_WRONLY);

    await fs.write(fd, 3, 'XY');
    await fs.close(fd);

    expect(await fs.text('file')).toBe('abcXYfgh');
  }),
  scenario('a write across the end makes the file longer', async (fs) => {
    await fs.put('file', 'abcdef');
    const fd = await fs.open('file', O_WRONLY);

    await fs.write(fd, 4, 'WXYZ');
    await fs.close(fd);

    expect(await fs.text('file')).toBe('abcdWXYZ');
  }),
  scenario('a write past the end leaves zeros between', async (fs) => {
    await fs.put('file', 'ab');
    const fd = await fs.open('file', O_WRONLY);

    await fs.write(fd, 5, 'z');
    await fs.close(fd);

    expectSameBytes(await fs.get('file'), Buffer.from('ab\0\0\0z'));
  }),
  scenario('a write far past the end reads as zeros up to it', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, MIB + 3, 'end');

    const bytes = await fs.get('file');

    expect(bytes.byteLength).toBe(MIB + 6);
    expectSameBytes(bytes.subarray(0, MIB + 3), Buffer.alloc(MIB + 3));
    expect(bytes.subarray(MIB + 3).toString()).toBe('end');
  }),
  scenario('bytes beyond 4 GiB are kept at their place', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 5 * GIB + 7, 'far');
    await fs.write(fd, 1, 'near');

    expect((await fs.fstat(fd)).sizeBytes).toBe(5 * GIB + 10);
    expect(Buffer.from(await fs.read(fd, 5 * GIB + 7, 100)).toString()).toBe('far');
    expectSameBytes(await fs.read(fd, 4 * GIB - 2, 10), Buffer.alloc(10));
    expectSameBytes(await fs.read(fd, GIB + 1, 10), Buffer.alloc(10)); // 5 GiB + 1 modulo 2^32
    expectSameBytes(await fs.read(fd, 0, 6), Buffer.from('\0near\0'));
    await fs.close(fd);
    await fs.unlink('file'); // 5 GiB of zeros are not to be uploaded
  }),
  scenario('a sparse file takes little room', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 64 * MIB, 'x');
    await fs.fsync(fd);

    expect((await fs.fstat(fd)).blocks512 * 512).toBeLessThan(MIB);
    await fs.close(fd);
    await fs.unlink('file');
  }),
  scenario('blocks count what was written', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 0, pattern(MIB));
    await fs.fsync(fd);

    const used = (await fs.fstat(fd)).blocks512 * 512;
    expect(used).toBeGreaterThanOrEqual(MIB);
    expect(used).toBeLessThan(2 * MIB);
  }),
  scenario('truncate to nothing and growing again gives zeros, not the old bytes', async (fs) => {
    await fs.put('file', pattern(10_000));

    await fs.truncate('file', 0);
    await fs.truncate('file', 10_000);

    expectSameBytes(await fs.get('file'), Buffer.alloc(10_000));
  }),
  scenario('truncate down cuts, truncate up adds zeros', async (fs) => {
    const bytes = pattern(300 * KIB);
    await fs.put('file', bytes);

    await fs.truncate('file', 140_001);
    await fs.truncate('file', 200_000);

    expectSameBytes(await fs.get('file'), Buffer.concat([bytes.subarray(0, 140_001), Buffer.alloc(59_999)]));
  }),
  scenario('a write after a truncate down does not bring cut bytes back', async (fs) => {
    await fs.put('file', pattern(8192));
    const fd = await fs.open('file', O_RDWR);

    await fs.ftruncate(fd, 100);
    await fs.write(fd, 5000, 'x');

    expectSameBytes(await fs.read(fd, 100, 4900), Buffer.alloc(4900));
    expect((await fs.fstat(fd)).sizeBytes).toBe(5001);
  }),
  scenario('truncate to the same size keeps the bytes', async (fs) => {
    await fs.put('file', 'bytes');

    await fs.truncate('file', 5);

    expect(await fs.text('file')).toBe('bytes');
  }),
  scenario('truncate of a folder is EISDIR, of nothing ENOENT, below a file ENOTDIR', async (fs) => {
    await fs.mkdir('folder');
    await fs.put('file');

    await fails('EISDIR', fs.truncate('folder', 0));
    await fails('ENOENT', fs.truncate('missing', 0));
    await fails('ENOTDIR', fs.truncate('file/child', 0));
  }),
  scenario('truncate to a negative size is EINVAL', ['process'], async (fs) => {
    await fs.put('file', 'bytes');

    await fails('EINVAL', fs.truncate('file', -1));
  }),
  scenario('truncate through a symlink cuts the target', ['process'], async (fs) => {
    await fs.put('file', 'bytes');
    await fs.symlink('file', 'link');

    await fs.truncate('link', 2);

    expect(await fs.text('file')).toBe('by');
  }),
  scenario('ftruncate is seen by every other descriptor at once', async (fs) => {
    await fs.put('file', pattern(5000));
    const one = await fs.open('file', O_RDWR);
    const two = await fs.open('file', O_RDONLY);

    await fs.ftruncate(one, 10);

    expect((await fs.fstat(two)).sizeBytes).toBe(10);
    expect((await fs.read(two, 0, 5000)).byteLength).toBe(10);
  }),
  scenario('truncate by path works while the file is open for writing', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 0, '1234567890');

    await fs.truncate('file', 4);
    await fs.write(fd, 6, 'X');

    expectSameBytes(await fs.get('file'), Buffer.from('1234\0\0X'));
  }),
  scenario('a truncate up to 3 GiB and down again is quick and correct', async (fs) => {
    await fs.put('file', 'head');

    await fs.truncate('file', 3 * GIB);
    expect((await fs.stat('file')).sizeBytes).toBe(3 * GIB);
    await fs.truncate('file', 6);

    expectSameBytes(await fs.get('file'), Buffer.from('head\0\0'));
  }),
  scenario('a write is visible to every other descriptor immediately, before any close', async (fs) => {
    const writer = await fs.open('file', O_WRONLY | O_CREAT);
    const reader = await fs.open('file', O_RDONLY);

    await fs.write(writer, 0, 'first');
    expect(Buffer.from(await fs.read(reader, 0, 100)).toString()).toBe('first');
    await fs.write(writer, 0, 'FIR');
    await fs.write(writer, 5, ' second');

    expect(Buffer.from(await fs.read(reader, 0, 100)).toString()).toBe('FIRst second');
    expect((await fs.stat('file')).sizeBytes).toBe(12);
  }),
  scenario('a reader that opened before a rewrite with O_TRUNC sees the new bytes', async (fs) => {
    await fs.put('file', 'old old old');
    const reader = await fs.open('file', O_RDONLY);
    expect(Buffer.from(await fs.read(reader, 0, 100)).toString()).toBe('old old old');

    await fs.put('file', 'new');

    expect(Buffer.from(await fs.read(reader, 0, 100)).toString()).toBe('new');
  }),
  scenario('1,000 small writes in a row make one row of bytes', async (fs) => {
    const fd = await fs.open('file', O_WRONLY | O_CREAT);
    const bytes = pattern(37_000);
    for (let offset = 0; offset < bytes.byteLength; offset += 37) {
      await fs.write(fd, offset, bytes.subarray(offset, offset + 37));
    }
    await fs.close(fd);

    expectSameBytes(await fs.get('file'), bytes);
  }),
  scenario('writes from the end to the start make the same row of bytes', async (fs) => {
    const fd = await fs.open('file', O_WRONLY | O_CREAT);
    const bytes = pattern(600 * KIB);
    for (let offset = bytes.byteLength - 5000; offset > -5000; offset -= 5000) {
      const start = Math.max(0, offset);
      await fs.write(fd, start, bytes.subarray(start, offset + 5000));
    }
    await fs.close(fd);

    expectSameBytes(await fs.get('file'), bytes);
  }),
  scenario('an existing file changed in a few places keeps all the rest', async (fs) => {
    const bytes = pattern(2 * MIB + 77);
    await fs.put('file', bytes);
    const fd = await fs.open('file', O_RDWR);
    for (const [offset, length] of [
      [0, 1],
      [131_071, 2],
      [500_000, 70_000],
      [2 * MIB + 76, 1],
    ] as const) {
      const piece = pattern(length, offset + 9);
      piece.copy(bytes, offset);
      await fs.write(fd, offset, piece);
    }
    await fs.close(fd);

    expectSameBytes(await fs.get('file'), bytes);
  }),
  scenario('lseek moves the position: from the start, from here, from the end', ['process'], async (fs) => {
    await fs.put('file', '0123456789');
    const fd = await fs.open('file', O_RDONLY);

    expect(await fs.lseek(fd, 4, SEEK_SET)).toBe(4);
    expect(await fs.lseek(fd, -1, SEEK_CUR)).toBe(3);
    expect(Buffer.from(await fs.process.readHere(fd, 2)).toString()).toBe('34');
    expect(await fs.lseek(fd, -2, SEEK_END)).toBe(8);
    expect(Buffer.from(await fs.process.readHere(fd, 9)).toString()).toBe('89');
    expect(await fs.lseek(fd, 5 * GIB, SEEK_END)).toBe(5 * GIB + 10);
    await fails('EINVAL', fs.lseek(fd, -1, SEEK_SET));
    await fails('EINVAL', fs.lseek(fd, 0, 99));
  }),
  scenario('SEEK_END follows what another descriptor appended', ['process'], async (fs) => {
    await fs.put('file', '12');
    const reader = await fs.open('file', O_RDONLY);
    const writer = await fs.open('file', O_WRONLY);

    await fs.write(writer, 2, '345');

    expect(await fs.lseek(reader, 0, SEEK_END)).toBe(5);
  }),
  scenario('copy_file_range copies bytes within and between files', ['process'], async (fs) => {
    const bytes = pattern(300_000);
    await fs.put('from', bytes);
    const from = await fs.open('from', O_RDONLY);
    const to = await fs.open('to', O_RDWR | O_CREAT);

    for (let at = 0; at < bytes.byteLength; ) at += await fs.process.copyFileRange(from, at, to, at, 400_000);

    expectSameBytes(await fs.get('to'), bytes);
    expect(await fs.process.copyFileRange(from, 300_000, to, 0, 10)).toBe(0);
  }),
];

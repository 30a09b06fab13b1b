import {
  closeSync,
  existsSync,
  fstatSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  statfsSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { NativeFiles } from '../../src/base/native.ts';
import { missingAddon, testUnless, titled } from '../harness/requirement.ts';

const MIB = 1 << 20;
const missing = missingAddon();
/** statfs(2) of ext4, XFS and Btrfs. */
const NEVER_WAIT = [0xef53, 0x58465342, 0x9123683e];
let folder: string;
let fd: number;

beforeAll(() => {
  // /var/tmp: on a disk where /tmp may be memory. Both know holes.
  folder = mkdtempSync(join(existsSync('/var/tmp') ? '/var/tmp' : tmpdir(), 'cfs-native-'));
  fd = openSync(join(folder, 'f'), 'w+');
});

afterAll(() => {
  closeSync(fd);
  rmSync(folder, { recursive: true });
});

testUnless(missing)('a hole gives its room back, reads as zeros and leaves the size', () => {
  const files = new NativeFiles();
  writeSync(fd, Buffer.alloc(4 * MIB, 'x'), 0, 4 * MIB, 0);
  const before = files.allocatedBytes(fd);

  files.punchHole(fd, MIB, 2 * MIB);

  expect(before).toBeGreaterThanOrEqual(4 * MIB);
  expect(files.allocatedBytes(fd)).toBeLessThanOrEqual(before - 2 * MIB);
  expect(fstatSync(fd).size).toBe(4 * MIB);
  const bytes = Buffer.alloc(4 * MIB);
  readSync(fd, bytes, 0, bytes.length, 0);
  expect(bytes.subarray(MIB, 3 * MIB).every((byte) => byte === 0)).toBe(true);
  expect(bytes.subarray(0, MIB).every((byte) => byte === 0x78)).toBe(true);
});

testUnless(missing)('room is reserved with and without growing the file', () => {
  const files = new NativeFiles();
  const other = openSync(join(folder, 'g'), 'w+');

  files.allocate(other, 0, MIB, 'keep-size');
  expect(fstatSync(other).size).toBe(0);
  expect(files.allocatedBytes(other)).toBeGreaterThanOrEqual(MIB);
  files.allocate(other, 0, MIB, 'grow');

  expect(fstatSync(other).size).toBe(MIB);
  closeSync(other);
});

test.skipIf(missing !== null)(
  titled('a read that does not wait gives what the page cache has', missing),
  ({ skip }) => {
    const files = new NativeFiles();
    writeSync(fd, Buffer.from('hello'), 0, 5, 0);
    const bytes = Buffer.alloc(5);

    const read = files.preadNowait(fd, bytes, 0);
    // What has just been written is in the page cache. Some file systems have to wait for that, too (overlayfs over memory).
    const isKnown = NEVER_WAIT.includes(statfsSync(folder).type);
    skip(read === null && !isKnown, 'needs: a file system whose reads need not wait (RWF_NOWAIT)');
    expect(read).toBe(5);
    expect(bytes.toString()).toBe('hello');
    expect(files.preadNowait(fd, bytes, 100 * MIB)).toBe(0);
  },
);

testUnless(missing)('a failure says what was tried and its errno', () => {
  const files = new NativeFiles();

  expect(() => files.allocatedBytes(-1)).toThrow(expect.objectContaining({ name: 'FsError', errno: 'EBADF' }));
  expect(() => files.punchHole(fd, 0, 0)).toThrow(expect.objectContaining({ errno: 'EINVAL' }));
});

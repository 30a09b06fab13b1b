import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { BareMountPoint } from '../../src/mount/bare-mount-point.ts';

const OTHER = 65533;
const uid = process.getuid?.() ?? 0;
/** Root may give the directory to an ordinary user, who is then the one that mounts. */
const user = uid === 0 ? 65534 : uid;
let directory: string;

beforeEach(() => {
  directory = join(mkdtempSync(join(tmpdir(), 'cfs-bare-')), 'Cloud');
  mkdirSync(directory);
  if (uid === 0) chownSync(directory, user, user);
});

afterEach(() => rmSync(join(directory, '..'), { recursive: true, force: true }));

const modeOf = (): number => statSync(directory).mode & 0o7777;

/** [S-start-5] */
test.each([
  [0o755, 0o755, 0o555],
  [0o2775, 0o2775, 0o2555],
  [0o555, 0o755, 0o555],
  [0o700, 0o700, 0o500],
])('a mount point with mode %o has mode %o for the mount, and %o below it', (before, during, below) => {
  chmodSync(directory, before);

  const bare = BareMountPoint.open(directory, user);
  expect(modeOf()).toBe(during);
  bare?.close(true);
  expect(modeOf()).toBe(below);
});

test.each([0o755, 0o555])('a mount point with mode %o has it again when the mount fails', (mode) => {
  chmodSync(directory, mode);

  BareMountPoint.open(directory, user)?.close(false);

  expect(modeOf()).toBe(mode);
});

test('a directory with files, one of another user, and one that root mounts on keep their modes', () => {
  chmodSync(directory, 0o755);
  if (uid === 0) chownSync(directory, 0, 0);
  expect(BareMountPoint.open(directory, 0)).toBeNull();
  if (uid === 0) chownSync(directory, user, user);
  expect(BareMountPoint.open(directory, OTHER)).toBeNull();
  expect(BareMountPoint.open(join(directory, 'missing'), user)).toBeNull();
  writeFileSync(join(directory, 'note.txt'), '');
  expect(BareMountPoint.open(directory, user)).toBeNull();
  expect(modeOf()).toBe(0o755);
});

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { inotifyWatches } from '../../../src/mount/watchers/inotify-watches.ts';

/** Which inodes programs watch, from files as in /proc (proc(5), "inotify"). */

let proc: string;
beforeEach(() => {
  proc = mkdtempSync(join(tmpdir(), 'cfs-proc-'));
  mkdirSync(join(proc, 'self-is-no-process/fd'), { recursive: true });
});
afterEach(() => rmSync(proc, { recursive: true }));

/** A process whose descriptor 3 is an inotify instance; 4 is a file. */
function process(pid: number, lines: readonly string[]): void {
  for (const folder of ['fd', 'fdinfo']) mkdirSync(join(proc, String(pid), folder), { recursive: true });
  symlinkSync('anon_inode:inotify', join(proc, String(pid), 'fd/3'));
  symlinkSync('/etc/passwd', join(proc, String(pid), 'fd/4'));
  writeFileSync(join(proc, String(pid), 'fdinfo/3'), ['pos:\t0', 'flags:\t02004000', ...lines, ''].join('\n'));
}

const watch = (ino: number, device: string, wd = 1) =>
  `inotify wd:${wd.toString(16)} ino:${ino.toString(16)} sdev:${device} mask:3c8 ignored_mask:0 fhandle-bytes:c fhandle-type:81`;

test('watches of one file system are found in all processes, and no others', async () => {
  process(10, [watch(17, '2f'), watch(1_000, '30'), watch(18, '2f')]);
  process(11, [watch(2 ** 40, '2f')]);
  process(12, [watch(99, '10002f')]); // major 1

  expect([...(await inotifyWatches('0:47', proc))].sort()).toEqual([17, 18, 2 ** 40].sort());
  expect([...(await inotifyWatches('1:47', proc))]).toEqual([99]);
});

/** [S-fresh-5] */
test('a program with more than 64 watches in the file system counts as an indexer', async () => {
  process(
    10,
    Array.from({ length: 65 }, (_, n) => watch(n + 1, '2f', n)),
  );
  process(
    11,
    Array.from({ length: 64 }, (_, n) => watch(n + 1_001, '2f', n)),
  );
  process(12, [...Array.from({ length: 5_000 }, (_, n) => watch(n, '30', n)), watch(7, '2f')]);

  const found = await inotifyWatches('0:47', proc);
  expect(found.size).toBe(65);
  expect(found.has(1)).toBe(false);
  expect(found.has(7)).toBe(true);
});

test('a process that ends meanwhile, or that may not be read, is passed over', async () => {
  process(10, [watch(17, '2f')]);
  mkdirSync(join(proc, '11'));
  mkdirSync(join(proc, '12/fd'), { recursive: true });
  symlinkSync('anon_inode:inotify', join(proc, '12/fd/3')); // its fdinfo is gone

  expect([...(await inotifyWatches('0:47', proc))]).toEqual([17]);
});

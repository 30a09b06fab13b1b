import { expect } from 'vitest';
import { specialFileScenarios } from './cases/special-files.ts';
import { O_CREAT, O_RDONLY, O_WRONLY } from './file-api.ts';
import type { Difference } from './suite.ts';
import { fails } from './workplace.ts';

/**
 * What does not hold through `--binding fuse-native`, by the name of the case, with the reason: libfuse 2.9 and the package fuse-native
 * 2.2.6 do not pass it on. The same reasons stand in `docs/semantics.md` (S-binding-…).
 */
const noCaller = 'the binding does not pass on the caller: new files belong to the mounting user';
const noTimes = 'utimens passes the access time twice, in milliseconds, and only if both are set';
const noFallocate = 'fallocate(2) is not passed on: EOPNOTSUPP';
const noRenameFlags = 'the flags of renameat2(2) are not passed on: EINVAL';
const noSpecialFiles = 'mknod(2) makes regular files only: EPERM';
const noTemporaryFiles = 'O_TMPFILE is not passed on: EOPNOTSUPP';
const noPath = 'paths only: what has lost its name has none';

const byReason: Readonly<Record<string, readonly string[]>> = {
  [noCaller]: [
    'a new file belongs to who made it',
    'owner, group and others may read by their bits',
    'owner, group and others may write by their bits',
    'the owner is bound by the owner bits even where others may more',
    'root may read and write whatever the bits say',
    'a folder without the search bit hides what is in it',
    'a folder without the read bit is not listed but entered',
    'a folder without the write bit takes no new names and gives none up',
    'an existing file may be written by its own bits in a folder that may not be',
    'only the owner changes mode and times',
    'a user with write permission may set the times to now',
    'an ordinary user gives no file away',
    'in a sticky folder only the owner removes and renames',
    'access tells what each user may',
    'a descriptor keeps the access it was opened with',
    'a change of mode binds other users at once',
  ],
  [noTimes]: [
    'utimes keeps 0 ns to the nanosecond, for a file and a folder',
    'utimes keeps 1 ns to the nanosecond, for a file and a folder',
    'utimes keeps 1000000000123456789 ns to the nanosecond, for a file and a folder',
    'utimes keeps 4000000000999999999 ns to the nanosecond, for a file and a folder',
    'utimes keeps -1000000000 ns to the nanosecond, for a file and a folder',
    'utimes leaves the time that is omitted',
    'times set through a descriptor stay after its close',
    'times of a symlink are its own',
    'mtime stays while a written file is synced in the background and read again',
  ],
  [noFallocate]: [
    'fallocate past the end makes the file longer, with zeros',
    'fallocate within the file changes neither size nor bytes',
    'fallocate with KEEP_SIZE leaves the size',
    'punching a hole makes zeros there and keeps the size',
    'punching a hole across the end does not make the file longer',
    'zeroing a range writes zeros, and may make the file longer',
    'zeroing a range with KEEP_SIZE leaves the size',
    'fallocate moves mtime and ctime when it changes the file',
    'a write into a punched hole is there, the rest of the hole stays zero',
    'tail of a file that was cut inside a block and grown again is zeros',
  ],
  [noRenameFlags]: [
    'RENAME_NOREPLACE is EEXIST over anything, and else renames',
    'RENAME_EXCHANGE swaps two files',
    'RENAME_EXCHANGE swaps a file and a folder that is not empty, across folders',
  ],
  [noPath]: [
    'rmdir of the working directory leaves it empty and closed to new names',
    'a removed folder that a process works in is opened, and is empty',
  ],
  [noSpecialFiles]: specialFileScenarios
    .map(({ name }) => name)
    .filter((name) => name !== 'mknod of a device makes a device'),
  [noTemporaryFiles]: [
    'O_TMPFILE makes a file without a name',
    'linkat gives an O_TMPFILE file its name, with bytes, mode, times and inode',
    'linkat of an O_TMPFILE file over a name is EEXIST, and of one with O_EXCL ENOENT',
  ],
};

/** Cases that must fail. */
export const FUSE_NATIVE_FAILS: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(byReason).flatMap(([reason, names]) => names.map((name) => [name, reason])),
);

/** Cases that end otherwise. */
export const FUSE_NATIVE_DIFFERENCES: Readonly<Record<string, Difference>> = {
  'utimes to now is the time of this moment': {
    reason: 'it is the millisecond of this moment',
    async instead(fs) {
      await fs.put('file');
      const before = await fs.stat('file');
      await fs.utimes('file', 1n, 1n);
      await fs.utimes('file', 'now', 'now');
      const after = await fs.stat('file');
      const millisecond = 1_000_000n;
      expect(after.mtimeNs).toBeGreaterThan(before.mtimeNs - 20n * millisecond);
      expect(after.mtimeNs - before.mtimeNs).toBeLessThan(600_000n * millisecond);
    },
  },
  'the folder of a removed open file can be removed': {
    reason:
      'libfuse would have no path for that file any more, and the package crashes without one: ENOTEMPTY, as on NFS',
    async instead(fs) {
      await fs.mkdir('folder');
      await fs.put('folder/file', 'bytes');
      const fd = await fs.open('folder/file', O_RDONLY);
      await fs.unlink('folder/file');
      expect(await fs.names('folder')).toEqual([]);
      await fails('ENOTEMPTY', fs.rmdir('folder'));
      await fs.close(fd);
      // close(2) does not wait for the release, after which it can be removed.
      for (;;) {
        const removed = await fs.rmdir('folder').then(
          () => true,
          () => false,
        );
        if (removed) break;
      }
    },
  },
  'a reader beside renames over the file always finds one whole version': {
    reason: 'libfuse removes the name of an open file before the new file gets it: in between it is ENOENT',
    async instead(fs) {
      await fs.put('file', 'old');
      const reader = await fs.open('file', O_RDONLY);
      await fs.put('new', 'new');
      await fs.rename('new', 'file');
      expect(await fs.text('file')).toBe('new');
      expect(Buffer.from(await fs.read(reader, 0, 10)).toString()).toBe('old');
      await fs.close(reader);
      await fs.close(await fs.open('file', O_WRONLY | O_CREAT));
    },
  },
};

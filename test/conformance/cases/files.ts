import { expect } from 'vitest';
import {
  O_APPEND,
  O_CREAT,
  O_DIRECTORY,
  O_DSYNC,
  O_EXCL,
  O_NOFOLLOW,
  O_RDONLY,
  O_RDWR,
  O_SYNC,
  O_TMPFILE,
  O_TRUNC,
  O_WRONLY,
} from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { expectSameBytes, fails, pattern } from '../workplace.ts';

/** open(2), close(2), unlink(2) of files: every flag and every errno. */
export const fileScenarios: readonly Scenario[] = [
  scenario('a file created with O_CREAT is empty, regular and listed', async (fs) => {
    await fs.close(await fs.open('new', O_WRONLY | O_CREAT, 0o644));

    expect(await fs.stat('new')).toMatchObject({ kind: 'file', sizeBytes: 0, nlink: 1, mode: 0o644 });
    expect(await fs.names()).toEqual(['new']);
  }),
  scenario('O_CREAT on an existing file keeps its bytes and its mode', async (fs) => {
    await fs.put('file', 'kept', 0o600);

    await fs.close(await fs.open('file', O_WRONLY | O_CREAT, 0o777));

    expect(await fs.text('file')).toBe('kept');
    expect((await fs.stat('file')).mode).toBe(0o600);
  }),
  scenario('O_CREAT|O_EXCL on an existing file is EEXIST', async (fs) => {
    await fs.put('file', 'kept');

    await fails('EEXIST', fs.open('file', O_WRONLY | O_CREAT | O_EXCL));

    expect(await fs.text('file')).toBe('kept');
  }),
  scenario('O_CREAT|O_EXCL on a folder is EEXIST', async (fs) => {
    await fs.mkdir('folder');

    await fails('EEXIST', fs.open('folder', O_WRONLY | O_CREAT | O_EXCL));
  }),
  scenario('O_CREAT|O_EXCL on a dangling symlink is EEXIST and does not create the target', async (fs) => {
    await fs.symlink('nowhere', 'link');

    await fails('EEXIST', fs.open('link', O_WRONLY | O_CREAT | O_EXCL));

    expect(await fs.names()).toEqual(['link']);
  }),
  scenario('O_CREAT|O_EXCL on a free name creates the file', async (fs) => {
    const fd = await fs.open('new', O_RDWR | O_CREAT | O_EXCL, 0o640);

    expect(await fs.fstat(fd)).toMatchObject({ sizeBytes: 0, mode: 0o640 });
  }),
  scenario('O_CREAT through a dangling symlink creates the target', ['process'], async (fs) => {
    await fs.symlink('target', 'link');

    await fs.put('link', 'through');

    expect(await fs.text('target')).toBe('through');
    expect((await fs.lstat('link')).kind).toBe('symlink');
  }),
  scenario('open without O_CREAT of a name that does not exist is ENOENT', async (fs) => {
    await fails('ENOENT', fs.open('missing', O_RDONLY));
    await fails('ENOENT', fs.open('missing', O_RDWR));
    await fails('ENOENT', fs.open('missing', O_WRONLY | O_TRUNC));
  }),
  scenario('O_CREAT in a folder that does not exist is ENOENT', async (fs) => {
    await fails('ENOENT', fs.open('missing/file', O_WRONLY | O_CREAT));
  }),
  scenario('open below a file is ENOTDIR', async (fs) => {
    await fs.put('file');

    await fails('ENOTDIR', fs.open('file/child', O_RDONLY));
    await fails('ENOTDIR', fs.open('file/child', O_WRONLY | O_CREAT));
  }),
  scenario('open of a folder for writing is EISDIR', async (fs) => {
    await fs.mkdir('folder');

    await fails('EISDIR', fs.open('folder', O_WRONLY));
    await fails('EISDIR', fs.open('folder', O_RDWR));
  }),
  scenario('open of a folder with O_CREAT is EISDIR', ['process'], async (fs) => {
    await fs.mkdir('folder');

    await fails('EISDIR', fs.open('folder', O_WRONLY | O_CREAT));
    await fails('EISDIR', fs.open('folder', O_RDONLY | O_CREAT));
  }),
  scenario('O_DIRECTORY opens a folder and refuses a file with ENOTDIR', ['process'], async (fs) => {
    await fs.mkdir('folder');
    await fs.put('file');

    await fs.close(await fs.open('folder', O_RDONLY | O_DIRECTORY));

    await fails('ENOTDIR', fs.open('file', O_RDONLY | O_DIRECTORY));
  }),
  scenario('read(2) of an open folder is EISDIR', ['process'], async (fs) => {
    await fs.mkdir('folder');
    const fd = await fs.open('folder', O_RDONLY);

    await fails('EISDIR', fs.read(fd, 0, 10));
  }),
  scenario('O_NOFOLLOW on a symlink is ELOOP', ['process'], async (fs) => {
    await fs.put('file');
    await fs.symlink('file', 'link');

    await fails('ELOOP', fs.open('link', O_RDONLY | O_NOFOLLOW));
  }),
  scenario('O_TRUNC empties the file at open', async (fs) => {
    await fs.put('file', 'long contents');

    const fd = await fs.open('file', O_WRONLY | O_TRUNC);

    expect((await fs.fstat(fd)).sizeBytes).toBe(0);
    expect((await fs.stat('file')).sizeBytes).toBe(0);
  }),
  scenario('O_TRUNC keeps inode and mode', async (fs) => {
    await fs.put('file', 'old', 0o640);
    const { ino } = await fs.stat('file');

    await fs.put('file', 'newer', 0o777);

    expect(await fs.stat('file')).toMatchObject({ ino, mode: 0o640, sizeBytes: 5 });
  }),
  scenario('O_TRUNC of an empty file and O_CREAT|O_TRUNC of a new one give empty files', async (fs) => {
    await fs.put('file');
    await fs.close(await fs.open('file', O_RDWR | O_TRUNC));
    await fs.close(await fs.open('new', O_RDWR | O_CREAT | O_TRUNC));

    expect((await fs.stat('file')).sizeBytes).toBe(0);
    expect((await fs.stat('new')).sizeBytes).toBe(0);
  }),
  scenario('O_TRUNC empties the file also for a reader, and for good', async (fs) => {
    await fs.put('file', 'long contents');

    await fs.close(await fs.open('file', O_RDONLY | O_TRUNC));

    expect((await fs.stat('file')).sizeBytes).toBe(0);
    expect(await fs.text('file')).toBe('');
  }),
  scenario('O_TRUNC moves mtime and ctime', async (fs) => {
    await fs.put('file', 'old');
    const before = await fs.stat('file');
    await fs.tick();

    await fs.close(await fs.open('file', O_WRONLY | O_TRUNC));

    const after = await fs.stat('file');
    expect(after.mtimeNs).toBeGreaterThan(before.mtimeNs);
    expect(after.ctimeNs).toBeGreaterThan(before.ctimeNs);
  }),
  scenario('O_APPEND writes at the end, wherever the position is', ['process'], async (fs) => {
    await fs.put('file', 'first');
    const fd = await fs.open('file', O_WRONLY | O_APPEND);

    await fs.lseek(fd, 0, 0);
    await fs.process.writeHere(fd, Buffer.from(' second'));
    await fs.lseek(fd, 2, 0);
    await fs.process.writeHere(fd, Buffer.from(' third'));
    await fs.close(fd);

    expect(await fs.text('file')).toBe('first second third');
  }),
  scenario('O_APPEND follows a file that another descriptor made longer or shorter', ['process'], async (fs) => {
    await fs.put('file', '12345');
    const appender = await fs.open('file', O_WRONLY | O_APPEND);
    const other = await fs.open('file', O_RDWR);

    await fs.write(other, 5, '67');
    await fs.process.writeHere(appender, Buffer.from('A'));
    await fs.ftruncate(other, 2);
    await fs.process.writeHere(appender, Buffer.from('B'));

    expect(await fs.text('file')).toBe('12B');
  }),
  scenario('reading from a descriptor opened with O_WRONLY is EBADF', ['process'], async (fs) => {
    const fd = await fs.open('file', O_WRONLY | O_CREAT);

    await fails('EBADF', fs.read(fd, 0, 1));
  }),
  scenario('writing to a descriptor opened with O_RDONLY is EBADF', ['process'], async (fs) => {
    await fs.put('file', 'kept');
    const fd = await fs.open('file', O_RDONLY);

    await fails('EBADF', fs.write(fd, 0, 'x'));

    expect(await fs.text('file')).toBe('kept');
  }),
  scenario('truncating a descriptor opened with O_RDONLY is EINVAL', ['process'], async (fs) => {
    await fs.put('file', 'kept');
    const fd = await fs.open('file', O_RDONLY);

    await fails('EINVAL', fs.ftruncate(fd, 0));
  }),
  scenario('a closed descriptor is EBADF', ['process'], async (fs) => {
    await fs.put('file');
    const fd = await fs.open('file', O_RDWR);
    await fs.close(fd);

    await fails('EBADF', fs.read(fd, 0, 1));
    await fails('EBADF', fs.write(fd, 0, 'x'));
    await fails('EBADF', fs.close(fd));
  }),
  scenario('each open has a position of its own, dup shares it', ['process'], async (fs) => {
    await fs.put('file', 'abcdef');
    const one = await fs.open('file', O_RDONLY);
    const two = await fs.open('file', O_RDONLY);
    const copy = await fs.process.dup(one);

    expect(String(Buffer.from(await fs.process.readHere(one, 2)))).toBe('ab');
    expect(String(Buffer.from(await fs.process.readHere(two, 3)))).toBe('abc');
    expect(String(Buffer.from(await fs.process.readHere(copy, 2)))).toBe('cd');
  }),
  scenario('the file stays usable through a dup after the first descriptor was closed', ['process'], async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 0, 'one');
    const copy = await fs.process.dup(fd);
    await fs.close(fd);

    await fs.write(copy, 3, ' two');

    expect(await fs.text('file')).toBe('one two');
  }),
  scenario('a new file can be opened read-write with a mode that forbids it', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT, 0o400);

    await fs.write(fd, 0, 'allowed');

    expect(Buffer.from(await fs.read(fd, 0, 7)).toString()).toBe('allowed');
    expect((await fs.stat('file')).mode).toBe(0o400);
  }),
  scenario('O_SYNC and O_DSYNC writes are there', async (fs) => {
    const sync = await fs.open('sync', O_WRONLY | O_CREAT | O_SYNC);
    const dsync = await fs.open('dsync', O_WRONLY | O_CREAT | O_DSYNC);
    await fs.write(sync, 0, 'sync');
    await fs.write(dsync, 0, 'dsync');

    expect(await fs.text('sync')).toBe('sync');
    expect(await fs.text('dsync')).toBe('dsync');
  }),
  scenario('fsync and fdatasync succeed on files open for writing and for reading', ['process'], async (fs) => {
    await fs.put('file', 'x');
    const writer = await fs.open('file', O_RDWR);
    const reader = await fs.open('file', O_RDONLY);
    await fs.write(writer, 0, 'y');

    await fs.fsync(writer);
    await fs.process.fdatasync(writer);
    await fs.fsync(reader);
  }),
  scenario('fsync of an open folder succeeds', ['process'], async (fs) => {
    await fs.mkdir('folder');
    await fs.put('folder/file', 'x');

    await fs.fsync(await fs.open('folder', O_RDONLY | O_DIRECTORY));
  }),
  scenario('O_TMPFILE makes a file without a name', ['process'], async (fs) => {
    const fd = await fs.open('', O_RDWR | O_TMPFILE, 0o600);
    await fs.write(fd, 0, 'nameless');

    expect(Buffer.from(await fs.read(fd, 0, 8)).toString()).toBe('nameless');
    expect(await fs.names()).toEqual([]);
    expect(await fs.fstat(fd)).toMatchObject({ kind: 'file', mode: 0o600, nlink: 0, sizeBytes: 8 });
    await fs.fsync(fd);
  }),
  scenario('linkat gives an O_TMPFILE file its name, with bytes, mode, times and inode', ['process'], async (fs) => {
    await fs.mkdir('folder');
    for (const bytes of [pattern(7), pattern(300_000), pattern(0)]) {
      const fd = await fs.open('', O_RDWR | O_TMPFILE, 0o640);
      if (bytes.byteLength > 0) await fs.write(fd, 0, bytes);
      await fs.process.futimes(fd, 5_000_000_000n, 6_000_000_000n);
      const { ino } = await fs.fstat(fd);

      await fs.process.linkOpen(fd, 'folder/named');

      const told = { ino, mode: 0o640, nlink: 1, sizeBytes: bytes.byteLength, mtimeNs: 6_000_000_000n };
      expect(await fs.stat('folder/named')).toMatchObject(told);
      expect(await fs.fstat(fd)).toMatchObject(told);
      expectSameBytes(await fs.get('folder/named'), bytes);
      await fs.write(fd, bytes.byteLength, Buffer.from('more'));
      await fs.fsync(fd);
      await fs.close(fd);
      expectSameBytes(await fs.get('folder/named'), Buffer.concat([bytes, Buffer.from('more')]));
      await fs.unlink('folder/named');
    }
  }),
  scenario(
    'linkat of an O_TMPFILE file over a name is EEXIST, and of one with O_EXCL ENOENT',
    ['process'],
    async (fs) => {
      await fs.put('taken', 'stays');
      const fd = await fs.open('', O_RDWR | O_TMPFILE, 0o600);
      await fs.write(fd, 0, Buffer.from('nameless'));

      await fails('EEXIST', fs.process.linkOpen(fd, 'taken'));
      await fails('ENOENT', fs.process.linkOpen(fd, 'missing/name'));
      await fs.process.linkOpen(fd, 'free');

      expect([await fs.text('taken'), await fs.text('free')]).toEqual(['stays', 'nameless']);
      const other = await fs.open('', O_RDWR | O_TMPFILE | O_EXCL, 0o600);
      await fails('ENOENT', fs.process.linkOpen(other, 'other'));
    },
  ),
  scenario('unlink removes the name', async (fs) => {
    await fs.put('file', 'x');

    await fs.unlink('file');

    expect(await fs.exists('file')).toBe(false);
    expect(await fs.names()).toEqual([]);
  }),
  scenario('unlink of a name that does not exist is ENOENT', async (fs) => {
    await fails('ENOENT', fs.unlink('missing'));
    await fails('ENOENT', fs.unlink('missing/file'));
  }),
  scenario('unlink of a folder is EISDIR', async (fs) => {
    await fs.mkdir('folder');

    await fails('EISDIR', fs.unlink('folder'));

    expect(await fs.names()).toEqual(['folder']);
  }),
  scenario('unlink below a file is ENOTDIR', async (fs) => {
    await fs.put('file');

    await fails('ENOTDIR', fs.unlink('file/child'));
  }),
  scenario('a name that was removed can be created again, as a different inode', async (fs) => {
    const fd = await fs.open('name', O_RDWR | O_CREAT);
    const { ino } = await fs.fstat(fd);
    await fs.unlink('name');

    await fs.put('name', 'second');

    expect((await fs.stat('name')).ino).not.toBe(ino);
    expect(await fs.text('name')).toBe('second');
  }),
  scenario('a file removed and created 50 times over ends with the last bytes', async (fs) => {
    for (let round = 0; round < 50; round++) {
      await fs.put('name', `round ${round}`);
      if (round < 49) await fs.unlink('name');
    }

    expect(await fs.text('name')).toBe('round 49');
  }),
];

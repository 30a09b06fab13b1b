import { expect } from 'vitest';
import { O_CREAT, O_RDONLY, O_RDWR, O_WRONLY } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { expectSameBytes, fails, pattern } from '../workplace.ts';

/** Symlinks, hard links, and files that live on after their name is gone. */
export const linkScenarios: readonly Scenario[] = [
  scenario('a symlink tells its target as it was given', async (fs) => {
    for (const target of ['file', '../up/and/over', '/absolute/path', 'with space', 'ünïcödé/文件', './/odd/./form/']) {
      await fs.symlink(target, 'link');
      expect(await fs.readlink('link')).toBe(target);
      await fs.unlink('link');
    }
  }),
  scenario('lstat of a symlink tells the link, its size is the length of the target in bytes', async (fs) => {
    await fs.symlink('zäh', 'link');

    expect(await fs.lstat('link')).toMatchObject({ kind: 'symlink', sizeBytes: 4, mode: 0o777, nlink: 1 });
  }),
  scenario('a symlink is followed to a file and to a folder', ['process'], async (fs) => {
    await fs.mkdir('folder');
    await fs.put('folder/file', 'x');
    await fs.symlink('folder', 'to-folder');
    await fs.symlink('to-folder/file', 'to-file');

    expect(await fs.text('to-file')).toBe('x');
    expect(await fs.names('to-folder')).toEqual(['file']);
    expect((await fs.stat('to-folder')).kind).toBe('folder');
  }),
  scenario('a dangling symlink exists and leads nowhere', async (fs) => {
    await fs.symlink('nowhere', 'link');

    expect((await fs.lstat('link')).kind).toBe('symlink');
    expect(await fs.names()).toEqual(['link']);
    await fails('ENOENT', fs.stat('link'));
    await fails('ENOENT', fs.open('link', O_RDONLY));
  }),
  scenario('symlinks in a circle are ELOOP', ['process'], async (fs) => {
    await fs.symlink('b', 'a');
    await fs.symlink('a', 'b');
    await fs.symlink('self', 'self');

    await fails('ELOOP', fs.stat('a'));
    await fails('ELOOP', fs.open('self', O_RDONLY));
    await fails('ELOOP', fs.open('self', O_WRONLY | O_CREAT));
    await fails('ELOOP', fs.truncate('self', 0));
    await fails('ELOOP', fs.mkdir('self/child'));
  }),
  scenario('a symlink may point to 4095 bytes', async (fs) => {
    const target = `${'t'.repeat(254)}/`.repeat(16) + 't'.repeat(15);
    await fs.symlink(target, 'link');

    expect(Buffer.byteLength(target)).toBe(4095);
    expect(await fs.readlink('link')).toBe(target);
    expect((await fs.lstat('link')).sizeBytes).toBe(4095);
  }),
  scenario('a symlink to 4096 bytes is ENAMETOOLONG, to nothing ENOENT', ['process'], async (fs) => {
    await fails('ENAMETOOLONG', fs.symlink('t'.repeat(4096), 'link'));
    await fails('ENOENT', fs.symlink('', 'link'));
  }),
  scenario('symlink over a name that exists is EEXIST', async (fs) => {
    await fs.put('file');
    await fs.mkdir('folder');
    await fs.symlink('x', 'link');

    await fails('EEXIST', fs.symlink('t', 'file'));
    await fails('EEXIST', fs.symlink('t', 'folder'));
    await fails('EEXIST', fs.symlink('t', 'link'));
  }),
  scenario('symlink in a folder that does not exist is ENOENT, below a file ENOTDIR', async (fs) => {
    await fs.put('file');

    await fails('ENOENT', fs.symlink('t', 'missing/link'));
    await fails('ENOTDIR', fs.symlink('t', 'file/link'));
  }),
  scenario('readlink of a file or folder is EINVAL, of nothing ENOENT', async (fs) => {
    await fs.put('file');
    await fs.mkdir('folder');

    await fails('EINVAL', fs.readlink('file'));
    await fails('EINVAL', fs.readlink('folder'));
    await fails('ENOENT', fs.readlink('missing'));
  }),
  scenario('unlink of a symlink keeps what it points to', async (fs) => {
    await fs.put('file', 'kept');
    await fs.symlink('file', 'link');

    await fs.unlink('link');

    expect(await fs.text('file')).toBe('kept');
  }),
  scenario('a symlink through a file is ENOTDIR', ['process'], async (fs) => {
    await fs.put('file');
    await fs.symlink('file', 'link');

    await fails('ENOTDIR', fs.stat('link/child'));
  }),
  scenario('a hard link is a second name of the same file', async (fs) => {
    await fs.put('one', 'shared');

    await fs.link('one', 'two');

    expect((await fs.stat('two')).ino).toBe((await fs.stat('one')).ino);
    expect((await fs.stat('one')).nlink).toBe(2);
    await fs.put('two', 'changed');
    expect(await fs.text('one')).toBe('changed');
    await fs.unlink('one');
    expect((await fs.stat('two')).nlink).toBe(1);
  }),
  scenario('link over a name that exists is EEXIST, of nothing ENOENT, of a folder EPERM', ['process'], async (fs) => {
    await fs.put('one');
    await fs.put('two');
    await fs.mkdir('folder');

    await fails('EEXIST', fs.link('one', 'two'));
    await fails('ENOENT', fs.link('missing', 'three'));
    await fails('EPERM', fs.link('folder', 'three'));
    expect(await fs.names()).toEqual(['folder', 'one', 'two']);
  }),
  scenario('an open file that was removed can still be read and written', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 0, 'before');
    await fs.unlink('file');

    expect((await fs.fstat(fd)).sizeBytes).toBe(6);
    await fs.write(fd, 6, ' and after');

    expect(Buffer.from(await fs.read(fd, 0, 100)).toString()).toBe('before and after');
    expect(await fs.names()).toEqual([]);
  }),
  scenario('an open file has no links after its removal, and after a rename over it', async (fs) => {
    const removed = await fs.open('file', O_RDWR | O_CREAT);
    const replaced = await fs.open('target', O_RDWR | O_CREAT);
    await fs.put('source', 'new');

    await fs.unlink('file');
    await fs.rename('source', 'target');

    expect((await fs.fstat(removed)).nlink).toBe(0);
    expect((await fs.fstat(replaced)).nlink).toBe(0);
  }),
  scenario('an open file that was removed can be truncated and synced', async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.write(fd, 0, pattern(200_000));
    await fs.unlink('file');

    await fs.ftruncate(fd, 100_000);
    await fs.ftruncate(fd, 150_000);
    await fs.fsync(fd);

    expect((await fs.fstat(fd)).sizeBytes).toBe(150_000);
    expectSameBytes(await fs.read(fd, 0, 100_000), pattern(200_000).subarray(0, 100_000));
    expectSameBytes(await fs.read(fd, 100_000, 50_000), Buffer.alloc(50_000));
  }),
  scenario('a removed file and a new one of its name do not meet', async (fs) => {
    await fs.put('name', 'first');
    const old = await fs.open('name', O_RDWR);
    await fs.unlink('name');
    await fs.put('name', 'second');

    await fs.write(old, 0, 'FIRST and longer');

    expect(await fs.text('name')).toBe('second');
    expect(Buffer.from(await fs.read(old, 0, 100)).toString()).toBe('FIRST and longer');
    await fs.close(old);
    expect(await fs.text('name')).toBe('second');
  }),
  scenario('a file that two descriptors hold lives until the last is closed', async (fs) => {
    await fs.put('file', 'bytes');
    const one = await fs.open('file', O_RDONLY);
    const two = await fs.open('file', O_RDONLY);
    await fs.unlink('file');
    await fs.close(one);

    expect(Buffer.from(await fs.read(two, 0, 100)).toString()).toBe('bytes');
  }),
  scenario('the folder of a removed open file can be removed', async (fs) => {
    await fs.mkdir('folder');
    const fd = await fs.open('folder/file', O_RDWR | O_CREAT);
    await fs.write(fd, 0, 'bytes');
    await fs.unlink('folder/file');

    await fs.rmdir('folder');

    expect(Buffer.from(await fs.read(fd, 0, 100)).toString()).toBe('bytes');
    expect(await fs.names()).toEqual([]);
  }),
  scenario('the mode of a removed open file can be changed', ['process'], async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT, 0o644);
    await fs.unlink('file');

    await fs.process.fchmod(fd, 0o600);

    expect((await fs.fstat(fd)).mode).toBe(0o600);
  }),
];

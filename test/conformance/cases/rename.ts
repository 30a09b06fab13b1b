import { expect } from 'vitest';
import { O_CREAT, O_RDONLY, O_RDWR, RENAME_EXCHANGE, RENAME_NOREPLACE } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { fails } from '../workplace.ts';

/** rename(2) and renameat2(2). */
export const renameScenarios: readonly Scenario[] = [
  scenario('rename of a file keeps inode, bytes, mode and mtime', async (fs) => {
    await fs.put('a', 'bytes', 0o640);
    const before = await fs.stat('a');

    await fs.rename('a', 'b');

    expect(await fs.names()).toEqual(['b']);
    const { ino, mode, mtimeNs, sizeBytes } = before;
    expect(await fs.stat('b')).toMatchObject({ ino, mode, mtimeNs, sizeBytes });
    expect(await fs.text('b')).toBe('bytes');
  }),
  scenario('rename moves ctime of what was renamed', async (fs) => {
    await fs.put('a');
    const before = await fs.stat('a');
    await fs.tick();

    await fs.rename('a', 'b');

    expect((await fs.stat('b')).ctimeNs).toBeGreaterThan(before.ctimeNs);
  }),
  scenario('rename into another folder', async (fs) => {
    await fs.mkdir('from');
    await fs.mkdir('to');
    await fs.put('from/file', 'x');

    await fs.rename('from/file', 'to/moved');

    expect(await fs.names('from')).toEqual([]);
    expect(await fs.text('to/moved')).toBe('x');
  }),
  scenario('rename over a file replaces it', async (fs) => {
    await fs.put('source', 'source');
    await fs.put('target', 'target');
    const { ino } = await fs.stat('source');

    await fs.rename('source', 'target');

    expect(await fs.names()).toEqual(['target']);
    expect(await fs.text('target')).toBe('source');
    expect((await fs.stat('target')).ino).toBe(ino);
  }),
  scenario('a reader of the replaced file goes on reading its bytes', async (fs) => {
    await fs.put('target', 'old bytes');
    await fs.put('source', 'new');
    const reader = await fs.open('target', O_RDONLY);

    await fs.rename('source', 'target');

    expect(Buffer.from(await fs.read(reader, 0, 100)).toString()).toBe('old bytes');
    expect(await fs.text('target')).toBe('new');
  }),
  scenario('a writer of the renamed file writes to the file under its new name', async (fs) => {
    const fd = await fs.open('draft', O_RDWR | O_CREAT);
    await fs.write(fd, 0, 'one');

    await fs.rename('draft', 'final');
    await fs.write(fd, 3, ' two');
    await fs.close(fd);

    expect(await fs.text('final')).toBe('one two');
  }),
  scenario('rename of a name that does not exist is ENOENT', async (fs) => {
    await fs.put('file', 'kept');

    await fails('ENOENT', fs.rename('missing', 'file'));
    await fails('ENOENT', fs.rename('missing/file', 'other'));
    await fails('ENOENT', fs.rename('file', 'missing/file'));

    expect(await fs.text('file')).toBe('kept');
  }),
  scenario('rename below a file is ENOTDIR', async (fs) => {
    await fs.put('file');
    await fs.put('other');

    await fails('ENOTDIR', fs.rename('file/child', 'x'));
    await fails('ENOTDIR', fs.rename('other', 'file/child'));
  }),
  scenario('rename to itself does nothing', async (fs) => {
    await fs.put('file', 'kept');
    await fs.mkdir('folder');
    await fs.put('folder/child');

    await fs.rename('file', 'file');
    await fs.rename('folder', 'folder');

    expect(await fs.text('file')).toBe('kept');
    expect(await fs.names('folder')).toEqual(['child']);
  }),
  scenario('rename of a file over a folder is EISDIR', async (fs) => {
    await fs.put('file');
    await fs.mkdir('folder');

    await fails('EISDIR', fs.rename('file', 'folder'));

    expect(await fs.names()).toEqual(['file', 'folder']);
  }),
  scenario('rename of a folder over a file is ENOTDIR', async (fs) => {
    await fs.put('file');
    await fs.mkdir('folder');

    await fails('ENOTDIR', fs.rename('folder', 'file'));

    expect(await fs.names()).toEqual(['file', 'folder']);
  }),
  scenario('rename of a folder over an empty folder replaces it', async (fs) => {
    await fs.mkdir('source');
    await fs.put('source/child', 'x');
    await fs.mkdir('target');
    const { ino } = await fs.stat('source');

    await fs.rename('source', 'target');

    expect(await fs.names()).toEqual(['target']);
    expect((await fs.stat('target')).ino).toBe(ino);
    expect(await fs.text('target/child')).toBe('x');
  }),
  scenario('rename of a folder over a folder that is not empty is ENOTEMPTY', async (fs) => {
    await fs.mkdir('source');
    await fs.mkdir('target');
    await fs.put('target/child');

    await fails(['ENOTEMPTY', 'EEXIST'], fs.rename('source', 'target'));

    expect(await fs.names('target')).toEqual(['child']);
  }),
  scenario('rename of a folder into itself or below itself is EINVAL', async (fs) => {
    await fs.mkdir('folder');
    await fs.mkdir('folder/child');

    await fails('EINVAL', fs.rename('folder', 'folder/child/moved'));
    await fails('EINVAL', fs.rename('folder', 'folder/moved'));
  }),
  scenario('rename of a child over its own parent is ENOTEMPTY', async (fs) => {
    await fs.mkdir('folder');
    await fs.mkdir('folder/child');

    await fails(['ENOTEMPTY', 'EEXIST'], fs.rename('folder/child', 'folder'));
  }),
  scenario('rename of a folder takes along all that is below it', async (fs) => {
    await fs.mkdir('a');
    await fs.mkdir('a/b');
    await fs.mkdir('a/b/c');
    await fs.put('a/b/c/file', 'deep');
    await fs.mkdir('other');

    await fs.rename('a/b', 'other/b');

    expect(await fs.names('a')).toEqual([]);
    expect(await fs.text('other/b/c/file')).toBe('deep');
    await fails('ENOENT', fs.stat('a/b/c/file'));
  }),
  scenario('.. of a moved folder is its new parent', ['process'], async (fs) => {
    await fs.mkdir('from');
    await fs.mkdir('to');
    await fs.mkdir('from/folder');

    await fs.rename('from/folder', 'to/folder');

    expect((await fs.stat('to/folder/..')).ino).toBe((await fs.stat('to')).ino);
  }),
  scenario('rename of a symlink moves the link, not what it points to', async (fs) => {
    await fs.put('file', 'x');
    await fs.symlink('file', 'link');

    await fs.rename('link', 'moved');

    expect(await fs.readlink('moved')).toBe('file');
    expect(await fs.names()).toEqual(['file', 'moved']);
  }),
  scenario('rename over a symlink replaces the link, not what it points to', async (fs) => {
    await fs.put('file', 'kept');
    await fs.symlink('file', 'link');
    await fs.put('source', 'source');

    await fs.rename('source', 'link');

    expect(await fs.text('file')).toBe('kept');
    expect((await fs.lstat('link')).kind).toBe('file');
  }),
  scenario('RENAME_NOREPLACE is EEXIST over anything, and else renames', async (fs) => {
    await fs.put('source', 'source');
    await fs.put('file', 'kept');
    await fs.mkdir('folder');

    await fails('EEXIST', fs.rename('source', 'file', RENAME_NOREPLACE));
    await fails('EEXIST', fs.rename('source', 'folder', RENAME_NOREPLACE));
    await fails('ENOENT', fs.rename('missing', 'free', RENAME_NOREPLACE));
    expect(await fs.text('file')).toBe('kept');
    await fs.rename('source', 'free', RENAME_NOREPLACE);

    expect(await fs.names()).toEqual(['file', 'folder', 'free']);
  }),
  scenario('RENAME_EXCHANGE swaps two files', async (fs) => {
    await fs.put('a', 'was a');
    await fs.put('b', 'was b');
    const [a, b] = [await fs.stat('a'), await fs.stat('b')];

    await fs.rename('a', 'b', RENAME_EXCHANGE);

    expect(await fs.text('a')).toBe('was b');
    expect(await fs.text('b')).toBe('was a');
    expect((await fs.stat('a')).ino).toBe(b.ino);
    expect((await fs.stat('b')).ino).toBe(a.ino);
  }),
  scenario('RENAME_EXCHANGE swaps a file and a folder that is not empty, across folders', async (fs) => {
    await fs.mkdir('one');
    await fs.mkdir('two');
    await fs.put('one/x', 'file');
    await fs.mkdir('two/y');
    await fs.put('two/y/child', 'child');

    await fs.rename('one/x', 'two/y', RENAME_EXCHANGE);

    expect(await fs.text('one/x/child')).toBe('child');
    expect(await fs.text('two/y')).toBe('file');
  }),
  scenario('RENAME_EXCHANGE with a missing side is ENOENT, with a child of itself EINVAL', async (fs) => {
    await fs.put('file');
    await fs.mkdir('folder');
    await fs.mkdir('folder/child');

    await fails('ENOENT', fs.rename('file', 'missing', RENAME_EXCHANGE));
    await fails('ENOENT', fs.rename('missing', 'file', RENAME_EXCHANGE));
    await fails('EINVAL', fs.rename('folder', 'folder/child', RENAME_EXCHANGE));
    await fails(['EINVAL', 'ENOTEMPTY'], fs.rename('folder/child', 'folder', RENAME_EXCHANGE));
  }),
  scenario('RENAME_NOREPLACE together with RENAME_EXCHANGE is EINVAL', ['process'], async (fs) => {
    await fs.put('a');
    await fs.put('b');

    await fails('EINVAL', fs.rename('a', 'b', RENAME_NOREPLACE | RENAME_EXCHANGE));
  }),
  scenario('a chain of renames ends with the bytes of the last', async (fs) => {
    await fs.put('n0', 'travels');
    for (let step = 0; step < 100; step++) await fs.rename(`n${step}`, `n${step + 1}`);

    expect(await fs.names()).toEqual(['n100']);
    expect(await fs.text('n100')).toBe('travels');
  }),
  scenario('three files change names in a circle', async (fs) => {
    for (const name of ['a', 'b', 'c']) await fs.put(name, `was ${name}`);

    await fs.rename('a', 't');
    await fs.rename('b', 'a');
    await fs.rename('c', 'b');
    await fs.rename('t', 'c');

    expect([await fs.text('a'), await fs.text('b'), await fs.text('c')]).toEqual(['was b', 'was c', 'was a']);
  }),
  scenario('the save of an editor: temporary file, rename over, 20 times', async (fs) => {
    await fs.put('document', 'version 0');
    for (let version = 1; version <= 20; version++) {
      await fs.put(`.document.tmp${version}`, `version ${version}`);
      await fs.rename(`.document.tmp${version}`, 'document');
      expect(await fs.text('document')).toBe(`version ${version}`);
    }

    expect(await fs.names()).toEqual(['document']);
  }),
  scenario('the save of an editor: rename away, write anew, remove the backup', async (fs) => {
    await fs.put('document', 'old');

    await fs.rename('document', 'document~');
    await fs.put('document', 'new');
    expect(await fs.text('document~')).toBe('old');
    await fs.unlink('document~');

    expect(await fs.names()).toEqual(['document']);
    expect(await fs.text('document')).toBe('new');
  }),
];

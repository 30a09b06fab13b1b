import { expect } from 'vitest';
import { F_OK, O_CREAT, O_RDONLY, O_RDWR, O_WRONLY, R_OK, W_OK, X_OK } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { fails } from '../workplace.ts';

const NS = 1_000_000_000n;

/** stat(2), chmod(2), chown(2), utimensat(2), umask(2), statvfs(3), access(2), mknod(2). */
export const attributeScenarios: readonly Scenario[] = [
  scenario('stat of a name that does not exist is ENOENT, below a file ENOTDIR', async (fs) => {
    await fs.put('file');

    await fails('ENOENT', fs.stat('missing'));
    await fails('ENOENT', fs.stat('missing/child'));
    await fails('ENOTDIR', fs.stat('file/child'));
    await fails('ENOTDIR', fs.lstat('file/child'));
  }),
  scenario('stat, lstat and fstat of a file agree', async (fs) => {
    await fs.put('file', 'bytes');
    const fd = await fs.open('file', O_RDONLY);

    const stat = await fs.stat('file');

    expect(await fs.lstat('file')).toEqual(stat);
    expect(await fs.fstat(fd)).toEqual(stat);
  }),
  scenario('each file and folder has an inode number of its own', async (fs) => {
    await fs.put('a');
    await fs.put('b');
    await fs.mkdir('c');
    await fs.symlink('a', 'd');

    const inodes = new Set<number>();
    for (const name of ['a', 'b', 'c', 'd', '']) inodes.add((await fs.lstat(name)).ino);

    expect(inodes.size).toBe(5);
  }),
  scenario('an inode number survives writes, renames and attribute changes', async (fs) => {
    await fs.put('a', 'x');
    const { ino } = await fs.stat('a');

    await fs.put('a', 'y');
    await fs.chmod('a', 0o600);
    await fs.utimes('a', 1n, 1n);
    await fs.rename('a', 'b');

    expect((await fs.stat('b')).ino).toBe(ino);
  }),
  ...[0o777, 0o644, 0o400, 0o222, 0o111, 0o000, 0o4755, 0o2755, 0o1777].map((mode) =>
    scenario(`chmod to ${mode.toString(8).padStart(4, '0')} is kept, for a file and a folder`, async (fs) => {
      await fs.put('file');
      await fs.mkdir('folder');

      await fs.chmod('file', mode);
      await fs.chmod('folder', mode);

      expect(await fs.stat('file')).toMatchObject({ kind: 'file', mode });
      expect(await fs.stat('folder')).toMatchObject({ kind: 'folder', mode });
      // An ordinary user cannot empty the ground over a folder that may not be read.
      await fs.chmod('folder', 0o755);
    }),
  ),
  scenario('chmod moves ctime and leaves mtime', async (fs) => {
    await fs.put('file', 'x');
    const before = await fs.stat('file');
    await fs.tick();

    await fs.chmod('file', 0o600);

    const after = await fs.stat('file');
    expect(after.ctimeNs).toBeGreaterThan(before.ctimeNs);
    expect(after.mtimeNs).toBe(before.mtimeNs);
  }),
  scenario('chmod of nothing is ENOENT, below a file ENOTDIR', async (fs) => {
    await fs.put('file');

    await fails('ENOENT', fs.chmod('missing', 0o644));
    await fails('ENOTDIR', fs.chmod('file/child', 0o644));
  }),
  scenario('chmod follows a symlink', ['process'], async (fs) => {
    await fs.put('file', '', 0o644);
    await fs.symlink('file', 'link');

    await fs.chmod('link', 0o600);

    expect((await fs.stat('file')).mode).toBe(0o600);
    expect((await fs.lstat('link')).mode).toBe(0o777);
  }),
  scenario('fchmod changes the file of the descriptor, under whatever name', ['process'], async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT, 0o644);
    await fs.rename('file', 'moved');

    await fs.process.fchmod(fd, 0o640);

    expect((await fs.stat('moved')).mode).toBe(0o640);
  }),
  scenario('a mode set while the file is open survives its close', async (fs) => {
    const fd = await fs.open('file', O_WRONLY | O_CREAT, 0o644);
    await fs.write(fd, 0, 'x');
    await fs.chmod('file', 0o751);
    await fs.write(fd, 1, 'y');
    await fs.close(fd);

    expect(await fs.stat('file')).toMatchObject({ mode: 0o751, sizeBytes: 2 });
  }),
  ...(['chmod', 'setxattr', 'rename'] as const).map((call) =>
    scenario(`${call} moves ctime also of what was just written, and its close does not take that back`, async (fs) => {
      const fd = await fs.open('file', O_WRONLY | O_CREAT, 0o644);
      await fs.write(fd, 0, 'x');
      const written = await fs.fstat(fd);
      await fs.tick();

      if (call === 'chmod') await fs.chmod('file', 0o640);
      else if (call === 'setxattr') await fs.setxattr('file', 'user.note', 'x');
      else await fs.rename('file', 'moved');

      const changed = await fs.fstat(fd);
      await fs.close(fd);
      const { ctimeNs } = await fs.stat(call === 'rename' ? 'moved' : 'file');
      expect(changed.ctimeNs).toBeGreaterThan(written.ctimeNs);
      expect(ctimeNs).toBeGreaterThanOrEqual(changed.ctimeNs);
      expect(changed.mtimeNs).toBe(written.mtimeNs);
    }),
  ),
  scenario('the removal of a name moves ctime of what was just written and is still open', async (fs) => {
    const fd = await fs.open('file', O_WRONLY | O_CREAT, 0o644);
    await fs.write(fd, 0, 'x');
    const written = await fs.fstat(fd);
    await fs.tick();

    await fs.unlink('file');

    const removed = await fs.fstat(fd);
    expect(removed).toMatchObject({ sizeBytes: 1, mtimeNs: written.mtimeNs });
    expect(removed.ctimeNs).toBeGreaterThan(written.ctimeNs);
  }),
  scenario('umask takes bits from new files and folders', ['process'], async (fs) => {
    await fs.process.umask(0o027);
    await fs.put('file', '', 0o666);
    await fs.mkdir('folder', 0o777);
    await fs.process.umask(0o000);
    await fs.put('open', '', 0o666);
    await fs.process.umask(0o022);

    expect((await fs.stat('file')).mode).toBe(0o640);
    expect((await fs.stat('folder')).mode).toBe(0o750);
    expect((await fs.stat('open')).mode).toBe(0o666);
  }),
  scenario('root changes owner and group, and each alone', ['users'], async (fs) => {
    await fs.put('file');
    await fs.chown('file', 1234, 5678);
    expect(await fs.stat('file')).toMatchObject({ uid: 1234, gid: 5678 });

    await fs.chown('file', -1, 42);
    expect(await fs.stat('file')).toMatchObject({ uid: 1234, gid: 42 });
    await fs.chown('file', 7, -1);

    expect(await fs.stat('file')).toMatchObject({ uid: 7, gid: 42 });
  }),
  scenario('chown moves ctime and leaves mtime', ['users'], async (fs) => {
    await fs.put('file');
    const before = await fs.stat('file');
    await fs.tick();

    await fs.chown('file', 1, 1);

    const after = await fs.stat('file');
    expect(after.ctimeNs).toBeGreaterThan(before.ctimeNs);
    expect(after.mtimeNs).toBe(before.mtimeNs);
  }),
  scenario('chown of nothing is ENOENT, below a file ENOTDIR', async (fs) => {
    await fs.put('file');

    await fails('ENOENT', fs.chown('missing', 0, 0));
    await fails('ENOTDIR', fs.chown('file/child', 0, 0));
  }),
  scenario('a new file belongs to who made it', ['users'], async (fs) => {
    await fs.chmod('', 0o777);
    const other = await fs.another({ uid: 1234, gid: 5678 });
    await other.put('file', 'x');
    await other.mkdir('folder');
    await other.symlink('x', 'link');

    for (const name of ['file', 'folder', 'link']) {
      expect(await fs.lstat(name)).toMatchObject({ uid: 1234, gid: 5678 });
    }
  }),
  scenario('a write as another user takes set-user-id and set-group-id away', ['users'], async (fs) => {
    await fs.put('file', 'x');
    await fs.chmod('file', 0o6777);
    const other = await fs.another({ uid: 1234, gid: 1234 });

    const fd = await other.open('file', O_WRONLY);
    await other.write(fd, 0, 'y');
    await other.close(fd);

    expect((await fs.stat('file')).mode).toBe(0o777);
  }),
  ...[0n, 1n, 1_000_000_000n * NS + 123_456_789n, 4_000_000_000n * NS + 999_999_999n, -1n * NS].map((moment) =>
    scenario(`utimes keeps ${moment} ns to the nanosecond, for a file and a folder`, async (fs) => {
      await fs.put('file', 'x');
      await fs.mkdir('folder');

      await fs.utimes('file', moment + 5n, moment);
      await fs.utimes('folder', moment + 5n, moment);

      expect(await fs.stat('file')).toMatchObject({ atimeNs: moment + 5n, mtimeNs: moment });
      expect(await fs.stat('folder')).toMatchObject({ atimeNs: moment + 5n, mtimeNs: moment });
    }),
  ),
  scenario('utimes moves ctime', async (fs) => {
    await fs.put('file');
    const before = await fs.stat('file');
    await fs.tick();

    await fs.utimes('file', 1n, 1n);

    expect((await fs.stat('file')).ctimeNs).toBeGreaterThan(before.ctimeNs);
  }),
  scenario('utimes leaves the time that is omitted', async (fs) => {
    await fs.put('file');
    await fs.utimes('file', 111n * NS, 222n * NS);

    await fs.utimes('file', 'omit', 333n * NS);
    expect(await fs.stat('file')).toMatchObject({ atimeNs: 111n * NS, mtimeNs: 333n * NS });
    await fs.utimes('file', 444n * NS, 'omit');

    expect(await fs.stat('file')).toMatchObject({ atimeNs: 444n * NS, mtimeNs: 333n * NS });
  }),
  scenario('utimes to now is the time of this moment', async (fs) => {
    await fs.put('file');
    const before = await fs.stat('file');
    await fs.utimes('file', 1n, 1n);
    await fs.tick();

    await fs.utimes('file', 'now', 'now');

    const after = await fs.stat('file');
    expect(after.mtimeNs).toBeGreaterThan(before.mtimeNs);
    expect(after.atimeNs).toBeGreaterThan(before.mtimeNs);
    expect(after.mtimeNs - before.mtimeNs).toBeLessThan(600n * NS);
  }),
  scenario('utimes of nothing is ENOENT', async (fs) => {
    await fails('ENOENT', fs.utimes('missing', 1n, 1n));
  }),
  scenario('times set through a descriptor stay after its close', ['process'], async (fs) => {
    const fd = await fs.open('file', O_WRONLY | O_CREAT);
    await fs.write(fd, 0, 'bytes');
    await fs.process.futimes(fd, 77n * NS, 88n * NS + 1n);
    await fs.close(fd);

    expect(await fs.stat('file')).toMatchObject({ atimeNs: 77n * NS, mtimeNs: 88n * NS + 1n });
  }),
  scenario('times of a symlink are its own', ['process'], async (fs) => {
    await fs.put('file');
    await fs.symlink('file', 'link');
    const file = await fs.stat('file');

    await fs.process.lutimes('link', 5n * NS, 6n * NS);

    expect(await fs.lstat('link')).toMatchObject({ mtimeNs: 6n * NS });
    expect((await fs.stat('file')).mtimeNs).toBe(file.mtimeNs);
  }),
  scenario('a write moves mtime and ctime', async (fs) => {
    await fs.put('file', 'x');
    const before = await fs.stat('file');
    await fs.tick();
    const fd = await fs.open('file', O_WRONLY);

    await fs.write(fd, 0, 'y');

    const during = await fs.fstat(fd);
    expect(during.mtimeNs).toBeGreaterThan(before.mtimeNs);
    expect(during.ctimeNs).toBeGreaterThan(before.ctimeNs);
    await fs.close(fd);
    expect((await fs.stat('file')).mtimeNs).toBeGreaterThan(before.mtimeNs);
  }),
  scenario('truncate that changes the size moves mtime and ctime', async (fs) => {
    await fs.put('file', 'bytes');
    for (const sizeBytes of [2, 10]) {
      const before = await fs.stat('file');
      await fs.tick();
      await fs.truncate('file', sizeBytes);
      const after = await fs.stat('file');
      expect(after.mtimeNs).toBeGreaterThan(before.mtimeNs);
      expect(after.ctimeNs).toBeGreaterThan(before.ctimeNs);
    }
  }),
  scenario('opening and closing without a write leaves mtime and ctime', async (fs) => {
    await fs.put('file', 'x');
    const before = await fs.stat('file');
    await fs.tick();

    await fs.close(await fs.open('file', O_RDWR));
    await fs.text('file');

    expect(await fs.stat('file')).toMatchObject({ mtimeNs: before.mtimeNs, ctimeNs: before.ctimeNs });
  }),
  scenario('mtime stays while a written file is synced in the background and read again', async (fs) => {
    await fs.put('file', 'x');
    await fs.utimes('file', 1n, 12_345n * NS + 678n);
    await fs.tick();

    await fs.text('file');
    await fs.readdir('');

    expect((await fs.stat('file')).mtimeNs).toBe(12_345n * NS + 678n);
  }),
  scenario('a new file has atime, mtime and ctime of its creation', async (fs) => {
    await fs.put('before');
    const before = await fs.stat('before');
    await fs.tick();

    await fs.close(await fs.open('file', O_WRONLY | O_CREAT));

    const { atimeNs, mtimeNs, ctimeNs } = await fs.stat('file');
    for (const time of [atimeNs, mtimeNs, ctimeNs]) expect(time).toBeGreaterThan(before.mtimeNs);
  }),
  scenario('statfs tells sizes that make sense', async (fs) => {
    const space = await fs.statfs('');

    expect(space.blockBytes).toBeGreaterThanOrEqual(512);
    expect(space.blocks).toBeGreaterThan(0);
    expect(space.blocksFree).toBeLessThanOrEqual(space.blocks);
    expect(space.blocksAvailable).toBeLessThanOrEqual(space.blocksFree);
    expect(space.blocksAvailable).toBeGreaterThan(0);
    expect(space.nameBytesMax).toBe(255);
  }),
  scenario('access as root: everything that exists, execution only with a bit', ['users'], async (fs) => {
    await fs.put('file', '', 0o600);
    await fs.put('program', '', 0o700);

    await fs.process.access('file', F_OK);
    await fs.process.access('file', R_OK | W_OK);
    await fails('EACCES', fs.process.access('file', X_OK));
    await fs.process.access('program', X_OK);
    await fails('ENOENT', fs.process.access('missing', F_OK));
  }),
  scenario('mknod of a regular file makes an empty file', ['process'], async (fs) => {
    await fs.process.mknod('file', 0o100640);

    expect(await fs.stat('file')).toMatchObject({ kind: 'file', mode: 0o640, sizeBytes: 0 });
    await fails('EEXIST', fs.process.mknod('file', 0o100644));
    await fs.put('file', 'usable');
    expect(await fs.text('file')).toBe('usable');
  }),
];

import { expect } from 'vitest';
import { O_CREAT, O_RDONLY, O_RDWR, O_WRONLY, SEEK_SET } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { fails } from '../workplace.ts';

const S_IFIFO = 0o010000;
const S_IFSOCK = 0o140000;
const S_IFCHR = 0o020000;
const S_IFBLK = 0o060000;
const O_NONBLOCK = 0o4000;

/** FIFOs and unix sockets by name: fifo(7), unix(7), mknod(2). Devices: mknod(2). */
export const specialFileScenarios: readonly Scenario[] = [
  scenario('mknod of a FIFO makes a FIFO', ['process'], async (fs) => {
    await fs.process.umask(0o027);
    await fs.process.mknod('fifo', S_IFIFO | 0o666);

    expect(await fs.lstat('fifo')).toMatchObject({ kind: 'fifo', mode: 0o640, sizeBytes: 0, nlink: 1 });
    expect(await fs.readdir('')).toEqual([{ name: 'fifo', kind: 'fifo', ino: (await fs.stat('fifo')).ino }]);
  }),
  scenario('mknod and bind make sockets', ['process'], async (fs) => {
    await fs.process.umask(0o022);
    await fs.process.mknod('made', S_IFSOCK | 0o600);
    await fs.process.bind('bound');

    expect(await fs.lstat('made')).toMatchObject({ kind: 'socket', mode: 0o600, sizeBytes: 0 });
    expect(await fs.lstat('bound')).toMatchObject({ kind: 'socket', mode: 0o755 });
    await fails('ENXIO', fs.open('bound', O_RDWR));
  }),
  scenario('mknod of a device makes a device', ['users'], async (fs) => {
    await fs.process.mknod('character', S_IFCHR | 0o600);
    await fs.process.mknod('block', S_IFBLK | 0o600);

    expect([(await fs.lstat('character')).kind, (await fs.lstat('block')).kind]).toEqual(['other', 'other']);
  }),
  scenario(
    'mknod of a FIFO or socket over a name is EEXIST, and into no folder ENOENT or ENOTDIR',
    ['process'],
    async (fs) => {
      await fs.put('file');
      for (const type of [S_IFIFO, S_IFSOCK]) {
        await fs.process.mknod('name', type | 0o600);
        for (const name of ['name', 'file']) await fails('EEXIST', fs.process.mknod(name, type | 0o600));
        await fails('ENOENT', fs.process.mknod('missing/name', type | 0o600));
        await fails('ENOTDIR', fs.process.mknod('file/name', type | 0o600));
        await fails('ENOTDIR', fs.process.mknod('name/name', type | 0o600));
        await fails('ENAMETOOLONG', fs.process.mknod('n'.repeat(256), type | 0o600));
        await fs.unlink('name');
      }
    },
  ),
  scenario('a FIFO passes bytes on, through a copy of a descriptor too, and stays empty', ['process'], async (fs) => {
    await fs.process.mknod('fifo', S_IFIFO | 0o600);
    const fd = await fs.open('fifo', O_RDWR | O_NONBLOCK);
    const copy = await fs.process.dup(fd);

    await fails('EAGAIN', fs.process.readHere(fd, 10));
    await fs.process.writeHere(copy, Buffer.from('passed'));
    expect((await fs.stat('fifo')).sizeBytes).toBe(0);
    expect(Buffer.from(await fs.process.readHere(fd, 10)).toString()).toBe('passed');
    const piece = Buffer.alloc(64 * 1024);
    await fs.process.writeHere(fd, piece);
    await fails('EAGAIN', fs.process.writeHere(fd, piece));
  }),
  scenario('a FIFO has no position and nothing to sync', ['process'], async (fs) => {
    await fs.process.mknod('fifo', S_IFIFO | 0o600);
    await fails('ENXIO', fs.open('fifo', O_WRONLY | O_NONBLOCK));
    const fd = await fs.open('fifo', O_RDWR | O_NONBLOCK);

    await fails('ESPIPE', fs.lseek(fd, 0, SEEK_SET));
    await fails('EINVAL', fs.fsync(fd));
    await fails('EINVAL', fs.process.fdatasync(fd));
    await fails('EINVAL', fs.truncate('fifo', 0));
    expect((await fs.stat('fifo')).kind).toBe('fifo');
  }),
  scenario('user attributes are for files and folders: EPERM on a FIFO, and ENODATA', ['process'], async (fs) => {
    await fs.process.mknod('fifo', S_IFIFO | 0o600);

    await fails('EPERM', fs.setxattr('fifo', 'user.name', 'value'));
    await fails('ENODATA', fs.getxattr('fifo', 'user.name'));
  }),
  scenario('mode, owner and times of a FIFO change as those of a file', ['users'], async (fs) => {
    await fs.process.mknod('fifo', S_IFIFO | 0o600);

    await fs.chmod('fifo', 0o4711);
    await fs.chown('fifo', 12, 34);
    await fs.utimes('fifo', 5_000_000_005n, 1_000_000_000_000_000_007n);

    const { kind, uid, gid, atimeNs, mtimeNs } = await fs.stat('fifo');
    expect({ kind, uid, gid, atimeNs, mtimeNs }).toEqual({
      ...{ kind: 'fifo', uid: 12, gid: 34 },
      ...{ atimeNs: 5_000_000_005n, mtimeNs: 1_000_000_000_000_000_007n },
    });
  }),
  scenario(
    'a FIFO in a set-group-ID folder has the group of the folder, elsewhere that of who makes it',
    ['users'],
    async (fs) => {
      await fs.mkdir('shared');
      await fs.mkdir('plain');
      for (const folder of ['shared', 'plain']) await fs.chown(folder, -1, 4321);
      await fs.chmod('shared', 0o2777);
      await fs.chmod('plain', 0o777);
      await fs.chmod('', 0o777);
      const other = await fs.another({ uid: 1234, gid: 1234 });

      for (const folder of ['shared', 'plain']) await other.process.mknod(`${folder}/fifo`, S_IFIFO | 0o644);

      expect(await fs.stat('shared/fifo')).toMatchObject({ uid: 1234, gid: 4321, mode: 0o644 });
      expect(await fs.stat('plain/fifo')).toMatchObject({ uid: 1234, gid: 1234, mode: 0o644 });
    },
  ),
  scenario('a FIFO is renamed and removed as a file, and takes and gives names', ['process'], async (fs) => {
    await fs.process.mknod('fifo', S_IFIFO | 0o600);
    await fs.mkdir('folder');
    await fs.rename('fifo', 'folder/moved');
    expect((await fs.stat('folder/moved')).kind).toBe('fifo');

    await fs.put('file', 'bytes');
    await fs.rename('folder/moved', 'file');
    expect((await fs.stat('file')).kind).toBe('fifo');
    await fs.put('other', 'bytes');
    await fs.rename('other', 'file');
    expect(await fs.text('file')).toBe('bytes');

    await fs.process.mknod('fifo', S_IFIFO | 0o600);
    const fd = await fs.open('fifo', O_RDWR | O_NONBLOCK);
    await fails('ENOTDIR', fs.rmdir('fifo'));
    await fs.unlink('fifo');
    await fails('ENOENT', fs.open('fifo', O_RDONLY));
    await fs.process.writeHere(fd, Buffer.from('still'));
    expect(Buffer.from(await fs.process.readHere(fd, 10)).toString()).toBe('still');
    await fs.close(await fs.open('fifo', O_RDWR | O_CREAT));
    expect((await fs.stat('fifo')).kind).toBe('file');
  }),
];

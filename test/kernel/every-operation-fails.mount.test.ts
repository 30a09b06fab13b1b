import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  CallError,
  FALLOC_ALLOCATE,
  O_CREAT,
  O_DIRECTORY,
  O_RDONLY,
  O_RDWR,
  RENAME_NOREPLACE,
  SEEK_HOLE,
} from '../conformance/file-api.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { MountDriver } from './mount-driver.ts';

/**
 * A bug in any operation of the file system, thrown at once or later, is EIO for who called, and nothing else: the mount lives, other
 * calls are answered, and every slot, handle and lookup comes back.
 */
let driver: MountDriver;
let api: SyscallProcess;

const bytes = Buffer.from('bytes');
const opened = async <T>(path: string, flags: number, run: (fd: number) => Promise<T>): Promise<T> => {
  const fd = await api.open(path, flags);
  try {
    return await run(fd);
  } finally {
    await api.close(fd).catch(() => undefined);
  }
};

/** How a process comes to each operation. What the kernel keeps from its caller ends well: release, releasedir. */
const CALLS: Readonly<Record<string, { readonly call: () => Promise<unknown>; readonly errno?: 'none' }>> = {
  lookup: { call: () => api.stat('never-asked-for') },
  getattr: { call: () => api.stat('file') },
  setattr: { call: () => api.chmod('file', 0o600) },
  readlink: { call: () => api.readlink('link') },
  symlink: { call: () => api.symlink('target', 'new-link') },
  mknod: { call: () => api.process.mknod('new-node', 0o100644) },
  mkdir: { call: () => api.mkdir('new-folder') },
  unlink: { call: () => api.unlink('file') },
  rmdir: { call: () => api.rmdir('folder') },
  rename: { call: () => api.rename('file', 'other', RENAME_NOREPLACE) },
  link: { call: () => api.link('file', 'hard') },
  open: { call: () => api.open('file', O_RDONLY) },
  create: { call: () => api.open('new-file', O_RDWR | O_CREAT) },
  read: { call: () => opened('file', O_RDONLY, (fd) => api.read(fd, 0, 10)) },
  write: { call: () => opened('file', O_RDWR, (fd) => api.write(fd, 0, bytes)) },
  flush: { call: async () => api.close(await api.open('file', O_RDWR)) },
  release: { call: () => opened('file', O_RDWR, async () => undefined), errno: 'none' },
  fsync: { call: () => opened('file', O_RDWR, (fd) => api.fsync(fd)) },
  fallocate: { call: () => opened('file', O_RDWR, (fd) => api.fallocate(fd, FALLOC_ALLOCATE, 0, 100)) },
  lseek: { call: () => opened('file', O_RDONLY, (fd) => api.lseek(fd, 0, SEEK_HOLE)) },
  opendir: { call: () => api.readdir('folder') },
  readdir: { call: () => api.readdir('folder') },
  releasedir: { call: () => api.readdir('folder'), errno: 'none' },
  fsyncdir: { call: () => opened('folder', O_RDONLY | O_DIRECTORY, (fd) => api.fsync(fd)) },
  statfs: { call: () => api.statfs('file') },
  getxattr: { call: () => api.getxattr('file', 'user.a') },
  setxattr: { call: () => api.setxattr('file', 'user.b', bytes) },
  listxattr: { call: () => api.listxattr('file') },
  removexattr: { call: () => api.removexattr('file', 'user.a') },
};

beforeAll(async () => {
  driver = await MountDriver.start({
    fileSystem: { entryTimeoutMs: 0, attributeTimeoutMs: 0, keepCache: false, cacheListing: false },
  });
  api = await SyscallProcess.start(driver.directory);
  await opened('file', O_RDWR | O_CREAT, (fd) => api.write(fd, 0, bytes));
  await api.setxattr('file', 'user.a', bytes);
  await api.symlink('file', 'link');
  await api.mkdir('folder');
});

afterAll(async () => {
  await api?.dispose();
  await driver?.stop();
});

describe.each(['throw', 'reject'] as const)('a bug that comes as %s', (effect) => {
  test.each(Object.keys(CALLS))('in %s is EIO for who called, and the mount lives', async (op) => {
    const { call, errno = 'EIO' } = CALLS[op] as (typeof CALLS)[string];
    const failuresBefore = (await driver.state()).failures[op] ?? 0;
    await driver.do({ do: 'rule', op, effect });

    const told = await call().then(
      () => 'none',
      (error: unknown) => {
        if (!(error instanceof CallError)) throw error;
        return error.errno;
      },
    );

    expect(told).toBe(errno);
    await driver.until(({ failures }) => (failures[op] ?? 0) > failuresBefore, 'it has failed');
    await driver.do({ do: 'release' });
    expect((await api.stat('file')).kind).toBe('file');
    expect(await api.readdir('folder')).toEqual([]);
  });
});

test('after all of it nothing is held', async () => {
  const { binding } = await driver.until((state) => state.binding.pendingOperations === 0, 'nothing waits');

  expect([binding.freeSmallSlots, binding.freeLargeSlots]).toEqual([256, 32]);
});

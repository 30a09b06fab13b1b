import { constants } from 'node:fs';
import { expect, test } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { fuseNativeOperations, mountWithFuseNative, whyNotLoaded } from '../../src/kernel/fuse-native/fuse-native.ts';
import { PathOperations } from '../../src/kernel/fuse-native/path-operations.ts';
import { OpBoundary } from '../../src/kernel/op-boundary.ts';
import { ManualClock } from './manual-clock.ts';
import { MemoryFileSystem, type MemoryFileSystemOptions } from './memory-file-system.ts';

function setUp(options: MemoryFileSystemOptions = {}) {
  const fileSystem = new MemoryFileSystem(options);
  const clock = new ManualClock();
  const boundary = new OpBoundary({ log: silentLogger, clock, deadlineMs: 30_000 });
  const files = new PathOperations({ ops: fileSystem, boundary, caller: { uid: 7, gid: 8 } });
  return { fileSystem, clock, files, operations: fuseNativeOperations(files) };
}

async function errnoOf(call: Promise<unknown>): Promise<string> {
  return call.then(
    () => 'none',
    (error: unknown) => {
      if (!(error instanceof FsError)) throw error;
      return error.errno;
    },
  );
}

/** One operation as the package calls it: [result, value, more]. */
function asked(operation: ((...args: never[]) => void) | undefined, ...args: unknown[]): Promise<unknown[]> {
  return new Promise((resolve) =>
    (operation as (...all: unknown[]) => void)(...args, (...told: unknown[]) => resolve(told)),
  );
}

const { O_RDWR } = constants;

test('calls by path give back what they looked up; an open file keeps one until its release', async () => {
  const { files, fileSystem } = setUp();
  await files.mkdir('/a', 0o755);
  const descriptor = await files.create('/a/file', 0o644, O_RDWR);
  await files.write(descriptor, 0, Buffer.from('hello'));

  expect(Buffer.from(await files.read(descriptor, 1, 3)).toString()).toBe('ell');
  expect((await files.getattr('/a/file')).uid).toBe(7);
  expect((await files.readdir('/a')).map(({ name }) => name)).toEqual(['.', '..', 'file']);
  expect(await errnoOf(files.open('/a/none', O_RDWR))).toBe('ENOENT');
  expect(await errnoOf(files.mkdir('/a', 0o755))).toBe('EEXIST');
  expect(await errnoOf(files.mknod('/a/fifo', constants.S_IFIFO | 0o644))).toBe('EPERM');
  expect(await errnoOf(files.getxattr('/a/file', 'security.selinux'))).toBe('EOPNOTSUPP');
  expect(fileSystem.lookups).toBe(1);
  await files.release(descriptor);

  expect([fileSystem.lookups, fileSystem.openHandles, files.lookups]).toEqual([0, 0, 0]);
});

test('an open file whose name libfuse hides loses it, and is known by the hidden one until it is closed', async () => {
  const { files, fileSystem, operations } = setUp();
  const hidden = '/folder/.fuse_hidden0000000500000001';
  await files.mkdir('/folder', 0o755);
  const descriptor = await files.create('/folder/file', 0o644, O_RDWR);

  expect(await asked(operations.rename, '/folder/file', hidden)).toEqual([0]);
  expect((await files.readdir('/folder')).map(({ name }) => name)).toEqual(['.', '..']);
  expect(await asked(operations.chmod, hidden, 0o600)).toEqual([0]);
  expect((await files.getattr(hidden)).mode).toBe(0o600);
  // Without its folder libfuse would have no path for it, and the package would crash.
  expect(await errnoOf(files.rmdir('/folder'))).toBe('ENOTEMPTY');
  await files.release(descriptor);
  expect(await asked(operations.unlink, hidden)).toEqual([0]);

  await files.rmdir('/folder');
  expect([fileSystem.lookups, fileSystem.openHandles, fileSystem.nodeCount]).toEqual([0, 0, 1]);
});

test('a closed file that somebody calls like a hidden one keeps its name', async () => {
  const { files, operations } = setUp();
  await files.release(await files.create('/file', 0o644, O_RDWR));

  expect(await asked(operations.rename, '/file', '/.fuse_hidden0000000500000001')).toEqual([0]);

  expect((await files.readdir('/')).map(({ name }) => name)).toEqual(['.', '..', '.fuse_hidden0000000500000001']);
});

test('an operation that returns after its deadline is refused, and its handle is released', async () => {
  let release = (): void => undefined;
  const { files, fileSystem, clock } = setUp({
    before: (op) => (op === 'create' ? new Promise((resolve) => (release = resolve)) : undefined),
  });
  const refused = errnoOf(files.create('/late', 0o644, O_RDWR));
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(31_000);

  expect(await refused).toBe('ETIMEDOUT');
  release();
  await new Promise((resolve) => setImmediate(resolve));

  expect([fileSystem.lookups, fileSystem.openHandles]).toEqual([0, 0]);
});

test('names that are not UTF-8 can neither be created nor looked up', async () => {
  const { operations } = setUp();
  const { EILSEQ, ENOENT } = (await import('node:os')).constants.errno;

  expect(await asked(operations.mkdir, '/f\ufffdo', 0o755)).toEqual([-EILSEQ]);
  expect(await asked(operations.getattr, '/f\ufffdo')).toEqual([-ENOENT]);
});

test('attributes by names that are not UTF-8 are neither made nor removed: all of them would be one', async () => {
  const { files, operations } = setUp();
  const { EILSEQ, ENODATA } = (await import('node:os')).constants.errno;
  await files.mkdir('/folder', 0o755);
  await files.setxattr('/folder', 'user.\ufffd', Buffer.from('of another mount'), 'set');

  expect(await asked(operations.setxattr, '/folder', 'user.\ufffd', Buffer.from('x'), 0, 0)).toEqual([-EILSEQ]);
  expect(await asked(operations.removexattr, '/folder', 'user.\ufffd')).toEqual([-ENODATA]);
  expect(Buffer.from(await files.getxattr('/folder', 'user.\ufffd')).toString()).toBe('of another mount');
});

test('a time before 1970, which arrives as one of no sign, is not one of a distant future', async () => {
  const { files, operations } = setUp();
  await files.mkdir('/folder', 0o755);
  const [before, after] = [2 ** 64 - 5_000_000, 253_402_300_799_999];

  expect(await asked(operations.utimens, '/folder', before, before)).toEqual([0]);
  expect((await files.getattr('/folder')).mtime).toEqual({ sec: 0, nsec: 0 });
  expect(await asked(operations.utimens, '/folder', after, after)).toEqual([0]);
  expect((await files.getattr('/folder')).mtime).toEqual({ sec: 253_402_300_799, nsec: 999_000_000 });
});

test('statfs keeps the size of a large file system within 32 bits', async () => {
  const { operations, files } = setUp();
  const { blocks, blockBytes } = await files.statfs('/');
  expect(blocks).toBeGreaterThan(2 ** 32);

  const [result, told] = (await asked(operations.statfs, '/')) as [number, { blocks: number; frsize: number }];

  expect(result).toBe(0);
  expect(told.blocks).toBeLessThan(2 ** 32);
  expect(told.blocks * told.frsize).toBe(blocks * blockBytes);
});

test.each([
  ['directory', `/${'d/'.repeat(600)}`, 'cfs-mount'],
  ['options', '/nowhere', 'source'.repeat(200)],
])('a %s that the package would cut off is refused in words', async (_what, directory, fsname) => {
  const start = { directory, fsname, subtype: 'cfs-mount', words: ['allow_other', 'default_permissions'] };

  await expect(mountWithFuseNative(start, setUp().files)).rejects.toThrow('--binding fuse-native takes 1023 bytes');
});

test('what is missing is said in one sentence', () => {
  const missingLibrary = Object.assign(
    new Error('libfuse.so.2: cannot open shared object file: No such file or directory'),
    { code: 'ERR_DLOPEN_FAILED' },
  );
  const missingPackage = Object.assign(new Error("Cannot find module 'fuse-native'\nRequire stack:\n- somewhere"), {
    code: 'MODULE_NOT_FOUND',
  });

  expect(whyNotLoaded(missingLibrary)).toBe(
    '--binding fuse-native needs libfuse 2; on Debian and Ubuntu: apt-get install libfuse2',
  );
  expect(whyNotLoaded(missingPackage)).toBe(
    '--binding fuse-native needs the package fuse-native, which is not installed: npm install fuse-native@2.2.6',
  );
  expect(whyNotLoaded(new Error('something else\nand more'))).toBe(
    '--binding fuse-native could not be loaded: something else',
  );
});

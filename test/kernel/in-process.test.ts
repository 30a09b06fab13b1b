import { constants } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { MemoryFileSystem } from './memory-file-system.ts';

function setUp(): { mount: InProcessMount; fileSystem: MemoryFileSystem } {
  const fileSystem = new MemoryFileSystem();
  return { mount: new InProcessMount(fileSystem, { umask: 0o022 }), fileSystem };
}

async function errnoOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return 'none';
  } catch (error) {
    if (!(error instanceof FsError)) throw error;
    return error.errno;
  }
}

test('what is written is read back, and all lookups are returned', async () => {
  const { mount, fileSystem } = setUp();

  await mount.mkdir('/a');
  await mount.mkdir('/a/b');
  await mount.writeFile('/a/b/c', Buffer.from('hello'));

  expect((await mount.readFile('/a/b/c')).toString()).toBe('hello');
  expect((await mount.stat('/a/b/c')).mode).toBe(0o644);
  expect((await mount.readdir('/a')).map(({ name }) => name)).toEqual(['b']);
  expect(mount.lookups).toBe(0);
  expect(fileSystem.lookups).toBe(0);
  expect(fileSystem.openHandles).toBe(0);
});

test('an open file keeps its lookup until it is closed, also when its name is gone', async () => {
  const { mount, fileSystem } = setUp();
  const descriptor = await mount.open('/f', 'w+');
  await mount.write(descriptor, 0, Buffer.from('still here'));

  await mount.unlink('/f');

  expect((await mount.read(descriptor, 0, 100)).toString()).toBe('still here');
  expect(fileSystem.lookups).toBe(1);
  await mount.close(descriptor);
  expect(fileSystem.lookups).toBe(0);
  expect(fileSystem.nodeCount).toBe(1);
});

test('a folder of many entries is listed in pieces, each name once', async () => {
  const { mount } = setUp();
  const names = Array.from({ length: 100 }, (_, i) => `name-${i}`);
  for (const name of names) await mount.writeFile(name, Buffer.alloc(0));

  const listed = (await mount.readdir('')).map(({ name }) => name);

  expect(listed.sort()).toEqual(names.sort());
  expect(mount.lookups).toBe(0);
});

test('symlinks are followed where the kernel follows them', async () => {
  const { mount } = setUp();
  await mount.mkdir('/d');
  await mount.writeFile('/d/f', Buffer.from('x'));
  await mount.symlink('d', '/to-d');
  await mount.symlink('../d/f', '/d/to-f');
  await mount.symlink('loop', '/loop');

  expect((await mount.readFile('/to-d/to-f')).toString()).toBe('x');
  expect((await mount.lstat('/to-d')).kind).toBe('symlink');
  expect(await mount.readlink('/to-d')).toBe('d');
  expect(await errnoOf(mount.stat('/loop'))).toBe('ELOOP');
  expect(await errnoOf(mount.open('/to-d', constants.O_RDONLY | constants.O_NOFOLLOW))).toBe('ELOOP');
  await mount.symlink('made-through-a-link', '/dangling');
  await mount.writeFile('/dangling', Buffer.from('y'));
  expect((await mount.readFile('/made-through-a-link')).toString()).toBe('y');
  expect(mount.lookups).toBe(0);
});

test('refusals are those of the system calls', async () => {
  const { mount, fileSystem } = setUp();
  await mount.mkdir('/d');
  await mount.mkdir('/d/e');
  await mount.writeFile('/f', Buffer.from('x'));
  const reader = await mount.open('/f', 'r');

  expect(await errnoOf(mount.stat('/none'))).toBe('ENOENT');
  expect(await errnoOf(mount.stat('/f/x'))).toBe('ENOTDIR');
  expect(await errnoOf(mount.open('/f', 'wx'))).toBe('EEXIST');
  expect(await errnoOf(mount.open('/d', 'r+'))).toBe('EISDIR');
  expect(await errnoOf(mount.unlink('/d'))).toBe('EISDIR');
  expect(await errnoOf(mount.rmdir('/f'))).toBe('ENOTDIR');
  expect(await errnoOf(mount.rmdir('/d'))).toBe('ENOTEMPTY');
  expect(await errnoOf(mount.mkdir('/d'))).toBe('EEXIST');
  expect(await errnoOf(mount.rename('/d', '/d/e/under-itself'))).toBe('EINVAL');
  expect(await errnoOf(mount.rename('/d/e', '/d'))).toBe('ENOTEMPTY');
  expect(await errnoOf(mount.rename('/f', '/d'))).toBe('EISDIR');
  expect(await errnoOf(mount.rename('/f', '/d/e', 'no-replace'))).toBe('EEXIST');
  expect(await errnoOf(mount.write(reader, 0, Buffer.from('x')))).toBe('EBADF');
  expect(await errnoOf(mount.stat('n'.repeat(256)))).toBe('ENAMETOOLONG');
  expect(await errnoOf(mount.stat(Buffer.from([0xff, 0xfe])))).toBe('EILSEQ');
  expect(await errnoOf(mount.read(99, 0, 1))).toBe('EBADF');
  await mount.close(reader);
  expect(fileSystem.lookups).toBe(0);
});

test('lookups and handles return to zero whatever is called in which order', async () => {
  const name = fc.constantFrom('a', 'b', 'a/b', 'b/a', 'a/b/a');
  const call = fc.oneof(
    fc.tuple(
      fc.constantFrom('mkdir', 'rmdir', 'unlink', 'write', 'stat', 'readdir', 'open') as fc.Arbitrary<string>,
      name,
      name,
    ),
    fc.tuple(fc.constantFrom('rename', 'symlink', 'exchange') as fc.Arbitrary<string>, name, name),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(call, { maxLength: 30 }), async (calls) => {
      const { mount, fileSystem } = setUp();
      const descriptors: number[] = [];
      for (const [what, one, other] of calls) {
        const run: Record<string, () => Promise<unknown>> = {
          mkdir: () => mount.mkdir(one),
          rmdir: () => mount.rmdir(one),
          unlink: () => mount.unlink(one),
          write: () => mount.writeFile(one, Buffer.from(other)),
          stat: () => mount.stat(one),
          readdir: () => mount.readdir(one),
          open: async () => descriptors.push(await mount.open(one, 'a+')),
          rename: () => mount.rename(one, other),
          exchange: () => mount.rename(one, other, 'exchange'),
          symlink: () => mount.symlink(other, one),
        };
        await errnoOf((run[what] as () => Promise<unknown>)());
        expect(fileSystem.lookups).toBe(mount.lookups);
      }
      for (const descriptor of descriptors) await mount.close(descriptor);

      expect(fileSystem.lookups).toBe(0);
      expect(fileSystem.openHandles).toBe(0);
    }),
    { numRuns: 200 },
  );
});

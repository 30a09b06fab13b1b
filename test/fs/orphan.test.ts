import { afterEach, beforeEach, expect, test } from 'vitest';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { OpenFlags } from '../../src/kernel/binding.ts';
import { bytesOf } from '../../src/kernel/gathered-reply.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
const READ: OpenFlags = { access: 'read', append: false, truncate: false, raw: 0 };

let side: FileSystemSide;
let mount: InProcessMount;
beforeEach(async () => {
  side = await FileSystemSide.build();
  mount = new InProcessMount(side.fileSystem);
});
afterEach(() => side.close());

// The push seals what it uploads; who writes on gets a draft of their own over it. Found by the random model (seed 2000).
test.each([1_000, 300_000])(
  'a file that lost its name while it was pushed keeps every write (%i bytes)',
  async (length) => {
    const wanted = Buffer.alloc(length, 'old');
    await mount.writeFile('file', wanted);
    const { ino } = await mount.stat('file');
    const fd = await mount.open('file', 'r+');
    const { content } = side.store.get('node', ino)?.local ?? {};
    if (content == null) throw new Error('no content');
    side.store.transact((tx) => side.contents.seal(tx, content));
    await mount.unlink('file');

    for (const [at, text] of [
      [0, 'first'],
      [500, 'second'],
      [900, 'third'],
    ] as const) {
      wanted.write(text, at);
      await mount.write(fd, at, Buffer.from(text));
      expect(Buffer.compare(await mount.read(fd, 0, length), wanted)).toBe(0);
    }

    await mount.close(fd);
  },
);

// Path resolution looks a name up and opens what it found; in between somebody renames over it. Found by the conformance suite under load.
test.each(['rename', 'unlink'] as const)(
  'a file that is opened by inode after a %s took its name has its bytes, not zeros',
  async (how) => {
    for (const length of [12_000, 300_000]) {
      const wanted = Buffer.alloc(length, 'old');
      await mount.writeFile('file', wanted);
      await mount.writeFile('next', Buffer.from('new'));
      const { fileSystem, contents } = side;
      const entry = await fileSystem.lookup(ROOT_INODE, 'file', ctx);
      if (entry.attributes === null) throw new Error('not found');
      const { ino } = entry.attributes;
      if (how === 'rename') await fileSystem.rename(ROOT_INODE, 'next', ROOT_INODE, 'file', 'replace', ctx);
      else await fileSystem.unlink(ROOT_INODE, 'file', ctx);
      contents.collect();

      const { handle } = await fileSystem.open(ino, READ, ctx);
      expect((await fileSystem.getattr(ino)).attributes).toMatchObject({ sizeBytes: length, nlink: 0 });
      const reply = await fileSystem.read(ino, handle, length - 5000, 10_000, ctx);
      expect(Buffer.compare(bytesOf(reply), wanted.subarray(-5000))).toBe(0);
      await fileSystem.release(ino, handle);

      fileSystem.forget(ino);
      while (contents.collect());
      await expect(async () => fileSystem.open(ino, READ, ctx)).rejects.toMatchObject({ errno: 'ESTALE' });
      expect(contents.usage().draftBytes).toBeLessThan(length);
      await mount.unlink(how === 'rename' ? 'file' : 'next');
    }
  },
);

test('a file that was never read or written before it lost its name is there when it is', async () => {
  const fd = await mount.open('file', 'wx+');
  await mount.unlink('file');
  side.contents.collect();

  await mount.write(fd, 0, Buffer.from('nameless'));

  expect((await mount.read(fd, 0, 100)).toString()).toBe('nameless');
  await mount.close(fd);
});

test('a file that lost its name and was written and closed since is what it was then to whoever opens it', async () => {
  await mount.writeFile('file', Buffer.from('old'));
  const { fileSystem } = side;
  const { ino } = await mount.stat('file');
  const { handle } = await fileSystem.open(ino, { ...READ, access: 'read-write' }, ctx);
  await fileSystem.unlink(ROOT_INODE, 'file', ctx);
  await fileSystem.write(ino, handle, 3, Buffer.alloc(5000, 'new'), ctx);
  await fileSystem.release(ino, handle);

  const again = await fileSystem.open(ino, READ, ctx);
  expect((await fileSystem.getattr(ino)).attributes).toMatchObject({ sizeBytes: 5003, nlink: 0 });
  expect(bytesOf(await fileSystem.read(ino, again.handle, 0, 10_000, ctx)).toString()).toBe(
    `old${'new'.repeat(1666)}ne`,
  );
  await fileSystem.release(ino, again.handle);
  expect([...side.inUse.open()]).toEqual([]);
});

test('times that are set on a file that lost its name are shown, also after it was written', async () => {
  const fd = await mount.open('file', 'w+');
  const { ino } = await mount.stat('file');
  await mount.unlink('file');
  await mount.write(fd, 0, Buffer.from('written'));
  const [mtime, atime] = [
    { sec: 1_000, nsec: 7 },
    { sec: 2_000, nsec: 8 },
  ] as const;

  await side.fileSystem.setattr(ino, { mtime, atime }, null, ctx); // futimens(2)
  expect(await mount.fstat(fd)).toMatchObject({ mtime, atime, sizeBytes: 7 });

  await mount.write(fd, 7, Buffer.from(' again'));
  const later = await mount.fstat(fd);
  expect(later).toMatchObject({ atime, sizeBytes: 13 });
  expect(later.mtime.sec).toBeGreaterThan(mtime.sec);
  await mount.close(fd);
});

test('a reader keeps its version after the file was replaced elsewhere, changed here, and deleted', async () => {
  const service = new VersionService();
  service.put('file', Buffer.from('version A'));
  const replaced = await FileSystemSide.build({ listing: service, source: service });
  try {
    const programs = new InProcessMount(replaced.fileSystem);
    const reader = await programs.open('file', 'r');
    expect((await programs.read(reader, 0, 100)).toString()).toBe('version A');
    service.put('file', Buffer.from('the version B'), 2_000_000);
    await replaced.freshness.refresh(ROOT_INODE);
    const writer = await programs.open('file', 'r+');
    await programs.write(writer, 0, Buffer.from('THE'));
    await programs.close(writer);
    await programs.unlink('file');

    expect((await programs.read(reader, 0, 100)).toString()).toBe('version A');
    await programs.close(reader);
  } finally {
    await replaced.close();
  }
});

test('a removed file that nobody opened and of which no bytes are here is held only when it is opened', async () => {
  const service = new VersionService();
  for (const name of ['file', 'other']) service.put(name, Buffer.from('version A'));
  const listed = await FileSystemSide.build({ listing: service, source: service });
  try {
    const { fileSystem } = listed;
    const { ino } = await new InProcessMount(fileSystem).stat('file');
    await fileSystem.lookup(ROOT_INODE, 'file', ctx);
    await fileSystem.lookup(ROOT_INODE, 'other', ctx);

    await fileSystem.unlink(ROOT_INODE, 'file', ctx);
    await fileSystem.unlink(ROOT_INODE, 'other', ctx);
    expect([...fileSystem.files.files]).toEqual([]);

    const { handle } = await fileSystem.open(ino, READ, ctx);
    expect([...fileSystem.files.files].map((file) => file.ino)).toEqual([ino]);
    expect((await fileSystem.getattr(ino)).attributes).toMatchObject({ sizeBytes: 9, nlink: 0 });
    expect(bytesOf(await fileSystem.read(ino, handle, 0, 100, ctx)).toString()).toBe('version A');
    await fileSystem.release(ino, handle);
    const again = await fileSystem.open(ino, READ, ctx);
    await fileSystem.release(ino, again.handle);

    fileSystem.forget(ino);
    await expect(async () => fileSystem.open(ino, READ, ctx)).rejects.toMatchObject({ errno: 'ESTALE' });
    expect([...fileSystem.files.files]).toEqual([]);
  } finally {
    await listed.close();
  }
});

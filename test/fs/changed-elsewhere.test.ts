import { constants } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type HandleId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { OpenLetters } from '../../src/kernel/open-flags.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

let service: VersionService;
let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  service = new VersionService();
  side = await FileSystemSide.build({ listing: service, source: service });
  mount = new InProcessMount(side.fileSystem);
});
afterEach(() => side.close());

/** A handle that read the first version, and then learnt nothing of the second one. */
async function detached(flags: OpenLetters = 'r+', newer = Buffer.alloc(120_000, 'second ')): Promise<number> {
  service.put('file', Buffer.alloc(100_000, 'first '), 1_000_000);
  const fd = await mount.open('file', flags);
  await mount.read(fd, 0, 10);
  service.put('file', newer, 2_000_000);
  await side.freshness.refresh();
  return fd;
}

/** What an upload leaves here when the service has acknowledged what the file holds now (sync/acknowledgement). */
function pushed(ino: Inode, name: string, text: string, as: 'a version' | 'its first bytes'): void {
  const { file, version } = service.put(name, Buffer.from(text), 1_000_000);
  const { store, contents } = side;
  store.transact((tx) => {
    const node = tx.get('node', ino);
    if (node?.local?.content == null) throw new Error('there is nothing to push');
    const { content, parent } = node.local;
    contents.seal(tx, content);
    const record = tx.get('content', content);
    if (as === 'a version') contents.adopt(tx, content, version, file);
    else if (record !== undefined) tx.put('content', content, { ...record, resource: file });
    const modified = { ms: 1_000_000, certainty: 'exact' } as const;
    const bytes = { sizeBytes: node.local.sizeBytes, modified, mediaType: null, content };
    const remote = { resource: file, parent, name, shownAs: name, createdHereMs: null, ...bytes };
    writeNode(tx, node, { ...node, remote }, 0);
  });
}

test('a handle of an older version that writes is being written: half of it is never pushed', async () => {
  const fd = await detached();
  const { ino } = await mount.stat('file');
  await mount.write(fd, 0, Buffer.from('half'));

  expect(side.fileSystem.files.isOpen(ino)).toBe(true);
  expect(side.fileSystem.files.isBeingWritten(ino)).toBe(true);

  await mount.close(fd);
  expect(side.fileSystem.files.isOpen(ino)).toBe(false);
  expect(side.fileSystem.files.isBeingWritten(ino)).toBe(false);
});

test('what a handle of an older version writes has the size that stat shows, beside a reader of the newer one', async () => {
  const fd = await detached();
  const reader = await mount.open('file', 'r');
  await mount.read(reader, 0, 10);

  await mount.write(fd, 150_000, Buffer.from('end'));
  expect((await mount.stat('file')).sizeBytes).toBe(150_003);
  // Both see what is written here at once, as everywhere.
  expect((await mount.read(reader, 150_000, 3)).toString()).toBe('end');

  await mount.close(fd);
  await mount.close(reader);
  expect((await mount.stat('file')).sizeBytes).toBe(150_003);
  expect((await mount.readFile('file')).subarray(0, 5).toString()).toBe('first');
});

test('a file that is rewritten while a writer has an older version open shows the new bytes to all descriptors', async () => {
  const older = await detached();
  await mount.write(older, 0, Buffer.from('half'));
  await mount.writeFile('file', Buffer.from('more'), { flag: 'a' });
  await mount.writeFile('file', Buffer.from('new'));

  const { sizeBytes } = await mount.stat('file');
  expect({ sizeBytes, read: (await mount.readFile('file')).toString() }).toEqual({ sizeBytes: 3, read: 'new' });
  await mount.close(older);
  expect((await mount.readFile('file')).toString()).toBe('new');
});

test('a time that is set stays, also beside a writer of an older version', async () => {
  const older = await detached();
  await mount.write(older, 0, Buffer.from('half'));
  const newer = await mount.open('file', 'r+');
  await mount.write(newer, 10, Buffer.from('more'));

  await mount.utimes('file', { sec: 1_000, nsec: 0 }, { sec: 1_000, nsec: 0 });

  expect((await mount.stat('file')).mtime.sec).toBe(1_000);
  await mount.close(newer);
  await mount.close(older);
  expect((await mount.stat('file')).mtime.sec).toBe(1_000);
});

test('ftruncate(2) by a handle of an older version cuts what that handle has, and is kept by its close', async () => {
  const fd = await detached();
  await mount.ftruncate(fd, 7);

  expect((await mount.fstat(fd)).sizeBytes).toBe(7);
  await mount.close(fd);
  expect((await mount.readFile('file')).toString()).toBe('first f');
});

test('the kernel keeps no page for two versions at once', async () => {
  const fd = await detached();
  const { ino } = await mount.stat('file');
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'read', append: false, truncate: false, raw: 0 } as const;

  const beside = await side.fileSystem.open(ino, flags, ctx);
  expect(beside).toMatchObject({ directIo: true, keepCache: false });
  await side.fileSystem.release(ino, beside.handle);
  await mount.close(fd);

  // What the older handle read meanwhile may be in the cache: it goes once more.
  const alone = await side.fileSystem.open(ino, flags, ctx);
  expect(alone).toMatchObject({ directIo: false, keepCache: false });
  await side.fileSystem.release(ino, alone.handle);
});

test('a read after an open that saw the new size is not filled up with zeros to the old size in the kernel', async () => {
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'read', append: false, truncate: false, raw: 0 } as const;
  service.put('file', Buffer.from('long, as the kernel was told'), 1_000_000);
  const { ino } = await mount.stat('file');
  service.put('file', Buffer.from('short'), 2_000_000);
  await side.freshness.refresh();

  // The notification may wait, for this very request for one.
  const early = await side.fileSystem.open(ino, flags, ctx);
  expect(early).toMatchObject({ directIo: true, keepCache: false });
  await side.fileSystem.release(ino, early.handle);

  expect((await mount.stat('file')).sizeBytes).toBe(5);
  const told = await side.fileSystem.open(ino, flags, ctx);
  expect(told).toMatchObject({ directIo: false });
  await side.fileSystem.release(ino, told.handle);
});

test('an entry for which an answer had no room told the kernel nothing: whoever opens is not filled up either', async () => {
  service.put('file', Buffer.from('long, as the kernel was told'), 1_000_000);
  const { ino } = await mount.stat('file');
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'read', append: false, truncate: false, raw: 0 } as const;
  const open = async (): Promise<unknown> => {
    const opened = await side.fileSystem.open(ino, flags, ctx);
    await side.fileSystem.release(ino, opened.handle);
    return opened;
  };
  const { handle } = await side.fileSystem.opendir(ROOT_INODE, ctx);
  service.put('file', Buffer.from('short'), 2_000_000);
  await side.freshness.refresh();

  await side.fileSystem.readdir(ROOT_INODE, handle, 2, { wantsEntries: true, add: () => false });
  expect(await open()).toMatchObject({ directIo: true, keepCache: false });
  await side.fileSystem.readdir(ROOT_INODE, handle, 2, { wantsEntries: false, add: () => true });
  expect(await open()).toMatchObject({ directIo: true, keepCache: false });
  await side.fileSystem.readdir(ROOT_INODE, handle, 2, { wantsEntries: true, add: () => true });
  expect(await open()).toMatchObject({ directIo: false });
  await side.fileSystem.releasedir(ROOT_INODE, handle);
});

test('a writer that finds a newer version than the listing told of is still the one that writes', async () => {
  service.put('file', Buffer.from('listed'), 1_000_000);
  const { ino } = await mount.stat('file');
  service.put('file', Buffer.from('longer than listed'), 2_000_000);

  const fd = await mount.open('file', 'a');
  await mount.write(fd, 6, Buffer.from('!'));

  expect(side.fileSystem.files.hasDetached(ino)).toBe(false);
  expect(side.fileSystem.files.isBeingWritten(ino)).toBe(true);
  await mount.close(fd);
  expect((await mount.readFile('file')).toString()).toBe('longer than listed!');
});

test('an append to a version newer than the listed one goes to its end, never into its middle', async () => {
  service.put('file', Buffer.from('listed'), 1_000_000);
  const { ino } = await mount.stat('file');
  service.put('file', Buffer.from('longer than listed'), 2_000_000);
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'write', append: true, truncate: false, raw: 0 } as const;
  const { handle } = await side.fileSystem.open(ino, flags, ctx);

  // The kernel goes on from the size that it was told, until it asks again.
  await side.fileSystem.write(ino, handle, 6, Buffer.from(' one'), ctx);
  await side.fileSystem.write(ino, handle, 10, Buffer.from(' two'), ctx);
  await side.fileSystem.write(ino, handle, 26, Buffer.from(' three'), ctx);
  await side.fileSystem.release(ino, handle);

  expect((await mount.readFile('file')).toString()).toBe('longer than listed one two three');
});

describe.each([
  { how: 'longer', newer: Buffer.alloc(120_000, 'second ') },
  { how: 'shorter', newer: Buffer.alloc(70_000, 'second ') },
  { how: 'empty', newer: Buffer.alloc(0) },
])('a writer that read an older version than the newest, which is $how', ({ newer }) => {
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'read-write', append: true, truncate: false, raw: 0 } as const;
  const appended = (text: string): Buffer => Buffer.concat([newer, Buffer.from(text)]);

  test('an append by a handle of an older version goes to the end of the newest version', async () => {
    const fd = await detached('a+', newer);
    await mount.write(fd, 0, Buffer.from(' one'));
    await mount.write(fd, 0, Buffer.from(' two'));

    expect((await mount.fstat(fd)).sizeBytes).toBe(newer.byteLength + 8);
    expect((await mount.read(fd, 0, 200_000)).equals(appended(' one two'))).toBe(true);
    await mount.close(fd);
    expect((await mount.readFile('file')).equals(appended(' one two'))).toBe(true);
  });

  test.each([
    { binding: 'a binding that tells appends from mappings', place: 'end' },
    { binding: 'one that cannot', place: undefined },
  ] as const)('appends there where the kernel still has the size of the older one: $binding', async ({ place }) => {
    service.put('file', Buffer.alloc(100_000, 'first '), 1_000_000);
    const { ino } = await mount.stat('file');
    const { handle } = await side.fileSystem.open(ino, flags, ctx);
    await side.fileSystem.read(ino, handle, 0, 10, ctx);
    service.put('file', newer, 2_000_000);
    await side.freshness.refresh();

    await side.fileSystem.write(ino, handle, 100_000, Buffer.from(' one'), ctx, place);
    await side.fileSystem.write(ino, handle, 100_004, Buffer.from(' two'), ctx, place);
    await side.fileSystem.release(ino, handle);
    expect((await mount.readFile('file')).equals(appended(' one two'))).toBe(true);
  });

  test('appends there where it has read nothing, and the kernel has that size', async () => {
    service.put('file', Buffer.alloc(40_960, 'first '), 1_000_000);
    const { ino } = await mount.stat('file');
    const { handle } = await side.fileSystem.open(ino, flags, ctx);
    service.put('file', newer, 2_000_000);
    await side.freshness.refresh();

    await side.fileSystem.write(ino, handle, 40_960, Buffer.from(' one'), ctx, 'end');
    await side.fileSystem.release(ino, handle);
    expect((await mount.readFile('file')).equals(appended(' one'))).toBe(true);
  });

  test('a writer of an older version reads the newest bytes although the kernel had cached older ones', async () => {
    const forgotten: number[] = [];
    const deaf = { inode: (ino: number) => void forgotten.push(ino), entry: () => {}, deleted: () => {} };
    const fd = await detached('a+', newer);
    side.fileSystem.init(deaf);
    await mount.write(fd, 0, Buffer.from(' one'));

    expect(forgotten).toContain((await mount.fstat(fd)).ino);
    await mount.close(fd);
  });
});

test('what a shared mapping wrote comes through a handle that appends, and goes to its own place', async () => {
  service.put('file', Buffer.alloc(100_000, 'first '), 1_000_000);
  const { ino } = await mount.stat('file');
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'read-write', append: true, truncate: false, raw: 0 } as const;
  const { handle } = await side.fileSystem.open(ino, flags, ctx);
  await side.fileSystem.read(ino, handle, 0, 10, ctx);
  service.put('file', Buffer.alloc(120_000, 'second '), 2_000_000);
  await side.freshness.refresh();

  await side.fileSystem.write(ino, handle, 8_192, Buffer.alloc(4_096, 'page'), ctx, 'offset');
  await side.fileSystem.release(ino, handle);
  const bytes = await mount.readFile('file');
  expect(bytes.byteLength).toBe(100_000);
  expect(bytes.subarray(8_192, 12_288).equals(Buffer.alloc(4_096, 'page'))).toBe(true);
});

describe.each(['a version', 'its first bytes'] as const)(
  'a file that was pushed as %s while it is open, and saved elsewhere since',
  (as) => {
    async function made(flags: OpenLetters): Promise<number> {
      const fd = await mount.open('file', flags);
      await mount.write(fd, 0, Buffer.from('made here\n'));
      await mount.fsync(fd);
      pushed((await mount.fstat(fd)).ino, 'file', 'made here\n', as);
      service.put('file', Buffer.from('made here\nand elsewhere\n'), 2_000_000);
      await side.freshness.refresh();
      return fd;
    }

    test('an append to an open, pushed file goes after the bytes that were saved elsewhere', async () => {
      const fd = await made('ax');
      await mount.write(fd, 0, Buffer.from('and here\n'));
      await mount.close(fd);
      expect((await mount.readFile('file')).toString()).toBe('made here\nand elsewhere\nand here\n');
    });

    test('a write into the middle of an open, pushed file is based on the version of its open', async () => {
      const fd = await made('wx');
      await mount.write(fd, 5, Buffer.from('HERE'));
      await mount.close(fd);
      expect((await mount.readFile('file')).toString()).toBe('made HERE\n');
    });
  },
);

test('echo >> file, right after a mount with an empty store', async () => {
  service.put('file', Buffer.from('from elsewhere\n'));

  await mount.writeFile('file', Buffer.from('appended\n'), { flag: 'a' });

  expect((await mount.readFile('file')).toString()).toBe('from elsewhere\nappended\n');
});

test('a file that was created elsewhere since the last lookup is opened by O_CREAT and refused by O_EXCL', async () => {
  service.put('file', Buffer.from('theirs'));
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'read-write', append: false, truncate: false, raw: constants.O_CREAT } as const;
  const create = async (raw: number): Promise<HandleId> =>
    (await side.fileSystem.create(ROOT_INODE, 'file', 0o644, { ...flags, raw }, ctx)).open.handle;
  const { ino } = await mount.stat('file');

  const handle = await create(constants.O_CREAT);
  await side.fileSystem.write(ino, handle, 0, Buffer.from('o'), ctx);
  await side.fileSystem.release(ino, handle);
  await expect(create(constants.O_CREAT | constants.O_EXCL)).rejects.toMatchObject({ errno: 'EEXIST' });

  expect((await mount.readFile('file')).toString()).toBe('oheirs');
});

describe('where the kernel can take what is open and what the name leads to for two files', () => {
  const deaf = { inode: () => undefined, entry: () => undefined, deleted: () => undefined };
  beforeEach(() => side.fileSystem.init({ ...deaf, replaced: () => true }));

  test.each(['shorter', 'longer'])(
    'what was opened and not read is read as it was told, not the %s one',
    async (how) => {
      service.put('file', Buffer.alloc(1_000, 'told'), 1_000_000);
      const fd = await mount.open('file', 'r');
      service.put('file', Buffer.alloc(how === 'shorter' ? 10 : 2_000, 'newer'), 2_000_000);
      await side.freshness.refresh();

      expect((await mount.read(fd, 0, 3_000)).toString()).toBe('told'.repeat(250));
      const next = await mount.open('file', 'r');
      expect((await mount.read(next, 0, 5)).toString()).toBe('newer');
      await mount.close(fd);
      await mount.close(next);
    },
  );

  test('what the service has dropped meanwhile is ESTALE for them, never another length', async () => {
    const { version } = service.put('file', Buffer.alloc(1_000, 'told'), 1_000_000);
    const fd = await mount.open('file', 'r');
    service.put('file', Buffer.from('short'), 2_000_000);
    service.dropVersion(version);
    await side.freshness.refresh();

    await expect(mount.read(fd, 0, 1_000)).rejects.toMatchObject({ errno: 'ESTALE' });
    await expect(mount.read(fd, 0, 1_000)).rejects.toMatchObject({ errno: 'ESTALE' });
    await mount.close(fd);
    expect((await mount.readFile('file')).toString()).toBe('short');
  });

  test('a shorter one that the first read finds, of which no listing told, neither', async () => {
    const { version } = service.put('file', Buffer.alloc(1_000, 'told'), 1_000_000);
    const fd = await mount.open('file', 'r');
    service.put('file', Buffer.from('short'), 2_000_000);
    service.dropVersion(version);

    await expect(mount.read(fd, 0, 1_000)).rejects.toMatchObject({ errno: 'ESTALE' });
    expect((await mount.stat('file')).sizeBytes).toBe(5);
    expect((await mount.readFile('file')).toString()).toBe('short');
    await mount.close(fd);
  });

  test('what may be written into stays one file: a write is behind what is newest', async () => {
    service.put('file', Buffer.from('told'), 1_000_000);
    const fd = await mount.open('file', 'a');
    service.put('file', Buffer.from('newer'), 2_000_000);
    await side.freshness.refresh();

    await mount.write(fd, 0, Buffer.from('!'));
    await mount.close(fd);
    expect((await mount.readFile('file')).toString()).toBe('newer!');
  });
});

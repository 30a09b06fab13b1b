import { afterEach, beforeEach, expect, test } from 'vitest';
import { type ContentId, type HandleId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { Entry, OpenFlags, OpenReply } from '../../src/kernel/binding.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
const READ_WRITE: OpenFlags = { access: 'read-write', append: false, truncate: false, raw: 2 };

let side: FileSystemSide;
let mount: InProcessMount;
beforeEach(async () => {
  side = await FileSystemSide.build();
  mount = new InProcessMount(side.fileSystem);
});
afterEach(() => side.close());

interface Temporary {
  readonly ino: Inode;
  readonly handle: HandleId;
}

async function temporary(bytes: Uint8Array): Promise<Temporary> {
  const made = (await side.fileSystem.tmpfile(ROOT_INODE, 0o600, READ_WRITE, ctx)) as Entry & { open: OpenReply };
  const [ino, handle] = [made.attributes.ino, made.open.handle];
  await side.fileSystem.write(ino, handle, 0, bytes, ctx);
  return { ino, handle };
}

/** As the kernel does after the last close(2). */
async function closed({ ino, handle }: Temporary): Promise<void> {
  await side.fileSystem.flush(ino, handle);
  await side.fileSystem.release(ino, handle);
  side.fileSystem.forget(ino);
}

/** Another process finds what this one had when it was killed. */
async function afterSigkill(): Promise<FileSystemSide> {
  return FileSystemSide.build({ directory: side.snapshot() });
}

function contents(): ContentId[] {
  while (side.contents.collect());
  return Array.from(side.store.all('content'), ([id]) => id);
}

// Small ones are kept in memory, long ones in a file of the store.
test.each([100, 300_000])(
  'an unnamed O_TMPFILE file of %i bytes is removed with its last descriptor',
  async (length) => {
    const file = await temporary(Buffer.alloc(length, 'x'));
    expect(contents(), 'its bytes are kept while it is open').toHaveLength(1);
    expect(side.store.get('node', file.ino)).toBeUndefined();

    await closed(file);

    expect(contents()).toEqual([]);
    expect(side.fileSystem.files.isOpen(file.ino)).toBe(false);
  },
);

test.each([100, 300_000])(
  'a named O_TMPFILE file of %i bytes is dirty, and survives the death of the process',
  async (length) => {
    const bytes = Buffer.alloc(length, 'named');
    const file = await temporary(bytes);

    const entry = await side.fileSystem.link(file.ino, ROOT_INODE, 'named', ctx);

    expect(entry.attributes).toMatchObject({ ino: file.ino, nlink: 1, sizeBytes: length });
    expect(side.store.get('dirty', file.ino)).toBeDefined();
    expect(side.fileSystem.files.isBeingChanged(file.ino), 'its writer has not closed it').toBe(true);
    // Nothing was closed: linkat(2) is the moment from which it is kept.
    const next = await afterSigkill();
    expect(Buffer.compare(await new InProcessMount(next.fileSystem).readFile('named'), bytes)).toBe(0);
    await next.close();
  },
);

test('a nameless file that the process dies with leaves nothing', async () => {
  await temporary(Buffer.alloc(300_000, 'x'));

  const next = await afterSigkill();
  while (next.contents.collect());

  expect([...next.store.all('content')]).toEqual([]);
  await next.close();
});

test('link is EPERM for every file but a nameless one of O_TMPFILE', async () => {
  await mount.writeFile('file', Buffer.from('bytes'));
  await expect(mount.link('file', 'second')).rejects.toMatchObject({ errno: 'EPERM' });

  const { ino } = await mount.stat('file');
  const fd = await mount.open('file', 'r+');
  await mount.unlink('file');
  expect(() => side.fileSystem.link(ino, ROOT_INODE, 'again', ctx)).toThrow(
    expect.objectContaining({ errno: 'EPERM' }),
  );
  await mount.close(fd);

  const file = await temporary(Buffer.from('bytes'));
  await side.fileSystem.link(file.ino, ROOT_INODE, 'first', ctx);
  expect(() => side.fileSystem.link(file.ino, ROOT_INODE, 'second', ctx)).toThrow(
    expect.objectContaining({ errno: 'EPERM' }),
  );
  await closed(file);
  expect((await mount.readFile('first')).toString()).toBe('bytes');
});

test('a nameless file that was refused a name is as before, and can have another', async () => {
  const file = await temporary(Buffer.from('new'));
  await expect((async () => side.fileSystem.link(file.ino, ROOT_INODE, '.Trash-0', ctx))()).rejects.toMatchObject({
    errno: 'EPERM',
  });
  await mount.writeFile('taken', Buffer.from('old'));
  await expect((async () => side.fileSystem.link(file.ino, ROOT_INODE, 'taken', ctx))()).rejects.toMatchObject({
    errno: 'EEXIST',
  });
  await side.fileSystem.link(file.ino, ROOT_INODE, 'free', ctx);
  await closed(file);
  expect((await mount.readFile('free')).toString()).toBe('new');
});

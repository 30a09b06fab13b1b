import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type HandleId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { FolderHandle } from '../../src/fs/folder-handle.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };

/**
 * The kernel keeps a listing, and gives the next reader the first part of it without asking here. When it has to let go of it, it asks for
 * what follows the last entry that it gave out: of which this handle has never heard, and which may be gone by now.
 */
describe('a listing of which the kernel had the first part goes on behind it', () => {
  let service: VersionService;
  let side: FileSystemSide;
  let mount: InProcessMount;
  beforeEach(async () => {
    service = new VersionService();
    side = await FileSystemSide.build({ listing: service, source: service });
    mount = new InProcessMount(side.fileSystem);
  });
  afterEach(() => side.close());

  async function listed(handle: HandleId, cookie: number): Promise<{ name: string; cookie: number }[]> {
    const found: { name: string; cookie: number }[] = [];
    const add = (name: string, _ino: Inode, _kind: unknown, next: number) => found.push({ name, cookie: next }) > 0;
    await side.fileSystem.readdir(ROOT_INODE, handle, cookie, { wantsEntries: false, add });
    return found;
  }

  /** Another reader has filled the kernel's cache; who opens now is given `a` and `b` out of it. */
  async function given(): Promise<{ rest: () => Promise<string[]>; ino: Inode }> {
    const { fileSystem } = side;
    const first = await fileSystem.opendir(ROOT_INODE, ctx);
    const all = await listed(first.handle, 0);
    await fileSystem.releasedir(ROOT_INODE, first.handle);
    const second = await fileSystem.opendir(ROOT_INODE, ctx);
    expect(second.keepListing).toBe(true);
    const cookie = all.find(({ name }) => name === 'b')?.cookie ?? 0;
    const rest = async () => (await listed(second.handle, cookie)).map(({ name }) => name);
    return { rest, ino: (await mount.stat('b')).ino };
  }

  const rest = ['c', 'd', 'folder'];
  test.each([
    { what: 'removed', act: () => mount.unlink('b'), left: rest },
    { what: 'moved away', act: () => mount.rename('b', 'folder/b'), left: rest },
    { what: 'called otherwise', act: () => mount.rename('b', 'e'), left: ['c', 'd', 'e', 'folder'] },
    {
      what: 'called otherwise for a moment',
      act: async () => {
        await mount.rename('b', 'zzz');
        await mount.rename('zzz', 'b');
      },
      left: rest,
    },
    {
      what: 'called otherwise twice',
      act: async () => {
        await mount.rename('b', 'zzz');
        await mount.rename('zzz', 'e');
      },
      left: ['c', 'd', 'e', 'folder'],
    },
    { what: 'replaced', act: () => mount.rename('d', 'b'), left: ['c', 'folder'] },
    { what: 'exchanged', act: () => mount.rename('b', 'd', 'exchange'), left: rest },
    { what: 'exchanged from behind', act: () => mount.rename('d', 'b', 'exchange'), left: rest },
  ])('an interrupted listing continues after its last entry was $what', async ({ act, left }) => {
    for (const name of ['a', 'b', 'c', 'd']) await mount.writeFile(name, Buffer.from(name));
    await mount.mkdir('folder');
    const { rest: told } = await given();

    await mount.unlink('a');
    await act();

    expect(await told()).toEqual(left);
  });

  test('an interrupted listing continues after its last entry was removed elsewhere', async () => {
    for (const name of ['a', 'b', 'c', 'd']) service.put(name, Buffer.from(name));
    await mount.readdir('');
    const { rest: told } = await given();

    service.remove('b');
    await side.freshness.refresh();

    expect(await told()).toEqual(['c', 'd']);
  });

  test('an interrupted listing continues after its last entry was renamed elsewhere', async () => {
    for (const name of ['a', 'b', 'c', 'd']) service.put(name, Buffer.from(name));
    await mount.readdir('');
    const { rest: told, ino } = await given();

    service.rename('b', 'z');
    await side.freshness.refresh();

    expect((await mount.stat('z')).ino).toBe(ino);
    expect(await told()).toEqual(['c', 'd', 'z']);
  });
});

test('a reader from the start knows no place of before, and one that stays long keeps a bounded number of them', () => {
  const handle = new FolderHandle(ROOT_INODE);
  handle.handedOut(5 as Inode, 'five');
  handle.left(5 as Inode, 'another name by now');
  handle.left(6 as Inode, 'six');
  expect([handle.nameOf(5 as Inode), handle.nameOf(6 as Inode)]).toEqual(['five', 'six']);

  handle.rewound();
  expect([handle.nameOf(5 as Inode), handle.nameOf(6 as Inode)]).toEqual([undefined, undefined]);

  for (let entry = 1; entry <= 300_000; entry++) handle.left(entry as Inode, `${entry}`);
  expect(handle.nameOf(1 as Inode)).toBeUndefined();
  expect(handle.nameOf(300_000 as Inode)).toBe('300000');
});

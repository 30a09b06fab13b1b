import { afterEach, expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import { type HandleId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { Entry, OpenFlags, OpenReply } from '../../src/kernel/binding.ts';
import { bytesOf } from '../../src/kernel/gathered-reply.ts';
import { openFlags, rawFlags } from '../../src/kernel/open-flags.ts';
import { Opcode } from '../../src/kernel/protocol.ts';
import { VersionService } from '../content/version-service.ts';
import { ContinuedSide } from '../harness/continued-side.ts';
import { FileSystemSide, type SideOptions } from '../harness/file-system-side.ts';

/** A process dies, and its successor continues on the same memory (S-continue-1, S-continue-2). */

let life: ContinuedSide;
const others: FileSystemSide[] = [];
afterEach(async () => {
  for (const each of others.splice(0)) await each.close();
  await life.close();
});

const flags = (letters: Parameters<typeof rawFlags>[0]): OpenFlags => openFlags(rawFlags(letters));
const WRITE = flags('r+');
const EMPTY = flags('w');
class Dead extends Error {}

async function start(options: SideOptions = {}): Promise<void> {
  life = await ContinuedSide.start(options);
}

async function created(name: string, text: string): Promise<Inode> {
  const { fileSystem } = life.side;
  const ctx = life.request(Opcode.CREATE, ROOT_INODE);
  const { attributes, open } = (await fileSystem.create(ROOT_INODE, name, 0o644, EMPTY, ctx)) as Entry & {
    open: OpenReply;
  };
  const ino = attributes?.ino as Inode;
  await write(ino, open.handle, 0, text);
  await fileSystem.flush(ino, open.handle);
  await fileSystem.release(ino, open.handle);
  return ino;
}

async function open(ino: Inode, how: OpenFlags): Promise<HandleId> {
  const reply = life.serve(life.request(Opcode.OPEN, ino), (ctx) => life.side.fileSystem.open(ino, how, ctx));
  return (await reply).handle;
}

async function write(ino: Inode, handle: HandleId, at: number, text: string | Buffer): Promise<void> {
  const ctx = life.request(Opcode.WRITE, ino);
  await life.serve(ctx, () => life.side.fileSystem.write(ino, handle, at, Buffer.from(text), ctx, 'offset'));
}

async function read(ino: Inode, handle: HandleId, length = 1_000_000): Promise<string> {
  const ctx = life.request(Opcode.READ, ino);
  return bytesOf(await life.side.fileSystem.read(ino, handle, 0, length, ctx)).toString();
}

/** What a mount without a keeper would find at its start. */
async function foundWithoutKeeper(name: string): Promise<number | undefined> {
  const other = await FileSystemSide.build({ directory: life.side.snapshot() });
  others.push(other);
  return other.tree.child(ROOT_INODE, name)?.local?.sizeBytes;
}

async function listed(handle: HandleId, cookie: number, max: number): Promise<{ name: string; cookie: number }[]> {
  const found: { name: string; cookie: number }[] = [];
  const add = (name: string, _ino: Inode, _kind: unknown, next: number) =>
    found.length < max && found.push({ name, cookie: next }) > 0;
  await life.side.fileSystem.readdir(ROOT_INODE, handle, cookie, { wantsEntries: false, add });
  return found;
}

test('emptying a file on open becomes durable at the close, not by a death before the reply', async () => {
  await start();
  const ino = await created('file', 'old');
  const reader = await open(ino, flags('r'));
  life.state.opened = () => {
    throw new Dead();
  };
  await expect(async () => open(ino, EMPTY)).rejects.toThrow(Dead);
  await life.die();
  expect(await foundWithoutKeeper('file')).toBe(3);
  await life.side.fileSystem.release(ino, reader);
  expect(await foundWithoutKeeper('file')).toBe(3);
});

test('a file that was emptied on open and closed is empty after a death in the close', async () => {
  await start();
  const ino = await created('file', 'old');
  const handle = await open(ino, EMPTY);
  const { fileSystem, contents } = life.side;
  await fileSystem.flush(ino, handle);
  const { state } = life;
  contents.flush = () => {
    // A dead process records nothing.
    state.closed = () => {};
    state.drafts.dropped = () => {};
    throw new Dead();
  };
  await expect(async () => fileSystem.release(ino, handle)).rejects.toThrow();
  await life.die();
  await life.side.fileSystem.release(ino, handle);

  expect(await foundWithoutKeeper('file')).toBe(0);
  expect(life.side.tree.child(ROOT_INODE, 'file')?.local?.sizeBytes).toBe(0);
});

test.each(['open', 'create', 'tmpfile', 'opendir'] as const)(
  'a handle of %s whose process dies before the reply goes to the repeated request',
  async (how) => {
    await start();
    const { fileSystem } = life.side;
    const ino = await created('file', 'old');
    const opcode = { open: Opcode.OPEN, create: Opcode.CREATE, tmpfile: Opcode.TMPFILE, opendir: Opcode.OPENDIR }[how];
    const request = life.request(opcode, how === 'open' ? ino : ROOT_INODE);
    await life.serve<unknown>(request, (ctx) => {
      if (how === 'open') return fileSystem.open(ino, flags('w+'), ctx);
      if (how === 'create') return fileSystem.create(ROOT_INODE, 'new', 0o644, flags('w+'), ctx);
      if (how === 'tmpfile') return fileSystem.tmpfile(ROOT_INODE, 0o644, WRITE, ctx);
      return fileSystem.opendir(ROOT_INODE, ctx);
    });
    await life.die();
    await life.die();

    const opened = life.state.undelivered(request);
    if (opened === null) throw new Error('no handle is recorded');
    const { handle, ino: openedIno } = opened;
    expect(life.side.fileSystem.reopened(openedIno, handle)).toMatchObject({ handle });
    expect(await foundWithoutKeeper('file')).toBe(3);
    if (how === 'opendir') return;
    expect(life.side.fileSystem.made(openedIno, null)).toMatchObject({ attributes: { sizeBytes: 0 } });
    await write(openedIno, handle, 0, 'new bytes');
    expect(await read(openedIno, handle)).toBe('new bytes');
  },
);

test('a nameless file without a handle is dropped by the successor: no program can use it', async () => {
  await start();
  life.state.opened = () => {
    throw new Dead();
  };
  const request = life.request(Opcode.TMPFILE, ROOT_INODE);
  await expect(async () =>
    life.serve(request, (ctx) => life.side.fileSystem.tmpfile(ROOT_INODE, 0o644, WRITE, ctx)),
  ).rejects.toThrow(Dead);
  expect(life.state.removals.nameless()).toHaveLength(1);
  await life.die();

  expect(life.state.removals.nameless()).toEqual([]);
});

test('an append that the disk refused is made by the successor, whatever others changed meanwhile', async () => {
  await start();
  const ino = await created('file', 'begin\n');
  const [one, other] = [await open(ino, WRITE), await open(ino, WRITE)];
  const { fileSystem, contents } = life.side;
  const append = life.request(Opcode.WRITE, ino);
  const appendTo = (side: FileSystemSide) =>
    life.serve(append, (ctx) => side.fileSystem.write(ino, one, 0, Buffer.from('more\n'), ctx, 'end'));
  const { writeAtPace } = contents;
  contents.writeAtPace = () => {
    throw new StorageError('the disk is full', { full: true });
  };
  await expect(async () => appendTo(life.side)).rejects.toThrow();
  contents.writeAtPace = writeAtPace;
  await life.serve(life.request(Opcode.WRITE, ino), (ctx) =>
    fileSystem.write(ino, other, 0, Buffer.from('BEGIN'), ctx, 'offset'),
  );
  await life.die();
  await appendTo(life.side);

  expect(await read(ino, one)).toBe('BEGIN\nmore\n');
});

test.each([
  { what: 'written', isStored: false },
  { what: 'stored in the database and then changed', isStored: true },
])('a file of more than 32 KiB that is $what in memory continues over a death', async ({ isStored }) => {
  await start({ contents: { inlineMaxBytes: 256 * 1024 } });
  const text = 'x'.repeat(100_000);
  const ino = await created('file', isStored ? text : '');
  const handle = await open(ino, WRITE);
  if (!isStored) await write(ino, handle, 0, text);
  await write(ino, handle, 10, 'new');
  await life.die();
  await write(ino, handle, 20, 'newer');

  const wanted = Buffer.from(text);
  wanted.write('new', 10);
  wanted.write('newer', 20);
  expect((await read(ino, handle)) === wanted.toString()).toBe(true);
});

test('a reader keeps its version after the file was replaced elsewhere, deleted, and the process died', async () => {
  const service = new VersionService();
  service.put('file', Buffer.from('version A'));
  await start({ listing: service, source: service });
  const { freshness, tree } = life.side;
  await freshness.ensureListed(ROOT_INODE, new AbortController().signal);
  const ino = tree.child(ROOT_INODE, 'file')?.ino as Inode;
  const reader = await open(ino, flags('r'));
  expect(await read(ino, reader)).toBe('version A');
  service.put('file', Buffer.from('the version B'), 2_000_000);
  await freshness.refresh(ROOT_INODE);
  const newer = await open(ino, flags('r'));
  expect(await read(ino, newer)).toBe('the version B');
  await life.side.fileSystem.unlink(ROOT_INODE, 'file', life.request(Opcode.UNLINK, ROOT_INODE));
  expect(await read(ino, reader)).toBe('version A');
  await life.die();
  await life.die();

  expect(await read(ino, reader)).toBe('version A');
  expect(await read(ino, newer)).toBe('the version B');
});

test('a reader keeps its version over a death after another reader of the file was closed', async () => {
  const service = new VersionService();
  service.put('file', Buffer.from('version A'));
  await start({ listing: service, source: service });
  const { freshness, tree, fileSystem } = life.side;
  await freshness.ensureListed(ROOT_INODE, new AbortController().signal);
  const ino = tree.child(ROOT_INODE, 'file')?.ino as Inode;
  const [closed, reader] = [await open(ino, flags('r')), await open(ino, flags('r'))];
  await fileSystem.release(ino, closed);
  expect(await read(ino, reader)).toBe('version A');
  service.put('file', Buffer.from('the version B'), 2_000_000);
  await freshness.refresh(ROOT_INODE);
  await life.die();

  expect(await read(ino, reader)).toBe('version A');
});

test('a removal whose process dies right after its record leaves the bytes to the open descriptor', async () => {
  await start();
  const ino = await created('file', 'bytes');
  const handle = await open(ino, flags('r'));
  const { tree, fileSystem } = life.side;
  const remove = tree.remove.bind(tree);
  tree.remove = (...args) => {
    remove(...args);
    throw new Dead();
  };
  const unlink = life.request(Opcode.UNLINK, ROOT_INODE);
  await expect(async () => life.serve(unlink, (ctx) => fileSystem.unlink(ROOT_INODE, 'file', ctx))).rejects.toThrow(
    Dead,
  );
  await life.die();

  expect(life.state.madeBy(unlink)).not.toBeNull();
  expect(await read(ino, handle)).toBe('bytes');
  expect(life.side.fileSystem.getattr(ino)).toMatchObject({ attributes: { nlink: 0, sizeBytes: 5 } });
});

test('a file is still being changed after a death if a descriptor with unclosed changes is open, and only then', async () => {
  await start();
  const [changed, opened] = [await created('changed', 'one'), await created('opened', 'two')];
  const handle = await open(changed, WRITE);
  await open(opened, WRITE);
  await write(changed, handle, 0, 'ONE');
  await life.die();
  await life.die();

  const { files } = life.side.fileSystem;
  expect([files.isBeingChanged(changed), files.isBeingChanged(opened)]).toEqual([true, false]);
  await life.side.fileSystem.flush(changed, handle);
  await life.side.fileSystem.release(changed, handle);
  expect(files.isBeingChanged(changed)).toBe(false);
});

test('a listing that was rewound before a death continues after its latest position', async () => {
  await start();
  for (const name of ['a', 'b', 'c', 'd', 'e']) await created(name, name);
  const { fileSystem } = life.side;
  const opendir = life.request(Opcode.OPENDIR, ROOT_INODE);
  const { handle } = await life.serve(opendir, (ctx) => fileSystem.opendir(ROOT_INODE, ctx));
  await listed(handle, 0, 3);
  const ctx = life.request(Opcode.RENAME2, ROOT_INODE);
  await fileSystem.rename(ROOT_INODE, 'a', ROOT_INODE, 'd2', 'replace', ctx);
  const seen = await listed(handle, 0, 6);
  expect(seen.map(({ name }) => name)).toEqual(['.', '..', 'b', 'c', 'd', 'd2']);
  await life.die();

  expect((await listed(handle, seen.at(-1)?.cookie ?? 0, 10)).map(({ name }) => name)).toEqual(['e']);
});

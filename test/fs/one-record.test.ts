import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { openFlags, rawFlags } from '../../src/kernel/open-flags.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';

const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };

let side: FileSystemSide;
beforeEach(async () => {
  side = await FileSystemSide.build();
});
afterEach(() => side.close());

// A successor of a killed process compares one record with the journal (src/kernel/handover-state.ts). A second one would be made twice, or not.
test('an operation that may not be carried out twice is one journal record, with the inode that it makes as the newest', async () => {
  const { fileSystem: fs, store, tree } = side;
  const childOf = (name: string): Inode => tree.child(ROOT_INODE, name)?.ino as Inode;
  await fs.mkdir(ROOT_INODE, 'folder', 0o755, ctx);
  await fs.mkdir(ROOT_INODE, 'other', 0o755, ctx);
  for (const name of ['file', 'second', 'third']) await fs.mknod(ROOT_INODE, name, 'file', 0o644, ctx);
  await fs.setxattr(childOf('file'), 'user.old', Buffer.from('x'), 'set');
  const temporary = await fs.tmpfile(ROOT_INODE, 0o644, openFlags(rawFlags('w+')), ctx);
  const records: number[] = [];
  store.witness = { needsInode: true, writing: (_sequence, inode) => records.push(inode ?? 0), refused: () => {} };
  const make = { mode: 0o644 } as const;
  const operations: Readonly<Record<string, readonly [act: () => unknown, made?: string]>> = {
    create: [() => fs.create(ROOT_INODE, 'created', make.mode, openFlags(rawFlags('wx')), ctx), 'created'],
    mknod: [() => fs.mknod(ROOT_INODE, 'made', 'file', make.mode, ctx), 'made'],
    mkdir: [() => fs.mkdir(ROOT_INODE, 'sub', make.mode, ctx), 'sub'],
    symlink: [() => fs.symlink(ROOT_INODE, 'link', 'to', ctx), 'link'],
    'a long symlink': [() => fs.symlink(ROOT_INODE, 'long', 'x'.repeat(4000), ctx), 'long'],
    link: [() => fs.link(temporary.attributes.ino, ROOT_INODE, 'named', ctx), 'named'],
    rename: [() => fs.rename(ROOT_INODE, 'file', ROOT_INODE, 'renamed', 'replace', ctx)],
    'rename over': [() => fs.rename(ROOT_INODE, 'second', ROOT_INODE, 'third', 'replace', ctx)],
    exchange: [() => fs.rename(ROOT_INODE, 'renamed', ROOT_INODE, 'third', 'exchange', ctx)],
    'rename a folder over': [() => fs.rename(ROOT_INODE, 'folder', ROOT_INODE, 'other', 'replace', ctx)],
    setxattr: [() => fs.setxattr(childOf('third'), 'user.new', Buffer.from('x'), 'create')],
    removexattr: [() => fs.removexattr(childOf('third'), 'user.old')],
    unlink: [() => fs.unlink(ROOT_INODE, 'renamed', ctx)],
    rmdir: [() => fs.rmdir(ROOT_INODE, 'other', ctx)],
  };
  const found: Record<string, unknown> = {};
  for (const [name, [act, made]] of Object.entries(operations)) {
    records.length = 0;
    await act();
    found[name] = { records: records.length, ...(made !== undefined && { isNewest: records[0] === childOf(made) }) };
  }

  expect(found).toEqual(
    Object.fromEntries(
      Object.entries(operations).map(([name, [, made]]) => [
        name,
        { records: 1, ...(made !== undefined && { isNewest: true }) },
      ]),
    ),
  );
});

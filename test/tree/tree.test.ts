import { beforeEach, describe, expect, it } from 'vitest';
import type { FsError } from '../../src/base/errors.ts';
import { type ContentId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { NodeRecord } from '../../src/store/tables.ts';
import { Tree } from '../../src/tree/tree.ts';
import {
  acknowledge,
  checkStore,
  type Fixture,
  file,
  folder,
  localFile,
  makeTree,
  merge,
  namesIn,
  ROOT_URL,
} from './tree-fixture.ts';

function errnoOf(act: () => unknown): string | null {
  try {
    act();
    return null;
  } catch (error) {
    return (error as FsError).errno ?? String(error);
  }
}

describe('Tree', () => {
  let fixture: Fixture;
  let tree: Tree;

  beforeEach(() => {
    fixture = makeTree();
    tree = fixture.tree;
    merge(fixture, ROOT_INODE, []);
  });

  const mkdir = (parent: Inode, name: string) => localFile(tree, parent, name, 'folder').ino;
  const touch = (parent: Inode, name: string) => localFile(tree, parent, name).ino;

  it('plants the root once', () => {
    tree.change(ROOT_INODE, { mode: 0o700 });
    Tree.createRoot(fixture.store, fixture.clock, { resource: ROOT_URL, uid: 1, gid: 1 });
    expect(tree.node(ROOT_INODE)?.local).toMatchObject({ mode: 0o700, uid: 1000, parent: ROOT_INODE, name: '' });
    expect(tree.node(ROOT_INODE)?.remote?.resource).toBe(ROOT_URL);
    checkStore(fixture.store);
  });

  it('creates a file with an empty draft, so that it is pushed', () => {
    const node = localFile(tree, ROOT_INODE, 'a');
    expect(fixture.store.get('content', node.local?.content as ContentId)?.kind).toBe('draft');
    expect(fixture.store.get('dirty', node.ino)).toBeDefined();
    expect(tree.child(ROOT_INODE, 'a')).toEqual(node);
    expect(fixture.changed).toEqual([[node.ino, 'created']]);
    checkStore(fixture.store);
  });

  it('makes first bytes inside the record that makes the node', () => {
    const node = tree.create(ROOT_INODE, 'link', {
      kind: 'symlink',
      mode: 0o777,
      uid: 0,
      gid: 0,
      sizeBytes: 4,
      content: (tx) => fixture.contents.inlineContent(tx, Buffer.from('aim/')),
    });
    expect(node.local).toMatchObject({ sizeBytes: 4 });
    expect(errnoOf(() => localFile(tree, ROOT_INODE, 'link', 'symlink'))).toBe('EEXIST');
    checkStore(fixture.store);
  });

  it('refuses invalid names, missing or wrong parents and reserved trash names', () => {
    const file = touch(ROOT_INODE, 'file');
    expect(errnoOf(() => touch(ROOT_INODE, 'file'))).toBe('EEXIST');
    expect(errnoOf(() => mkdir(ROOT_INODE, 'file'))).toBe('EEXIST');
    expect(errnoOf(() => touch(file, 'below'))).toBe('ENOTDIR');
    expect(errnoOf(() => touch(4711 as Inode, 'below'))).toBe('ENOENT');
    expect(errnoOf(() => touch(ROOT_INODE, 'x'.repeat(256)))).toBe('ENAMETOOLONG');
    expect(errnoOf(() => mkdir(ROOT_INODE, '.Trash-1000'))).toBe('EPERM');
    expect(errnoOf(() => tree.rename(ROOT_INODE, 'file', ROOT_INODE, '.Trash-0', 'replace'))).toBe('EPERM');
    expect(errnoOf(() => tree.rename(ROOT_INODE, 'file', ROOT_INODE, 'x'.repeat(256), 'replace'))).toBe('ENAMETOOLONG');
    expect(namesIn(tree, ROOT_INODE)).toEqual(['file']);
    checkStore(fixture.store);
  });

  it('treats names that differ in case or Unicode normalization as different', () => {
    touch(ROOT_INODE, 'a');
    touch(ROOT_INODE, 'A');
    touch(ROOT_INODE, '\u00e4');
    touch(ROOT_INODE, 'a\u0308');
    expect(namesIn(tree, ROOT_INODE)).toHaveLength(4);
  });

  it('lists entries in a stable order, from any name on', () => {
    for (const name of ['b', 'ä', 'a', '🦊', 'Z']) touch(ROOT_INODE, name);
    expect(namesIn(tree, ROOT_INODE)).toEqual(['Z', 'a', 'b', 'ä', '🦊']);
    expect([...tree.children(ROOT_INODE, 'a')].map(({ name }) => name)).toEqual(['b', 'ä', '🦊']);
    expect([...tree.children(ROOT_INODE, 'aa')].map(({ name }) => name)).toEqual(['b', 'ä', '🦊']);
  });

  it('keeps the times of a folder in step with its entries', () => {
    const dir = mkdir(ROOT_INODE, 'dir');
    const timeOf = () => tree.node(dir)?.local?.mtime;
    for (const act of [
      () => touch(dir, 'a'),
      () => tree.rename(dir, 'a', dir, 'b', 'replace'),
      () => tree.rename(dir, 'b', ROOT_INODE, 'b', 'replace'),
      () => tree.rename(ROOT_INODE, 'b', dir, 'c', 'replace'),
      () => tree.remove(dir, 'c', 'file'),
    ]) {
      fixture.clock.advance(1000);
      const before = timeOf();
      act();
      expect(timeOf()?.sec).toBeGreaterThan(before?.sec ?? 0);
    }
  });

  it('removes by the rules of unlink(2) and rmdir(2)', () => {
    const dir = mkdir(ROOT_INODE, 'dir');
    const a = touch(dir, 'a');
    expect(errnoOf(() => tree.remove(ROOT_INODE, 'dir', 'file'))).toBe('EISDIR');
    expect(errnoOf(() => tree.remove(dir, 'a', 'folder'))).toBe('ENOTDIR');
    expect(errnoOf(() => tree.remove(ROOT_INODE, 'dir', 'folder'))).toBe('ENOTEMPTY');
    expect(errnoOf(() => tree.remove(ROOT_INODE, 'none', 'file'))).toBe('ENOENT');
    expect(tree.remove(dir, 'a', 'file').removed.ino).toBe(a);
    expect(tree.remove(ROOT_INODE, 'dir', 'folder').removed.ino).toBe(dir);
    expect(errnoOf(() => touch(dir, 'late'))).toBe('ENOENT');
    // Never pushed: nothing is left to do.
    expect([...fixture.store.all('dirty')]).toEqual([]);
    expect(tree.node(a)).toBeUndefined();
    checkStore(fixture.store);
  });

  it('leaves a tombstone of what the service has', () => {
    merge(fixture, ROOT_INODE, [file('1', 'a'), folder('d', 'dir')]);
    const a = tree.child(ROOT_INODE, 'a')?.ino as Inode;
    tree.remove(ROOT_INODE, 'a', 'file');
    expect(tree.child(ROOT_INODE, 'a')).toBeUndefined();
    expect(tree.node(a)).toMatchObject({ local: null, remote: { name: 'a' } });
    expect(fixture.store.get('dirty', a)).toBeDefined();
    expect(errnoOf(() => tree.change(a, { mode: 0o600 }))).toBe('ENOENT');
    // Never listed: whether it is empty nobody knows.
    expect(errnoOf(() => tree.remove(ROOT_INODE, 'dir', 'folder'))).toBe('ENOTEMPTY');
    checkStore(fixture.store);
  });

  it('changes attributes without making a file dirty', () => {
    merge(fixture, ROOT_INODE, [file('1', 'a')]);
    const a = tree.child(ROOT_INODE, 'a')?.ino as Inode;
    fixture.clock.advance(5000);
    const node = tree.change(a, { mode: 0o600, mtime: { sec: 1, nsec: 123_456_789 } });
    expect(node.local).toMatchObject({ mode: 0o600, mtime: { sec: 1, nsec: 123_456_789 } });
    expect(node.local?.ctime.sec).toBe(Math.floor(fixture.clock.nowMs() / 1000));
    expect(fixture.store.get('dirty', a)).toBeUndefined();
    expect(fixture.changed.at(-1)).toEqual([a, 'attributes']);
    expect(errnoOf(() => tree.change(99 as Inode, {}))).toBe('ENOENT');
  });

  it('knows whether a folder is complete', () => {
    merge(fixture, ROOT_INODE, [folder('d', 'there')]);
    const there = tree.child(ROOT_INODE, 'there')?.ino as Inode;
    const here = mkdir(ROOT_INODE, 'here');
    expect(tree.isComplete(there)).toBe(false);
    expect(tree.isComplete(here)).toBe(true);
    acknowledge(fixture, here);
    expect(tree.isComplete(here)).toBe(true);
    merge(fixture, there, []);
    expect(tree.isComplete(there)).toBe(true);
    expect(tree.isEmpty(there)).toBe(true);
  });

  describe('rename', () => {
    let dir: Inode;
    let sub: Inode;
    beforeEach(() => {
      dir = mkdir(ROOT_INODE, 'dir');
      sub = mkdir(dir, 'sub');
      touch(ROOT_INODE, 'a');
      touch(ROOT_INODE, 'b');
      touch(sub, 'deep');
    });

    it.each([
      // [from, to, mode, errno]
      ['a', 'b', 'no-replace', 'EEXIST'],
      ['a', 'none', 'exchange', 'ENOENT'],
      ['none', 'b', 'replace', 'ENOENT'],
      ['a', 'dir', 'replace', 'EISDIR'],
      ['dir', 'a', 'replace', 'ENOTDIR'],
      ['empty', 'dir', 'replace', 'ENOTEMPTY'],
      ['dir', 'dir/sub/x', 'replace', 'EINVAL'],
      ['dir', 'dir/x', 'replace', 'EINVAL'],
      ['dir', 'dir/sub', 'exchange', 'EINVAL'],
      ['dir/sub', 'dir', 'exchange', 'EINVAL'],
      ['._dir', 'c', 'replace', 'EXDEV'],
      ['dir', '._gone', 'replace', 'EXDEV'],
      ['.b.swp', 'a', 'no-replace', 'EEXIST'],
      ['unread', '.b.swp', 'replace', 'EXDEV'],
      ['unread', '.b.swp', 'exchange', 'EXDEV'],
      ['.b.swp', 'unread', 'exchange', 'EXDEV'],
      ['unread', '._dir/x', 'replace', 'EXDEV'],
    ] as const)('%s → %s (%s) is %s and changes nothing', (from, to, mode, errno) => {
      mkdir(ROOT_INODE, 'empty');
      touch(ROOT_INODE, '.b.swp');
      touch(mkdir(ROOT_INODE, '._dir'), 'inside');
      merge(fixture, ROOT_INODE, [file('unread', 'unread')]);
      const place = (path: string) => {
        const parts = path.split('/');
        const name = parts.pop() as string;
        const parent = parts.reduce<Inode>((at, part) => tree.child(at, part)?.ino as Inode, ROOT_INODE);
        return [parent, name] as const;
      };
      const before = [...fixture.store.all('node')];
      expect(errnoOf(() => tree.rename(...place(from), ...place(to), mode))).toBe(errno);
      expect([...fixture.store.all('node')]).toEqual(before);
    });

    it('replaces a file, and an empty folder', () => {
      const a = tree.child(ROOT_INODE, 'a')?.ino;
      const b = tree.child(ROOT_INODE, 'b')?.ino;
      const { moved, replaced } = tree.rename(ROOT_INODE, 'a', ROOT_INODE, 'b', 'replace');
      expect([moved.ino, replaced?.ino]).toEqual([a, b]);
      const empty = mkdir(ROOT_INODE, 'empty');
      expect(tree.rename(ROOT_INODE, 'dir', ROOT_INODE, 'empty', 'replace').replaced?.ino).toBe(empty);
      expect(namesIn(tree, ROOT_INODE)).toEqual(['b', 'empty/']);
      expect(tree.child(tree.child(dir, 'sub')?.ino as Inode, 'deep')).toBeDefined();
      checkStore(fixture.store);
    });

    it('does nothing for a name onto itself', () => {
      fixture.changed.length = 0;
      const { moved, replaced } = tree.rename(ROOT_INODE, 'a', ROOT_INODE, 'a', 'replace');
      expect([moved.local?.name, replaced]).toEqual(['a', null]);
      expect(fixture.changed).toEqual([]);
    });

    it('exchanges a file and a folder', () => {
      const a = tree.child(ROOT_INODE, 'a')?.ino as Inode;
      const { replaced } = tree.rename(ROOT_INODE, 'a', dir, 'sub', 'exchange');
      expect(replaced).toBeNull();
      expect(tree.child(dir, 'sub')?.ino).toBe(a);
      expect(tree.child(ROOT_INODE, 'a')?.ino).toBe(sub);
      expect(
        fixture.changed
          .slice(-2)
          .map(([ino]) => ino)
          .sort(),
      ).toEqual([sub, a].sort());
      checkStore(fixture.store);
    });

    it('lets what stays local be renamed among its like', () => {
      const lock = localFile(tree, ROOT_INODE, '.a.swp');
      expect(lock.localOnly).toBe(true);
      expect(fixture.store.get('dirty', lock.ino)).toBeUndefined();
      expect(tree.rename(ROOT_INODE, '.a.swp', dir, '.DS_Store', 'replace').moved.ino).toBe(lock.ino);
      checkStore(fixture.store);
    });

    it('a rename over a local-only file makes the moved file local-only, and its remote file is moved to the trash', () => {
      const old = localFile(tree, ROOT_INODE, 'desktop.ini');
      const save = tree.child(ROOT_INODE, 'a') as NodeRecord;
      acknowledge(fixture, save.ino);
      const { resource } = tree.node(save.ino)?.remote ?? {};

      const { moved, replaced } = tree.rename(ROOT_INODE, 'a', ROOT_INODE, 'desktop.ini', 'replace');

      expect(moved).toMatchObject({ ino: save.ino, localOnly: true, remote: null });
      expect(replaced?.ino).toBe(old.ino);
      expect(tree.node(old.ino)).toBeUndefined();
      expect(fixture.store.get('dirty', save.ino)).toBeUndefined();
      const tombstone = tree.nodeOf(resource as never);
      expect(tombstone).toMatchObject({ local: null, localOnly: false });
      expect(fixture.store.get('dirty', tombstone?.ino as Inode)).toBeDefined();
      expect(fixture.changed).toContainEqual([tombstone?.ino, 'removed']);
      checkStore(fixture.store);
    });

    it('makes the next version of what travels, whatever its name and that of the save', () => {
      merge(fixture, ROOT_INODE, [file('theirs', '.theirs.swp')]);
      const old = tree.child(ROOT_INODE, '.theirs.swp') as NodeRecord;
      expect(old.localOnly).toBe(false);
      for (const name of ['sedA1b2c3', '._save']) {
        const save = localFile(tree, ROOT_INODE, name);
        const { moved } = tree.rename(ROOT_INODE, name, ROOT_INODE, '.theirs.swp', 'replace');
        expect(moved).toMatchObject({ ino: save.ino, localOnly: false, remote: { resource: old.remote?.resource } });
      }
      checkStore(fixture.store);
    });

    it('makes the next version of what travels where the old file is renamed away or removed first', () => {
      merge(fixture, ROOT_INODE, [file('theirs', 'desktop.ini')]);
      const resource = tree.child(ROOT_INODE, 'desktop.ini')?.remote?.resource;
      tree.remove(ROOT_INODE, 'desktop.ini', 'file');
      const anew = localFile(tree, ROOT_INODE, 'desktop.ini');
      expect(anew).toMatchObject({ localOnly: false, remote: { resource } });
      tree.rename(ROOT_INODE, 'desktop.ini', ROOT_INODE, 'desktop.ini~', 'replace');
      localFile(tree, ROOT_INODE, '.#save');
      const { moved } = tree.rename(ROOT_INODE, '.#save', ROOT_INODE, 'desktop.ini', 'replace');
      expect(moved).toMatchObject({ localOnly: false, remote: { resource } });
      checkStore(fixture.store);
    });

    it('a rename to a free local-only name keeps a pushed file pushed, and makes a new file local-only', () => {
      merge(fixture, ROOT_INODE, [file('m', 'macro.txt')]);
      expect(tree.rename(ROOT_INODE, 'macro.txt', ROOT_INODE, '.macro.swp', 'replace').moved).toMatchObject({
        localOnly: false,
        remote: { name: 'macro.txt' },
      });
      expect(tree.rename(ROOT_INODE, 'a', ROOT_INODE, '.a.swp', 'replace').moved).toMatchObject({
        localOnly: true,
        remote: null,
      });
      const empty = mkdir(ROOT_INODE, 'empty');
      expect(tree.rename(ROOT_INODE, 'empty', ROOT_INODE, '._empty', 'replace').moved.localOnly).toBe(true);
      expect(tree.rename(ROOT_INODE, 'b', empty, 'b', 'replace').moved).toMatchObject({ localOnly: true });
      checkStore(fixture.store);
    });

    it('an exchange of a local-only file and a pushed one leaves each name as local-only or pushed as before', () => {
      const here = localFile(tree, ROOT_INODE, '.DS_Store');
      const there = tree.child(ROOT_INODE, 'a') as NodeRecord;
      acknowledge(fixture, there.ino);
      const { resource } = tree.node(there.ino)?.remote ?? {};

      tree.rename(ROOT_INODE, '.DS_Store', ROOT_INODE, 'a', 'exchange');

      expect(tree.child(ROOT_INODE, '.DS_Store')).toMatchObject({ ino: there.ino, localOnly: true, remote: null });
      expect(tree.child(ROOT_INODE, 'a')).toMatchObject({ ino: here.ino, localOnly: false });
      expect(tree.nodeOf(resource as never)).toMatchObject({ local: null });
      checkStore(fixture.store);
    });

    it('a rename from a local-only name over a pushed name is pushed as a save of the replaced file', () => {
      merge(fixture, ROOT_INODE, [file('notes', '_notes')]);
      const old = tree.child(ROOT_INODE, '_notes') as NodeRecord;
      const written = localFile(tree, ROOT_INODE, '._notes.x7Gq2d');

      const { moved } = tree.rename(ROOT_INODE, '._notes.x7Gq2d', ROOT_INODE, '_notes', 'replace');

      expect(moved).toMatchObject({ ino: written.ino, localOnly: false, remote: { resource: old.remote?.resource } });
      expect(fixture.store.get('dirty', written.ino)).toBeDefined();
      expect(tree.node(old.ino)).toBeUndefined();

      const link = localFile(tree, ROOT_INODE, '.#new', 'symlink');
      const made = tree.rename(ROOT_INODE, '.#new', dir, 'new', 'no-replace').moved;
      expect(made).toMatchObject({ ino: link.ino, localOnly: false, remote: null });
      expect(fixture.store.get('dirty', link.ino)).toBeDefined();
      checkStore(fixture.store);
    });
  });
});

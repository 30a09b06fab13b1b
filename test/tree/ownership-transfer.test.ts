import { beforeEach, describe, expect, it } from 'vitest';
import {
  type ContentId,
  type Inode,
  type ResourceUrl,
  ROOT_INODE,
  type VersionUrl,
} from '../../src/base/vocabulary.ts';
import { isContentDirty, isDirty, writeNode } from '../../src/store/node-table.ts';
import type { NodeRecord } from '../../src/store/tables.ts';
import type { Tree } from '../../src/tree/tree.ts';
import {
  acknowledge,
  beginPush,
  checkStore,
  endPush,
  type Fixture,
  file,
  folder,
  localFile,
  makeTree,
  merge,
  namesIn,
} from './tree-fixture.ts';

const URL = file('doc', 'doc').url;

describe('a save keeps the history of its file', () => {
  let fixture: Fixture;
  let tree: Tree;
  let first: Inode;
  let firstContent: ContentId;

  beforeEach(() => {
    fixture = makeTree();
    tree = fixture.tree;
    merge(fixture, ROOT_INODE, [file('doc', 'doc'), folder('d', 'd')]);
    first = tree.child(ROOT_INODE, 'doc')?.ino as Inode;
    // The editor has read it.
    firstContent = fixture.store.transact((tx) => {
      const node = tx.get('node', first);
      if (node?.local == null || node.remote === null) throw new Error('not there');
      const content = fixture.contents.versionContent(tx, `${URL}/version/1` as VersionUrl, URL, 3);
      writeNode(tx, node, { ...node, local: { ...node.local, content }, remote: { ...node.remote, content } }, 0);
      return content;
    });
  });

  const at = (name: string): NodeRecord | undefined => tree.child(ROOT_INODE, name);
  const create = (name: string) => localFile(tree, ROOT_INODE, name).ino;
  const rename = (from: string, to: string) => tree.rename(ROOT_INODE, from, ROOT_INODE, to, 'replace');
  const unlink = (name: string) => tree.remove(ROOT_INODE, name, 'file');
  /** Resources that are to be deleted on the service. */
  const doomed = (): ResourceUrl[] =>
    [...fixture.store.all('node')].flatMap(([, { local, remote }]) =>
      local === null && remote !== null ? [remote.resource] : [],
    );
  const isNextVersion = (ino: Inode | undefined) => {
    expect(ino).toBe(at('doc')?.ino);
    expect(at('doc')?.remote).toMatchObject({ resource: URL, content: firstContent });
    expect(isContentDirty(at('doc') as NodeRecord)).toBe(true);
    expect(fixture.store.get('resource', URL)).toBe(ino);
    expect(doomed()).toEqual([]);
    checkStore(fixture.store);
  };

  it('(a) a new file renamed over it becomes its next version', () => {
    const ino = create('doc.tmp');
    const { replaced } = rename('doc.tmp', 'doc');
    expect(replaced?.ino).toBe(first);
    isNextVersion(ino);
    expect(namesIn(tree, ROOT_INODE)).toEqual(['d/', 'doc']);
  });

  it('(a) also when the new file was pushed a moment ago; that resource is to be deleted, after its bytes have arrived', () => {
    const ino = create('doc.tmp');
    const content = acknowledge(fixture, ino)?.local?.content;
    fixture.clock.advance(59_000);
    rename('doc.tmp', 'doc');
    expect(at('doc')).toMatchObject({ ino, local: { content }, remote: { resource: URL } });
    expect(doomed()).toEqual([`https://service/new/${ino}`]);
    const tombstone = fixture.store.get('resource', `https://service/new/${ino}` as ResourceUrl) as Inode;
    expect(tree.node(tombstone)).toMatchObject({ local: null, remote: { content } });
    checkStore(fixture.store);
  });

  it.each([
    [
      'one that is older than the save window',
      (ino: Inode) => [acknowledge(fixture, ino), fixture.clock.advance(60_000)],
    ],
    [
      'one that somebody else has changed',
      (ino: Inode) => {
        acknowledge(fixture, ino, file('t', 'doc.tmp').url);
        merge(fixture, ROOT_INODE, [file('doc', 'doc'), folder('d', 'd'), file('t', 'doc.tmp', 77)]);
      },
    ],
    ['one whose push is under way', (ino: Inode) => void beginPush(fixture, ino)],
  ])('(a) not for %s: both histories are kept', (_what, happen) => {
    const ino = create('doc.tmp');
    happen(ino);
    const own = tree.node(ino)?.remote ?? null;
    rename('doc.tmp', 'doc');
    expect(tree.node(first)).toMatchObject({ local: null, remote: { resource: URL } });
    expect(at('doc')).toMatchObject({ ino, remote: own });
    expect(doomed()).toEqual([URL]);
    checkStore(fixture.store);
  });

  it('(a) not for a file that came from the service', () => {
    merge(fixture, ROOT_INODE, [file('doc', 'doc'), folder('d', 'd'), file('big', 'big', 1e8)]);
    rename('big', 'doc');
    expect(at('doc')?.remote?.resource).toBe(file('big', 'big').url);
    expect(doomed()).toEqual([URL]);
    expect(isContentDirty(at('doc') as NodeRecord)).toBe(false);
  });

  it('(a) not between a link and a file', () => {
    tree.create(ROOT_INODE, 'tmp', {
      kind: 'symlink',
      mode: 0o777,
      uid: 0,
      gid: 0,
      content: (tx) => fixture.contents.inlineContent(tx, Buffer.from('x')),
    });
    rename('tmp', 'doc');
    expect(at('doc')?.remote).toBeNull();
    expect(doomed()).toEqual([URL]);
    checkStore(fixture.store);
  });

  it('(a) goes on with a push of the old file that is under way', () => {
    const one = create('tmp1');
    rename('tmp1', 'doc');
    const id = beginPush(fixture, one);
    const two = create('tmp2');
    rename('tmp2', 'doc');
    expect(fixture.intents.ownedBy(one)).toBeUndefined();
    expect(fixture.intents.ownedBy(two)).toMatchObject({ id, resource: URL });
    const during = fixture.fence.nextSequence();
    expect(fixture.fence.mayJudge(two, during)).toBe(false);
    endPush(fixture, two);
    expect(fixture.fence.mayJudge(two, during)).toBe(false);
    expect(fixture.fence.mayJudge(two, fixture.fence.nextSequence())).toBe(true);
    isNextVersion(two);
  });

  it('(a) hands on a creation whose answer is not known', () => {
    const one = create('new');
    const id = beginPush(fixture, one);
    const two = create('tmp');
    rename('tmp', 'new');
    expect(fixture.intents.ownedBy(two)?.id).toBe(id);
    expect(fixture.store.get('intent', id)).toMatchObject({ owner: two });
    expect(tree.node(one)).toBeUndefined();
    checkStore(fixture.store);
  });

  it('(b) renamed away and created again: the new one is the next version, the old one a file of its own', () => {
    rename('doc', 'doc~');
    const ino = create('doc');
    isNextVersion(ino);
    expect(at('doc~')).toMatchObject({ ino: first, local: { content: firstContent }, remote: null });
    expect(isDirty(at('doc~') as NodeRecord)).toBe(true);
    unlink('doc~');
    expect([...fixture.store.all('dirty')].map(([dirty]) => dirty)).toEqual([ino]);
    isNextVersion(ino);
  });

  it('(b) renamed away, and another renamed to the name', () => {
    const ino = create('doc.new');
    rename('doc', 'doc~');
    rename('doc.new', 'doc');
    isNextVersion(ino);
    expect(at('doc~')?.remote).toBeNull();
  });

  it('(b) is undone when the old one comes back', () => {
    rename('doc', 'doc~');
    create('doc');
    unlink('doc');
    rename('doc~', 'doc');
    expect(at('doc')).toMatchObject({ ino: first, remote: { resource: URL } });
    expect([...fixture.store.all('dirty')]).toEqual([]);
    checkStore(fixture.store);
  });

  it('(b) not when the bytes of the old one have no name but "the newest of that resource"', () => {
    merge(fixture, ROOT_INODE, [file('doc', 'doc', 4), folder('d', 'd')]);
    rename('doc', 'doc~');
    create('doc');
    expect(at('doc')?.remote).toBeNull();
    expect(at('doc~')?.remote?.resource).toBe(URL);
    checkStore(fixture.store);
  });

  it('(c) deleted and created again', () => {
    unlink('doc');
    isNextVersion(create('doc'));
    expect(tree.node(first)).toBeUndefined();
  });

  it('(c) deleted, and another renamed to the name', () => {
    const ino = create('doc.new');
    unlink('doc');
    rename('doc.new', 'doc');
    isNextVersion(ino);
  });

  it('(b, c) not after the settle time, for another name, another kind, or while its push is under way', () => {
    unlink('doc');
    localFile(tree, ROOT_INODE, 'other');
    localFile(tree, tree.child(ROOT_INODE, 'd')?.ino as Inode, 'doc');
    beginPush(fixture, first);
    const during = create('doc');
    unlink('doc');
    endPush(fixture, first);
    localFile(tree, ROOT_INODE, 'doc', 'folder');
    tree.remove(ROOT_INODE, 'doc', 'folder');
    fixture.clock.advance(2000);
    const late = create('doc');
    for (const ino of [during, late]) expect(tree.node(ino)?.remote ?? null).toBeNull();
    expect(doomed()).toEqual([URL]);
    checkStore(fixture.store);
  });

  it('several saves in a row, in every way, end as one resource with one history', () => {
    for (const save of [
      () => [create('t'), rename('t', 'doc')],
      () => [rename('doc', 'doc~'), create('doc'), unlink('doc~')],
      () => [unlink('doc'), create('doc')],
      () => [create('t'), unlink('doc'), rename('t', 'doc')],
      () => [rename('doc', 'doc.bak'), create('t'), rename('t', 'doc'), unlink('doc.bak')],
    ]) {
      save();
      isNextVersion(at('doc')?.ino);
      fixture.clock.advance(500);
    }
    expect(namesIn(tree, ROOT_INODE)).toEqual(['d/', 'doc']);
    expect([...fixture.store.all('dirty')]).toHaveLength(1);
  });
});

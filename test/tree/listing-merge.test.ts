import { describe, expect, it } from 'vitest';
import type { RemoteEntry } from '../../src/base/resources.ts';
import { type ContentId, type Inode, ROOT_INODE, type VersionUrl } from '../../src/base/vocabulary.ts';
import { isContentDirty, isDirty, isSuspect, writeNode } from '../../src/store/node-table.ts';
import type { NodeRecord } from '../../src/store/tables.ts';
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
  START_MS,
} from './tree-fixture.ts';

const child = (fixture: Fixture, parent: Inode, name: string): NodeRecord => {
  const node = fixture.tree.child(parent, name);
  if (node === undefined) throw new Error(`${name} is not there`);
  return node;
};

/** The file was read: its newest version has a content, as the reader leaves it. */
function pin(fixture: Fixture, ino: Inode): ContentId {
  const { store, contents, clock } = fixture;
  return store.transact((tx) => {
    const node = tx.get('node', ino);
    if (node?.local == null || node.remote === null) throw new Error('nothing to pin');
    const { resource, sizeBytes, modified } = node.remote;
    const version = `${resource}/version/${modified?.ms}` as VersionUrl;
    const content = contents.versionContent(tx, version, resource, sizeBytes ?? 0);
    const after = { ...node, local: { ...node.local, content }, remote: { ...node.remote, content } };
    writeNode(tx, node, after, clock.nowMs());
    return content;
  });
}

/** The file was written here. */
function write(fixture: Fixture, ino: Inode, sizeBytes: number): void {
  const content = fixture.store.transact((tx) => fixture.contents.createDraft(tx, null));
  fixture.tree.change(ino, { content, sizeBytes });
}

describe('one attribute changed here × one changed there', () => {
  // Here and there each start with x in the root and the folders one and two, everything clean and read.
  type Here = 'nothing' | 'written' | 'renamed' | 'moved' | 'deleted';
  type There = 'nothing' | 'written' | 'renamed' | 'moved' | 'deleted';
  /** Where it is · whose bytes · whether something is left to be pushed. */
  const expected: Record<Here, Record<There, string>> = {
    nothing: {
      nothing: 'x same clean',
      written: 'x theirs clean',
      renamed: 'z same clean',
      moved: 'one/x same clean',
      deleted: 'gone clean',
    },
    written: {
      nothing: 'x ours dirty',
      written: 'x ours dirty conflict',
      renamed: 'z ours dirty',
      moved: 'one/x ours dirty',
      deleted: 'x ours dirty new',
    },
    renamed: {
      nothing: 'y same dirty',
      written: 'y theirs dirty',
      renamed: 'y same dirty',
      moved: 'one/y same dirty',
      deleted: 'gone clean',
    },
    moved: {
      nothing: 'two/x same dirty',
      written: 'two/x theirs dirty',
      renamed: 'two/z same dirty',
      moved: 'two/x same dirty',
      // Not in the listed folder any more: the push finds out.
      deleted: 'two/x same dirty',
    },
    deleted: {
      nothing: 'gone dirty',
      written: 'x theirs clean',
      renamed: 'gone dirty',
      moved: 'gone dirty',
      deleted: 'gone dirty',
    },
  };
  const pairs = Object.entries(expected).flatMap(([here, row]) =>
    Object.entries(row).map(([there, result]) => [here as Here, there as There, result] as const),
  );

  it.each(pairs)('%s here, %s there: %s', (here, there, result) => {
    const fixture = makeTree();
    const { tree, fence, store } = fixture;
    const x = file('x', 'x');
    const folders = [folder('one', 'one'), folder('two', 'two')];
    merge(fixture, ROOT_INODE, [...folders, x]);
    const ino = child(fixture, ROOT_INODE, 'x').ino;
    const [one, two] = [child(fixture, ROOT_INODE, 'one').ino, child(fixture, ROOT_INODE, 'two').ino];
    merge(fixture, one, []);
    merge(fixture, two, []);
    const read = pin(fixture, ino);

    if (here === 'written') write(fixture, ino, 7);
    if (here === 'renamed') tree.rename(ROOT_INODE, 'x', ROOT_INODE, 'y', 'replace');
    if (here === 'moved') tree.rename(ROOT_INODE, 'x', two, 'x', 'replace');
    if (here === 'deleted') tree.remove(ROOT_INODE, 'x', 'file');

    const now: Record<There, RemoteEntry[]> = {
      nothing: [x],
      written: [file('x', 'x', 9, START_MS - 10_000)],
      renamed: [file('x', 'z')],
      moved: [],
      deleted: [],
    };
    const listed = there === 'moved' ? [x] : [];
    const outcome = merge(fixture, ROOT_INODE, [...folders, ...now[there]]);
    for (const question of outcome.questions) {
      const answer = there === 'moved' ? { ...x, parent: folders[0]?.url ?? null } : null;
      tree.resolveAbsence(question.ino, answer, fence.nextSequence(), true);
    }
    merge(fixture, one, listed);
    merge(fixture, two, []);

    // What comes back is another inode than what was deleted.
    const node = tree.node(store.get('resource', x.url) ?? ino);
    expect(node?.ino === ino || (here === 'deleted' && there === 'written') || node === undefined).toBe(true);
    const parent = node?.local == null ? null : tree.node(node.local.parent)?.local?.name;
    const place = node?.local == null ? 'gone' : `${parent === '' ? '' : `${parent}/`}${node.local.name}`;
    const bytes =
      node?.local == null ? '' : node.local.content === read ? ' same' : isContentDirty(node) ? ' ours' : ' theirs';
    const state = node !== undefined && isDirty(node) ? 'dirty' : 'clean';
    // The remote facet still says what ours was made over: that is how the push knows theirs in the history.
    const isForeign = bytes === ' ours' && there === 'written' && node?.remote?.content === read;
    const extra = node?.local != null && node.remote === null ? ' new' : isForeign ? ' conflict' : '';
    expect(`${place}${bytes} ${state}${extra}`).toBe(result);
    if (bytes === ' theirs') expect(node?.local).toMatchObject({ sizeBytes: 9, content: null });
    expect([...store.all('resource')].filter(([url]) => url === x.url).length).toBe(node?.remote == null ? 0 : 1);
    checkStore(store);

    // What was merged once says nothing new the second time.
    const forgotten = fixture.forgotten.length;
    if (there !== 'deleted') {
      const again = merge(
        fixture,
        there === 'moved' ? one : ROOT_INODE,
        there === 'moved' ? [x] : [...folders, ...now[there]],
      );
      expect(again.changes).toBe(0);
      expect(fixture.forgotten).toHaveLength(forgotten);
    }
  });
});

describe('names that the kernel may have cached as absent', () => {
  it('are none in a first listing: one notification stands for all of its entries', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, [folder('d', 'd')]);
    const { ino } = child(fixture, ROOT_INODE, 'd');
    fixture.forgotten.length = 0;
    merge(fixture, ino, [file('1', 'a'), file('2', 'b')]);
    expect(fixture.forgotten).toEqual([{ kind: 'first-entries', parent: ino }]);
    merge(fixture, ino, [file('1', 'a'), file('2', 'b'), file('3', 'c')]);
    expect(fixture.forgotten).toContainEqual({ kind: 'entry', parent: ino, name: 'c' });
  });

  it('are forgotten one by one by the first listing of a folder that was created here and elsewhere', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, []);
    const { ino } = localFile(fixture.tree, ROOT_INODE, 'd', 'folder');
    merge(fixture, ROOT_INODE, [folder('d', 'd')]);
    expect(fixture.tree.isComplete(ino)).toBe(false);
    fixture.forgotten.length = 0;
    merge(fixture, ino, [file('1', 'a')]);
    expect(fixture.forgotten).toContainEqual({ kind: 'entry', parent: ino, name: 'a' });
  });
});

describe('created here and there', () => {
  it('makes one of two files: ours is to become the next version of theirs', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, []);
    const ours = localFile(fixture.tree, ROOT_INODE, 'x');
    merge(fixture, ROOT_INODE, [file('theirs', 'x')]);
    const node = child(fixture, ROOT_INODE, 'x');
    expect(node).toMatchObject({ ino: ours.ino, remote: { resource: file('theirs', 'x').url, content: null } });
    expect(isContentDirty(node)).toBe(true);
    checkStore(fixture.store);
  });

  it('makes one of two folders, whose entries there are not known yet', () => {
    const fixture = makeTree();
    const { tree } = fixture;
    merge(fixture, ROOT_INODE, []);
    const ours = localFile(tree, ROOT_INODE, 'd', 'folder').ino;
    localFile(tree, ours, 'a');
    merge(fixture, ROOT_INODE, [folder('d', 'd')]);
    expect(child(fixture, ROOT_INODE, 'd').ino).toBe(ours);
    expect(tree.isComplete(ours)).toBe(false);
    merge(fixture, ours, [file('b', 'b')]);
    expect(namesIn(tree, ours)).toEqual(['a', 'b']);
    checkStore(fixture.store);
  });

  it('keeps a file and a folder apart', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, []);
    localFile(fixture.tree, ROOT_INODE, 'x');
    merge(fixture, ROOT_INODE, [folder('x', 'x')]);
    expect(namesIn(fixture.tree, ROOT_INODE)).toEqual(['x', 'x (2)/']);
    checkStore(fixture.store);
  });
});

describe('names from the service', () => {
  const namesAfter = (...listings: RemoteEntry[][]): string[] => {
    const fixture = makeTree();
    for (const listing of listings) {
      merge(fixture, ROOT_INODE, listing);
      checkStore(fixture.store);
    }
    return [...fixture.tree.children(ROOT_INODE)].map(
      ({ name, node }) => `${name}=${node.remote?.resource.split('/').at(-1)}`,
    );
  };

  it('shows stubs as empty, links as links', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, [
      file('s', 'stub', null),
      { ...file('l', 'link'), mediaType: 'inode/symlink' },
      folder('d', 'd'),
    ]);
    expect(child(fixture, ROOT_INODE, 'stub').local).toMatchObject({ sizeBytes: 0, mode: 0o644, uid: 1000 });
    expect(child(fixture, ROOT_INODE, 'link')).toMatchObject({ kind: 'symlink', local: { mode: 0o777, sizeBytes: 3 } });
    expect(child(fixture, ROOT_INODE, 'd')).toMatchObject({ kind: 'folder', local: { mode: 0o755 } });
    merge(fixture, ROOT_INODE, [
      file('s', 'stub', 5),
      { ...file('l', 'link'), mediaType: 'inode/symlink' },
      folder('d', 'd'),
    ]);
    expect(child(fixture, ROOT_INODE, 'stub').local).toMatchObject({ sizeBytes: 5, content: null });
  });

  it('duplicate names are numbered by address, in any order of the listing', () => {
    const [a, b, c] = [file('1', 'a.txt'), file('2', 'a.txt'), file('3', 'a.txt')];
    const all = ['a (2).txt=2', 'a (3).txt=3', 'a.txt=1'];
    expect(namesAfter([a, b, c])).toEqual(all);
    expect(namesAfter([c, b, a])).toEqual(all);
    expect(namesAfter([c], [c, b], [b, a, c])).toEqual(all);
    expect(namesAfter([a, b, c], [c, b, a])).toEqual(all);
    // The first goes: a machine that never saw it shows the same.
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, [a, b, c]);
    const { questions } = merge(fixture, ROOT_INODE, [b, c]);
    for (const { ino } of questions) fixture.tree.resolveAbsence(ino, null, fixture.fence.nextSequence(), true);
    merge(fixture, ROOT_INODE, [b, c]);
    expect(namesIn(fixture.tree, ROOT_INODE)).toEqual(['a (2).txt', 'a.txt']);
    expect(namesAfter([b, c])).toEqual(['a (2).txt=3', 'a.txt=2']);
  });

  it('numbers by address, too, what was moved beside another of its name, which nobody had listed for a while', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    merge(fixture, ROOT_INODE, [folder('d', 'd'), file('2', 'x')]);
    const d = child(fixture, ROOT_INODE, 'd').ino;
    merge(fixture, d, [file('1', 'x')]);
    const moved = child(fixture, ROOT_INODE, 'x').ino;
    const answer = { ...file('2', 'x'), parent: folder('d', 'd').url };
    expect(tree.resolveAbsence(moved, answer, fence.nextSequence(), true)).toBe('moved');
    merge(fixture, d, [file('1', 'x'), file('2', 'x')]);
    expect(namesIn(tree, d)).toEqual(['x', 'x (2)']);
    tree.remove(d, 'x', 'file');
    merge(fixture, d, [file('1', 'x'), file('2', 'x')]);
    expect(namesIn(tree, d)).toEqual(['x (2)']);
    merge(fixture, d, [file('2', 'x')]);

    expect(namesIn(tree, d)).toEqual(['x']);
    checkStore(fixture.store);
  });

  it('never takes the plain name of another for a number', () => {
    expect(namesAfter([file('1', 'a'), file('2', 'a'), file('3', 'a (2)')])).toEqual(['a=1', 'a (2)=3', 'a (3)=2']);
  });

  it('leaves differences of case visible', () => {
    expect(namesAfter([file('1', 'a'), file('2', 'A')])).toEqual(['A=2', 'a=1']);
  });

  it('follows swapped names, circles and chains', () => {
    const before = ['1', '2', '3', '4'].map((id) => file(id, `n${id}`));
    expect(namesAfter(before, [file('1', 'n2'), file('2', 'n1'), file('3', 'n3'), file('4', 'n4')])).toEqual([
      'n1=2',
      'n2=1',
      'n3=3',
      'n4=4',
    ]);
    expect(namesAfter(before, [file('1', 'n2'), file('2', 'n3'), file('3', 'n1'), file('4', 'n4')])).toEqual([
      'n1=3',
      'n2=1',
      'n3=2',
      'n4=4',
    ]);
    expect(namesAfter(before, [file('1', 'n2'), file('2', 'n3'), file('3', 'n4'), file('4', 'n5')])).toEqual([
      'n2=1',
      'n3=2',
      'n4=3',
      'n5=4',
    ]);
  });

  it('follows names that are swapped across a thousand entries', () => {
    const many = Array.from({ length: 1200 }, (_, i) => file(`m${i}`, `m${i}`));
    const swapped = many.map((entry, i) => ({ ...entry, name: `m${1199 - i}` }));
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, many);
    merge(fixture, ROOT_INODE, swapped);
    for (const { name, node } of fixture.tree.children(ROOT_INODE)) expect(node.remote?.name).toBe(name);
    expect(namesIn(fixture.tree, ROOT_INODE)).toHaveLength(1200);
  });

  it('waits with a name until it is known what became of its holder', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    const replacement = file('new', 'a');
    merge(fixture, ROOT_INODE, [file('old', 'a')]);
    const outcome = merge(fixture, ROOT_INODE, [replacement]);
    expect(outcome.postponed).toEqual([replacement]);
    expect(outcome.questions).toHaveLength(1);
    tree.resolveAbsence(outcome.questions[0]?.ino as Inode, null, fence.nextSequence(), true);
    tree.mergePart(ROOT_INODE, outcome.postponed, fence.nextSequence(), START_MS, null);
    expect(child(fixture, ROOT_INODE, 'a').remote?.resource).toBe(replacement.url);
    expect(namesIn(tree, ROOT_INODE)).toEqual(['a']);
    checkStore(fixture.store);
  });

  it('brings a folder back that was deleted here while something new came into it', () => {
    const fixture = makeTree();
    const { tree } = fixture;
    merge(fixture, ROOT_INODE, [folder('a', 'a')]);
    const a = child(fixture, ROOT_INODE, 'a').ino;
    merge(fixture, a, [folder('b', 'b')]);
    const b = child(fixture, a, 'b').ino;
    merge(fixture, b, []);
    tree.remove(a, 'b', 'folder');
    tree.remove(ROOT_INODE, 'a', 'folder');
    merge(fixture, b, []);
    expect(tree.node(b)?.local).toBeNull();
    merge(fixture, b, [file('new', 'new')]);
    expect(namesIn(tree, ROOT_INODE)).toEqual(['a/']);
    expect(namesIn(tree, b)).toEqual(['new']);
    expect([...fixture.store.all('dirty')]).toEqual([]);
    checkStore(fixture.store);
  });
});

describe('absence', () => {
  it('a missing entry is a question, not a removal', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, [file('1', 'a'), file('2', 'b')]);
    const outcome = merge(fixture, ROOT_INODE, [file('2', 'b')]);
    expect(outcome.questions.map(({ resource }) => resource)).toEqual([file('1', 'a').url]);
    expect(namesIn(fixture.tree, ROOT_INODE)).toEqual(['a', 'b']);
    const answer = { ...file('1', 'a'), parent: fixture.tree.node(ROOT_INODE)?.remote?.resource ?? null };
    const a = child(fixture, ROOT_INODE, 'a').ino;
    expect(fixture.tree.resolveAbsence(a, answer, fixture.fence.nextSequence(), true)).toBe('kept');
    expect(namesIn(fixture.tree, ROOT_INODE)).toEqual(['a', 'b']);
  });

  it('the removal of a folder removes clean nodes and recreates changed ones', () => {
    const fixture = makeTree();
    const { tree, fence, store } = fixture;
    merge(fixture, ROOT_INODE, [folder('d', 'd'), folder('e', 'e'), file('m', 'mine')]);
    const d = child(fixture, ROOT_INODE, 'd').ino;
    const e = child(fixture, ROOT_INODE, 'e').ino;
    merge(fixture, d, [folder('s', 's'), file('1', 'clean'), file('2', 'written')]);
    merge(fixture, e, [file('3', 'clean')]);
    const lockInE = localFile(tree, e, '.clean.swp').ino;
    const s = child(fixture, d, 's').ino;
    merge(fixture, s, [file('4', 'deep')]);
    write(fixture, child(fixture, d, 'written').ino, 5);
    const made = localFile(tree, s, 'made here').ino;
    const lock = localFile(tree, d, '.lock.swp').ino;
    tree.rename(ROOT_INODE, 'mine', d, 'moved in', 'replace');

    expect(tree.resolveAbsence(d, null, fence.nextSequence(), true)).toBe('kept');
    expect(tree.resolveAbsence(e, null, fence.nextSequence(), true)).toBe('removed');
    expect(namesIn(tree, ROOT_INODE)).toEqual(['d/']);
    expect(namesIn(tree, d)).toEqual(['.lock.swp', 'moved in', 's/', 'written']);
    expect(namesIn(tree, s)).toEqual(['made here']);
    expect(tree.node(d)?.remote).toBeNull();
    expect(tree.node(s)?.remote).toBeNull();
    expect(child(fixture, d, 'written').remote).toBeNull();
    expect(child(fixture, d, 'moved in').remote?.resource).toBe(file('m', 'mine').url);
    expect(tree.node(lock)).toBeDefined();
    expect(tree.node(lockInE)).toBeUndefined();
    expect(store.get('dirty', made)).toBeDefined();
    expect(store.get('dirty', d)).toBeDefined();
    checkStore(store);
  });

  it('a file that moved into a folder deleted here brings that folder back', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    const [d, x] = [folder('d', 'd'), file('x', 'x')];
    merge(fixture, ROOT_INODE, [d, x]);
    merge(fixture, child(fixture, ROOT_INODE, 'd').ino, []);
    tree.remove(ROOT_INODE, 'd', 'folder');
    const { ino } = child(fixture, ROOT_INODE, 'x');
    expect(tree.resolveAbsence(ino, { ...x, parent: d.url }, fence.nextSequence(), true)).toBe('moved');
    expect(namesIn(tree, ROOT_INODE)).toEqual(['d/']);
    expect(namesIn(tree, child(fixture, ROOT_INODE, 'd').ino)).toEqual(['x']);
    checkStore(fixture.store);
  });

  it('the removal of a folder keeps nodes that are being pushed, and their folder', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    merge(fixture, ROOT_INODE, [folder('d', 'd')]);
    const d = child(fixture, ROOT_INODE, 'd').ino;
    merge(fixture, d, [file('1', 'busy'), file('2', 'idle')]);
    const busy = child(fixture, d, 'busy');
    beginPush(fixture, busy.ino);
    expect(tree.resolveAbsence(d, null, fence.nextSequence(), true)).toBe('kept');
    expect(namesIn(tree, d)).toEqual(['busy']);
    expect(tree.node(busy.ino)).toEqual(busy);
    expect(tree.node(d)?.remote).toBeNull();
    checkStore(fixture.store);
  });

  it('the removal of more than a hundred nodes at once needs confirmation', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    merge(fixture, ROOT_INODE, [folder('d', 'd')]);
    const d = child(fixture, ROOT_INODE, 'd').ino;
    merge(
      fixture,
      d,
      Array.from({ length: 1100 }, (_, i) => file(`f${i}`, `f${i}`)),
    );
    expect(tree.resolveAbsence(d, null, fence.nextSequence(), false)).toBe('held');
    expect(namesIn(tree, d)).toHaveLength(1100);
    expect(tree.resolveAbsence(d, null, fence.nextSequence(), true)).toBe('removed');
    expect(namesIn(tree, ROOT_INODE)).toEqual([]);
    checkStore(fixture.store);
  });

  it('the root is never removed', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, [file('1', 'a')]);
    expect(fixture.tree.resolveAbsence(ROOT_INODE, null, fixture.fence.nextSequence(), true)).toBe('held');
    expect(namesIn(fixture.tree, ROOT_INODE)).toEqual(['a']);
  });

  it('a file that moved to an unknown folder leaves, and appears when that folder is listed', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    merge(fixture, ROOT_INODE, [folder('d', 'd'), file('1', 'a')]);
    const a = child(fixture, ROOT_INODE, 'a').ino;
    const answer = { ...file('1', 'a'), parent: folder('unseen', 'unseen').url };
    expect(tree.resolveAbsence(a, answer, fence.nextSequence(), true)).toBe('removed');
    const d = child(fixture, ROOT_INODE, 'd').ino;
    merge(fixture, d, [folder('unseen', 'unseen')]);
    merge(fixture, child(fixture, d, 'unseen').ino, [file('1', 'a')]);
    expect(namesIn(tree, child(fixture, d, 'unseen').ino)).toEqual(['a']);
  });
});

describe('phantoms', () => {
  it('a listing requested before a push and delivered after its acknowledgement changes nothing', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    const before = [
      folder('d', 'd'),
      file('r', 'renamed'),
      file('m', 'moved'),
      file('g', 'gone'),
      file('w', 'written'),
    ];
    merge(fixture, ROOT_INODE, before);
    const d = child(fixture, ROOT_INODE, 'd').ino;
    merge(fixture, d, []);
    tree.rename(ROOT_INODE, 'renamed', ROOT_INODE, 'other', 'replace');
    tree.rename(ROOT_INODE, 'moved', d, 'moved', 'replace');
    const { removed } = tree.remove(ROOT_INODE, 'gone', 'file');
    const written = child(fixture, ROOT_INODE, 'written').ino;
    write(fixture, written, 99);
    const made = localFile(tree, ROOT_INODE, 'made').ino;
    const pushed = [
      child(fixture, ROOT_INODE, 'other').ino,
      child(fixture, d, 'moved').ino,
      removed.ino,
      written,
      made,
    ];

    const [sequence, sequenceOfD] = [fence.nextSequence(), fence.nextSequence()];
    for (const ino of pushed) beginPush(fixture, ino);
    for (const ino of pushed) acknowledge(fixture, ino);
    for (const ino of pushed) endPush(fixture, ino);
    const nodes = [...fixture.store.all('node')];
    const outcome = merge(fixture, ROOT_INODE, before, sequence);
    const outcomeOfD = merge(fixture, d, [], sequenceOfD);
    expect([outcome.changes, outcomeOfD.changes]).toEqual([0, 0]);
    expect([outcome.questions, outcomeOfD.questions]).toEqual([[], []]);
    expect([...fixture.store.all('node')]).toEqual(nodes);
    fence.finish(sequence);
    fence.finish(sequenceOfD);

    // One that is requested now is believed: all was undone elsewhere.
    const later = merge(fixture, ROOT_INODE, before);
    expect(later.changes).toBeGreaterThan(0);
    checkStore(fixture.store);
  });

  it('a listing is not valid for a node with an open intent', () => {
    const fixture = makeTree();
    const { tree } = fixture;
    merge(fixture, ROOT_INODE, [file('a', 'a'), file('b', 'b')]);
    const [a, b] = [child(fixture, ROOT_INODE, 'a').ino, child(fixture, ROOT_INODE, 'b').ino];
    beginPush(fixture, a);
    beginPush(fixture, b);
    const outcome = merge(fixture, ROOT_INODE, [file('a', 'a', 10, START_MS - 5000)]);
    expect(outcome).toEqual({ changes: 0, questions: [], isTakenBack: false, postponed: [] });
    endPush(fixture, a);
    endPush(fixture, b);
    expect(merge(fixture, ROOT_INODE, [file('a', 'a', 10, START_MS - 5000)])).toMatchObject({ changes: 1 });
    expect(tree.node(a)?.local?.sizeBytes).toBe(10);
  });

  it('what a creation without an answer may have made is nobody else’s file', () => {
    const fixture = makeTree();
    const { tree, store, intents } = fixture;
    merge(fixture, ROOT_INODE, []);
    const ours = localFile(tree, ROOT_INODE, 'new').ino;
    const parentResource = tree.node(ROOT_INODE)?.remote?.resource ?? null;
    const started = {
      owner: ours,
      action: 'create-file',
      parentResource,
      name: 'new',
      resource: null,
      content: null,
    } as const;
    store.transact((tx) => intents.begin(tx, started, 0));
    tree.rename(ROOT_INODE, 'new', ROOT_INODE, 'renamed since', 'replace');
    expect(merge(fixture, ROOT_INODE, [file('made', 'new', null)])).toMatchObject({ changes: 0, questions: [] });
    expect(namesIn(tree, ROOT_INODE)).toEqual(['renamed since']);
    expect(tree.node(ours)?.remote).toBeNull();
  });
});

describe('a time that is too young', () => {
  const listAt = (fixture: Fixture, serverTimeMs: number, entries: RemoteEntry[]) =>
    fixture.tree.merge(ROOT_INODE, entries, fixture.fence.nextSequence(), fixture.clock.nowMs(), serverTimeMs);

  it('a racy time is requested again once it has aged, once', () => {
    const fixture = makeTree();
    const entry = file('a', 'a', 3, START_MS);
    listAt(fixture, START_MS + 500, [entry]);
    const { ino, local } = child(fixture, ROOT_INODE, 'a');
    expect(local?.mtime).toEqual({ sec: START_MS / 1000, nsec: 0 });
    pin(fixture, ino);
    // Still young: nothing to learn. Then: whether these are the newest bytes only the history tells; without it they stay here.
    expect(listAt(fixture, START_MS + 1500, [entry]).changes).toBe(0);
    const content = fixture.tree.node(ino)?.local?.content;
    expect(listAt(fixture, START_MS + 30_000, [entry]).changes).toBe(1);
    const doubted = child(fixture, ROOT_INODE, 'a');
    expect([doubted.local?.content, doubted.remote?.content, isSuspect(doubted)]).toEqual([content, content, true]);
    expect(fixture.forgotten.at(-1)).toMatchObject({ kind: 'inode', was: { content } });
    expect(listAt(fixture, START_MS + 60_000, [entry]).changes).toBe(0);
    // Another time settles it, and so does somebody who asks (test/fs/doubt.test.ts).
    expect(listAt(fixture, START_MS + 90_000, [file('a', 'a', 3, START_MS + 1000)]).changes).toBe(1);
    expect(fixture.tree.node(ino)?.local?.content).toBeNull();
  });

  it('changes nothing that can be seen about a file that nobody has read', () => {
    const fixture = makeTree();
    const entry = file('a', 'a', 3, START_MS);
    listAt(fixture, START_MS + 500, [entry]);
    const { local } = child(fixture, ROOT_INODE, 'a');
    fixture.forgotten.length = 0;
    listAt(fixture, START_MS + 30_000, [entry]);
    expect(child(fixture, ROOT_INODE, 'a')).toMatchObject({
      local,
      remote: { modified: { ms: START_MS, certainty: 'exact' } },
    });
    expect(fixture.forgotten).toEqual([]);
  });

  it('brings nothing back that was deleted here', () => {
    const fixture = makeTree();
    const entry = file('a', 'a', 3, START_MS);
    listAt(fixture, START_MS + 500, [entry]);
    fixture.tree.remove(ROOT_INODE, 'a', 'file');
    listAt(fixture, START_MS + 30_000, [entry]);
    expect(namesIn(fixture.tree, ROOT_INODE)).toEqual([]);
  });

  it('a racy time of our own push is accepted while no other client is active', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, []);
    const { ino } = localFile(fixture.tree, ROOT_INODE, 'a');
    const url = file('a', 'a').url;
    const content = acknowledge(fixture, ino, url)?.local?.content;
    const forgotten = fixture.forgotten.length;
    listAt(fixture, START_MS + 500, [file('a', 'a', 0, START_MS)]);
    const modified = { ms: START_MS, certainty: 'exact' };
    expect(fixture.tree.node(ino)).toMatchObject({ local: { content }, remote: { content, modified } });
    expect(fixture.forgotten.length).toBe(forgotten);
    expect(listAt(fixture, START_MS + 30_000, [file('a', 'a', 0, START_MS)]).changes).toBe(0);
  });

  it('a young time of our own push needs revalidation while another client is active', () => {
    const fixture = makeTree();
    merge(fixture, ROOT_INODE, []);
    const { ino } = localFile(fixture.tree, ROOT_INODE, 'a');
    const content = acknowledge(fixture, ino, file('a', 'a').url)?.local?.content;
    merge(fixture, ROOT_INODE, [{ ...file('a', 'a', 0), lastModifiedMs: null }, file('b', 'of somebody else')]);

    listAt(fixture, START_MS + 500, [file('a', 'a', 0, START_MS), file('b', 'of somebody else')]);

    const node = fixture.tree.node(ino);
    expect(node).toMatchObject({ local: { content }, remote: { content } });
    expect(node !== undefined && isSuspect(node)).toBe(true);
  });
});

describe('folders that were moved into each other', () => {
  it('one here, one there: theirs stands, ours goes back, nothing is left to be pushed', () => {
    const fixture = makeTree();
    const { tree } = fixture;
    const [a, b] = [folder('a', 'A'), folder('b', 'B')];
    merge(fixture, ROOT_INODE, [a, b]);
    const [ours, theirs] = [child(fixture, ROOT_INODE, 'A'), child(fixture, ROOT_INODE, 'B')];
    merge(fixture, ours.ino, [file('1', 'in A')]);
    merge(fixture, theirs.ino, [file('2', 'in B')]);
    tree.rename(ROOT_INODE, 'A', theirs.ino, 'A', 'replace');

    merge(fixture, ours.ino, [file('1', 'in A'), b]);

    expect(namesIn(tree, ROOT_INODE)).toEqual(['A/']);
    expect(namesIn(tree, ours.ino)).toEqual(['B/', 'in A']);
    expect(namesIn(tree, theirs.ino)).toEqual(['in B']);
    expect([...fixture.store.all('dirty')]).toEqual([]);
    checkStore(fixture.store);
  });

  it('further down, and where its old name is taken by now', () => {
    const fixture = makeTree();
    const { tree } = fixture;
    const [a, b, below] = [folder('a', 'A'), folder('b', 'B'), folder('below', 'below')];
    merge(fixture, ROOT_INODE, [a, b]);
    const [ours, theirs] = [child(fixture, ROOT_INODE, 'A'), child(fixture, ROOT_INODE, 'B')];
    merge(fixture, ours.ino, [below]);
    merge(fixture, theirs.ino, []);
    tree.rename(ROOT_INODE, 'A', theirs.ino, 'moved', 'replace');
    localFile(tree, ROOT_INODE, 'A');

    merge(fixture, child(fixture, ours.ino, 'below').ino, [b]);

    expect(namesIn(tree, ROOT_INODE)).toEqual(['A', 'A (2)/']);
    expect(namesIn(tree, child(fixture, ours.ino, 'below').ino)).toEqual(['B/']);
    checkStore(fixture.store);
  });

  it('out of a folder that is gone meanwhile: nothing is put where nobody sees it', () => {
    const fixture = makeTree();
    const { tree, fence } = fixture;
    const [a, b, home] = [folder('a', 'A'), folder('b', 'B'), folder('home', 'home')];
    merge(fixture, ROOT_INODE, [b, home]);
    const [theirs, gone] = [child(fixture, ROOT_INODE, 'B'), child(fixture, ROOT_INODE, 'home')];
    merge(fixture, gone.ino, [a]);
    merge(fixture, theirs.ino, []);
    const ours = child(fixture, gone.ino, 'A');
    merge(fixture, ours.ino, []);
    tree.rename(gone.ino, 'A', theirs.ino, 'A', 'replace');
    tree.resolveAbsence(gone.ino, null, fence.nextSequence(), true);

    merge(fixture, ours.ino, [b]);

    expect(namesIn(tree, ROOT_INODE)).toEqual(['B/']);
    expect(namesIn(tree, theirs.ino)).toEqual(['A/']);
    checkStore(fixture.store);
  });
});

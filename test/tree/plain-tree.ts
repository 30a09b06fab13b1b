import fc from 'fast-check';
import { expect } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { Tree } from '../../src/tree/tree.ts';
import { acknowledge, type Fixture, localFile } from './tree-fixture.ts';

/** A tree as a person would write it down: names to files and folders. The definition of what the namespace operations do. */
type Model =
  | { readonly kind: 'file'; readonly id: number }
  | { readonly kind: 'folder'; readonly id: number; readonly entries: Map<string, Model> };
type Folder = Extract<Model, { kind: 'folder' }>;

const NAMES = ['a', 'b', 'c'];
const path = fc.array(fc.constantFrom(...NAMES), { minLength: 1, maxLength: 3 });
export const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ act: fc.constant('create' as const), at: path }) },
  { weight: 5, arbitrary: fc.record({ act: fc.constant('mkdir' as const), at: path }) },
  { weight: 2, arbitrary: fc.record({ act: fc.constantFrom('unlink' as const, 'rmdir' as const), at: path }) },
  {
    weight: 5,
    arbitrary: fc.record({
      act: fc.constant('rename' as const),
      at: path,
      to: path,
      mode: fc.constantFrom('replace' as const, 'no-replace' as const, 'exchange' as const),
    }),
  },
  // What the sync did meanwhile must not be seen in names.
  { weight: 2, arbitrary: fc.record({ act: fc.constant('push' as const), part: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ act: fc.constant('wait' as const), ms: fc.constantFrom(10, 3000, 100_000) }) },
);

export type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

class Refused extends Error {
  readonly errno: string;
  constructor(errno: string) {
    super(errno);
    this.errno = errno;
  }
}

function folderOf(root: Folder, at: readonly string[]): Folder {
  let folder: Model = root;
  for (const name of at.slice(0, -1)) {
    if (folder.kind !== 'folder') throw new Refused('ENOTDIR');
    const next = folder.entries.get(name);
    if (next === undefined) throw new Refused('ENOENT');
    folder = next;
  }
  if (folder.kind !== 'folder') throw new Refused('ENOTDIR');
  return folder;
}

const holds = (tree: Model, other: Model): boolean =>
  tree === other || (tree.kind === 'folder' && [...tree.entries.values()].some((entry) => holds(entry, other)));

function actOnModel(root: Folder, act: Step, id: number): void {
  switch (act.act) {
    case 'create':
    case 'mkdir': {
      const folder = folderOf(root, act.at);
      const name = act.at.at(-1) as string;
      if (folder.entries.has(name)) throw new Refused('EEXIST');
      folder.entries.set(
        name,
        act.act === 'create' ? { kind: 'file', id } : { kind: 'folder', id, entries: new Map() },
      );
      return;
    }
    case 'unlink':
    case 'rmdir': {
      const folder = folderOf(root, act.at);
      const name = act.at.at(-1) as string;
      const entry = folder.entries.get(name);
      if (entry === undefined) throw new Refused('ENOENT');
      if (act.act === 'unlink' && entry.kind === 'folder') throw new Refused('EISDIR');
      if (act.act === 'rmdir' && entry.kind === 'file') throw new Refused('ENOTDIR');
      if (entry.kind === 'folder' && entry.entries.size > 0) throw new Refused('ENOTEMPTY');
      folder.entries.delete(name);
      return;
    }
    case 'rename': {
      const from = folderOf(root, act.at);
      const to = folderOf(root, act.to);
      const [name, newName] = [act.at.at(-1) as string, act.to.at(-1) as string];
      const source = from.entries.get(name);
      const target = to.entries.get(newName);
      if (source === undefined) throw new Refused('ENOENT');
      if (act.mode === 'no-replace' && target !== undefined) throw new Refused('EEXIST');
      if (act.mode === 'exchange' && target === undefined) throw new Refused('ENOENT');
      if (source === target) return;
      if (holds(source, to)) throw new Refused('EINVAL');
      if (act.mode === 'exchange') {
        if (target !== undefined && holds(target, from)) throw new Refused('EINVAL');
        from.entries.set(name, target as Model);
      } else {
        if (target?.kind === 'folder' && source.kind === 'file') throw new Refused('EISDIR');
        if (target?.kind === 'file' && source.kind === 'folder') throw new Refused('ENOTDIR');
        if (target?.kind === 'folder' && target.entries.size > 0) throw new Refused('ENOTEMPTY');
        from.entries.delete(name);
      }
      to.entries.set(newName, source);
      return;
    }
    default:
  }
}

/** The same on the tree, with the path resolved as the kernel does. */
function actOnTree(fixture: Fixture, act: Step, inodes: Map<number, Inode>, id: number): void {
  const { tree } = fixture;
  const parentOf = (at: readonly string[]): Inode => {
    let ino = ROOT_INODE;
    for (const name of at.slice(0, -1)) {
      if (tree.node(ino)?.kind !== 'folder') throw new FsError('ENOTDIR');
      const child = tree.child(ino, name);
      if (child === undefined) throw new FsError('ENOENT');
      ino = child.ino;
    }
    if (tree.node(ino)?.kind !== 'folder') throw new FsError('ENOTDIR');
    return ino;
  };
  switch (act.act) {
    case 'create':
    case 'mkdir':
      inodes.set(
        id,
        localFile(tree, parentOf(act.at), act.at.at(-1) as string, act.act === 'create' ? 'file' : 'folder').ino,
      );
      return;
    case 'unlink':
    case 'rmdir':
      tree.remove(parentOf(act.at), act.at.at(-1) as string, act.act === 'unlink' ? 'file' : 'folder');
      return;
    case 'rename': {
      const parent = parentOf(act.at);
      tree.rename(parent, act.at.at(-1) as string, parentOf(act.to), act.to.at(-1) as string, act.mode);
      return;
    }
    case 'push': {
      // A part of what is dirty, parents first (a child's resource needs its folder's), deletions last.
      const dirty = [...fixture.store.all('dirty')].map(([ino]) => ino);
      for (const ino of dirty.slice(act.part)) {
        const node = tree.node(ino);
        const parent = node?.local === null ? undefined : tree.node(node?.local?.parent as Inode);
        const isTombstoneInUse =
          node?.local === null && [...fixture.store.all('node')].some(([, other]) => other.remote?.parent === ino);
        if (node !== undefined && parent?.remote !== null && !isTombstoneInUse) acknowledge(fixture, ino, undefined);
      }
      return;
    }
    case 'wait':
      fixture.clock.advance(act.ms);
      return;
    default:
      act satisfies never;
  }
}

/** A plain tree and a `Tree`, acted on together. */
export class TwoTrees {
  readonly fixture: Fixture;
  readonly #root: Folder = { kind: 'folder', id: 0, entries: new Map() };
  readonly #inodes = new Map<number, Inode>([[0, ROOT_INODE]]);
  #count = 0;

  constructor(fixture: Fixture) {
    this.fixture = fixture;
  }

  /** Acts on both. Fails when they refuse in different ways. */
  act(step: Step): void {
    this.#count += 1;
    let expected: string | null = null;
    let got: string | null = null;
    try {
      actOnModel(this.#root, step, this.#count);
    } catch (error) {
      expected = (error as Refused).errno;
    }
    try {
      actOnTree(this.fixture, step, this.#inodes, this.#count);
    } catch (error) {
      if (!(error instanceof FsError)) throw error;
      got = error.errno;
    }
    expect(got, JSON.stringify(step)).toBe(expected);
  }

  /** Fails when `tree` does not show what the plain tree has: names, kinds, and inodes as they were given. */
  compare(tree: Tree, folder = this.#root, ino = ROOT_INODE): void {
    const entries = [...tree.children(ino)];
    expect(entries.map(({ name }) => name)).toEqual([...folder.entries.keys()].sort());
    for (const { name, node } of entries) {
      const model = folder.entries.get(name) as Model;
      expect([node.kind, node.ino]).toEqual([model.kind, this.#inodes.get(model.id)]);
      if (model.kind === 'folder') this.compare(tree, model, node.ino);
    }
  }
}

import { FsError } from '../base/errors.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Answer, Entry, OpContext } from '../kernel/binding.ts';
import type { LocalFacet } from '../store/tables.ts';
import type { Tree } from '../tree/tree.ts';
import type { NodeView } from './node-view.ts';
import type { OpenFiles } from './open-files.ts';
import { groupIn, modeIn } from './set-id-bits.ts';

/**
 * O_TMPFILE files until linkat(2) names them: the only files for which link(2) succeeds. They exist in memory alone; their bytes are
 * collected after the last close, or at the next start.
 */
export class TemporaryFiles {
  readonly #tree: Tree;
  readonly #view: NodeView;
  readonly #files: OpenFiles;
  readonly #nameless = new Set<Inode>();

  constructor(deps: { tree: Tree; view: NodeView; files: OpenFiles }) {
    this.#tree = deps.tree;
    this.#view = deps.view;
    this.#files = deps.files;
  }

  has(ino: Inode): boolean {
    return this.#nameless.has(ino);
  }

  /** A nameless file of an earlier process. */
  resume(ino: Inode): void {
    this.#nameless.add(ino);
  }

  create(folder: LocalFacet, mode: number, ctx: OpContext): Entry {
    const node = this.#tree.createNameless({
      mode: modeIn(folder, 'file', mode),
      uid: ctx.uid,
      gid: groupIn(folder, ctx),
    });
    this.#nameless.add(node.ino);
    this.#view.orphan(node);
    return this.#view.entry(node);
  }

  /**
   * Gives the file its first name, with the bytes written so far. A promise while a write of it is running.
   *
   * @throws FsError ENOENT it no longer exists, or was named meanwhile · what `Tree.name` throws
   */
  name(ino: Inode, parent: Inode, name: string): Answer<Entry> {
    const file = this.#files.get(ino);
    if (file === undefined || !this.#nameless.has(ino)) throw new FsError('ENOENT');
    const { underWay } = file.changes;
    if (underWay !== null) return underWay.then(() => this.name(ino, parent, name));
    const node = this.#view.node(ino);
    const local = { ...node.local, ...file.unflushed, content: file.content };
    const named = this.#tree.name({ ...node, local }, parent, name);
    this.#nameless.delete(ino);
    this.#view.named(ino);
    return this.#view.entry(named);
  }

  /** FORGET of an inode. */
  forget(ino: Inode): void {
    if (this.#nameless.size > 0 && !this.#view.isNameless(ino)) this.#nameless.delete(ino);
  }
}

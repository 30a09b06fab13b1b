import { FsError } from '../base/errors.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { Entry, NegativeEntry, OpContext } from '../kernel/binding.ts';
import { trashRootOf } from '../store/local-trash.ts';
import type { StoreReader } from '../store/tables.ts';
import type { Tree } from '../tree/tree.ts';
import type { FileSystem } from './file-system.ts';

export interface TrashBridgeDeps {
  readonly store: StoreReader;
  readonly tree: Tree;
  readonly files: FileSystem;
  /** The user who mounted: the trash is theirs alone. */
  readonly owner: { readonly uid: number; readonly gid: number };
}

/** The kernel asks again: the folder appears and disappears without a notification. */
const NAME_MS = 0;

/**
 * `.Trash-UID` at the root, where file managers look for the trash of a file system (freedesktop.org Trash specification 1.0, "Trash
 * directories"). Only its name is answered here: what is in it are nodes of the local trash (`store/local-trash`).
 */
export class TrashBridge {
  readonly #deps: TrashBridgeDeps;
  readonly #name: string;

  constructor(deps: TrashBridgeDeps) {
    this.#deps = deps;
    this.#name = `.Trash-${deps.owner.uid}`;
  }

  /** Whether a name means the bridge. A folder of that name on the service goes first: user files are never hidden. */
  has(parent: Inode, name: string): boolean {
    return parent === ROOT_INODE && name === this.#name && this.#deps.tree.child(ROOT_INODE, name) === undefined;
  }

  lookup(): Entry | NegativeEntry {
    const root = this.#root;
    if (root === null) return { attributes: null, entryTimeoutMs: NAME_MS };
    return { ...this.#entryOf(root), entryTimeoutMs: NAME_MS };
  }

  /** @throws FsError EPERM for all but the user who mounted · EEXIST · EROFS */
  mkdir(ctx: OpContext): Entry {
    const { tree, files, owner } = this.#deps;
    if (ctx.uid !== owner.uid) throw new FsError('EPERM', 'the trash belongs to the user who mounted');
    if (this.#root !== null) throw new FsError('EEXIST');
    files.mayWrite();
    return this.#entryOf(tree.createTrashRoot({ name: this.#name, mode: 0o700, ...owner }).ino);
  }

  #entryOf(root: Inode): Entry {
    return { ...(this.#deps.files.made(root, null) as Entry), entryTimeoutMs: NAME_MS };
  }

  get #root(): Inode | null {
    return trashRootOf(this.#deps.store, this.#deps.owner.uid);
  }
}

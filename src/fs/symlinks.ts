import { FsError } from '../base/errors.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { Answer, Entry, OpContext } from '../kernel/binding.ts';
import type { Tree } from '../tree/tree.ts';
import { lastly } from './answer-chain.ts';
import type { NodeView } from './node-view.ts';
import type { OpenFiles } from './open-files.ts';
import { groupIn } from './set-id-bits.ts';

/** PATH_MAX of Linux without its NUL. */
const TARGET_BYTES_MAX = 4095;

/** The target of a new link as bytes. @throws FsError ENAMETOOLONG · ENOENT an empty one */
export function targetBytes(target: string): Uint8Array {
  const bytes = Buffer.from(target);
  if (bytes.byteLength > TARGET_BYTES_MAX) throw new FsError('ENAMETOOLONG');
  if (bytes.byteLength === 0) throw new FsError('ENOENT');
  return bytes;
}

/** Symbolic links: files whose bytes are their target. */
export class Symlinks {
  readonly #tree: Tree;
  readonly #view: NodeView;
  readonly #files: OpenFiles;
  readonly #contents: Contents;

  constructor(deps: { tree: Tree; view: NodeView; files: OpenFiles; contents: Contents }) {
    this.#tree = deps.tree;
    this.#view = deps.view;
    this.#files = deps.files;
    this.#contents = deps.contents;
  }

  create(parent: Inode, name: string, target: Uint8Array, ctx: OpContext): Entry {
    const node = this.#tree.create(parent, name, {
      kind: 'symlink',
      mode: 0o777,
      uid: ctx.uid,
      gid: groupIn(this.#view.local(parent), ctx),
      content: (tx) => this.#contents.inlineContent(tx, target),
      sizeBytes: target.byteLength,
    });
    return this.#view.entry(node);
  }

  /** A promise if the target must be fetched. @throws FsError EINVAL not a link · EIO */
  target(ino: Inode, ctx: OpContext): Answer<string> {
    if (this.#view.node(ino).kind !== 'symlink') throw new FsError('EINVAL');
    const file = this.#files.acquire(ino, 'read');
    const extent = { start: 0, end: TARGET_BYTES_MAX };
    const targetOf = (): string => {
      const bytes = file.content === null ? null : this.#contents.readAll(file.content, extent);
      if (bytes === null) throw new FsError('EIO', 'the target of the link is not on this machine');
      return Buffer.from(bytes).toString('utf8');
    };
    return lastly(
      () => file.read(extent, ctx, targetOf),
      () => this.#files.release(file, 'read'),
    );
  }
}

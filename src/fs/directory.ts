import type { Inode } from '../base/vocabulary.ts';
import type { DirectorySink } from '../kernel/binding.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { Tree } from '../tree/tree.ts';
import type { FolderHandle } from './folder-handle.ts';
import type { NodeView } from './node-view.ts';

const COOKIE_DOT = 1;
const COOKIE_DOT_DOT = 2;
/** A child's cookie is its inode plus this: valid while the folder changes, across handles and restarts. */
const COOKIE_BASE = 16;

/**
 * readdir(2): the entries after `cookie`, in name order, read from the tree until the kernel's buffer is full. Removing an entry during
 * a listing does not disturb the rest; a new entry may or may not appear.
 */
export function fillDirectory(
  deps: {
    readonly tree: Pick<Tree, 'children' | 'node'>;
    readonly view: Pick<NodeView, 'local' | 'listed'>;
    /** Called for each entry that is in the reply. */
    readonly seen?: (node: NodeRecord) => void;
  },
  folder: FolderHandle,
  cookie: number,
  sink: DirectorySink,
): void {
  const { ino } = folder;
  if (cookie < COOKIE_DOT) folder.rewound();
  const { parent } = deps.view.local(ino);
  if (cookie < COOKIE_DOT && !sink.add('.', ino, 'folder', COOKIE_DOT, null)) return;
  if (cookie < COOKIE_DOT_DOT && !sink.add('..', parent, 'folder', COOKIE_DOT_DOT, null)) return;
  const after = nameBefore(deps.tree, folder, cookie);
  if (after === null) return;
  for (const { name, node } of deps.tree.children(ino, after)) {
    const next = node.ino + COOKIE_BASE;
    if (!sink.add(name, node.ino, node.kind, next, sink.wantsEntries ? deps.view.listed(node) : null)) return;
    folder.handedOut(node.ino, name);
    deps.seen?.(node);
  }
}

/** The name after which to continue: undefined for the start, null when the position is lost (the listing then ends). */
function nameBefore(tree: Pick<Tree, 'node'>, folder: FolderHandle, cookie: number): string | undefined | null {
  if (cookie < COOKIE_BASE) return undefined;
  const entry = (cookie - COOKIE_BASE) as Inode;
  const remembered = folder.nameOf(entry);
  if (remembered !== undefined) return remembered;
  const local = tree.node(entry)?.local;
  return local != null && local.parent === folder.ino ? local.name : null;
}

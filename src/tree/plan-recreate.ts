import type { Inode } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { NodeChange } from './listing-merge.ts';
import type { RemoteDeleteView } from './plan-remote-delete.ts';

export interface RecreateView extends Pick<RemoteDeleteView, 'isBusy' | 'isBeingWritten'> {
  node(ino: Inode): NodeRecord | undefined;
}

/**
 * Plans for a remotely deleted subtree that is retained for now, because a program reads in it or the user must confirm
 * the removal. Nodes that `planRemoteDelete` would keep must not be pushed to the deleted place: they and their ancestors
 * lose their resources, so that they are recreated. All other nodes stay unchanged. Pure.
 *
 * @param candidates all nodes that may have to be kept (dirty, being pushed, or open for writing) anywhere in the tree:
 * there are few, however large the subtree is
 */
export function planRecreate(view: RecreateView, gone: NodeRecord, candidates: Iterable<Inode>): readonly NodeChange[] {
  const changes = new Map<Inode, NodeChange>();
  const lose = (node: NodeRecord): void => {
    if (node.remote !== null) changes.set(node.ino, { before: node, after: { ...node, remote: null } });
  };

  /** Whether its resource is, or is about to be, outside the deleted subtree. */
  const isElsewhere = (node: NodeRecord): boolean =>
    (node.remote !== null && node.remote.parent !== node.local?.parent) || view.isBusy(node.ino);

  const ways = new Map<Inode, Way>();
  const wayOf = (ino: Inode): Way => {
    const known = ways.get(ino);
    if (known !== undefined) return known;
    ways.set(ino, OUTSIDE); // stops at a cycle in damaged records
    const way = wayTo(view.node(ino));
    ways.set(ino, way);
    return way;
  };
  const wayTo = (folder: NodeRecord | undefined): Way => {
    if (folder?.ino === gone.ino) return { folder: gone, above: null, isGone: true };
    if (folder?.local == null || folder.local.parent === folder.ino) return OUTSIDE;
    const above = wayOf(folder.local.parent);
    if (above === OUTSIDE) return OUTSIDE;
    return { folder, above, isGone: above.isGone && !isElsewhere(folder) };
  };

  const kept = new Set<Way>();
  for (const ino of candidates) {
    const node = view.node(ino);
    if (node?.local == null || node.localOnly || ino === gone.ino) continue;
    const isElse = isElsewhere(node);
    const isWanted = node.kind !== 'folder' && (isContentDirty(node) || view.isBeingWritten(ino));
    if (node.remote !== null && !isElse && !isWanted) continue;
    const way = wayOf(node.local.parent);
    if (way === OUTSIDE) continue;
    if (way.isGone && isWanted && !isElse) lose(node);
    for (let at: Way | null = way; at !== null && !kept.has(at); at = at.above) {
      kept.add(at);
      if (at.isGone && at.folder !== null) lose(at.folder);
    }
  }
  return [...changes.values()];
}

/** A folder below the deleted one. */
interface Way {
  readonly folder: NodeRecord | null;
  readonly above: Way | null;
  /** Whether it was deleted too: false for folders moved in from elsewhere, and below them. */
  readonly isGone: boolean;
}

const OUTSIDE: Way = { folder: null, above: null, isGone: false };

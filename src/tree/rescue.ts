import type { Inode } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { NodeChange } from './listing-merge.ts';
import type { VanishView } from './vanish.ts';

export interface RescueView extends Pick<VanishView, 'isBusy' | 'isBeingWritten'> {
  node(ino: Inode): NodeRecord | undefined;
}

/**
 * The resource of `gone` is no longer in our tree on the service, and what lies below is kept for now: somebody reads in it, or a person is to
 * say whether it may go. What `planVanish` would keep is not to be pushed to where nobody looks: it loses its resource, and so do the
 * folders above it, so that they are made anew; the rest stays as it is. Pure.
 *
 * @param candidates all that may be wanted (what is dirty, being pushed, or open for writing), wherever it lies: they are few, whatever lies
 * below `gone`
 */
export function planRescue(view: RescueView, gone: NodeRecord, candidates: Iterable<Inode>): readonly NodeChange[] {
  const changes = new Map<Inode, NodeChange>();
  const lose = (node: NodeRecord): void => {
    if (node.remote !== null) changes.set(node.ino, { before: node, after: { ...node, remote: null } });
  };

  /** Has its resource, or is about to have it, elsewhere. */
  const isElsewhere = (node: NodeRecord): boolean =>
    (node.remote !== null && node.remote.parent !== node.local?.parent) || view.isBusy(node.ino);

  const ways = new Map<Inode, Way>();
  const wayOf = (ino: Inode): Way => {
    const known = ways.get(ino);
    if (known !== undefined) return known;
    ways.set(ino, OUTSIDE); // a loop in damaged records ends here
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

/** A folder on the way down from what is gone. */
interface Way {
  readonly folder: NodeRecord | null;
  readonly above: Way | null;
  /** Whether it is gone with it: not what was moved in, nor what lies in that. */
  readonly isGone: boolean;
}

const OUTSIDE: Way = { folder: null, above: null, isGone: false };

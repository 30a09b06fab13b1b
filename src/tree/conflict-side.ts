import type { NodeRecord } from '../store/tables.ts';
import { conflictMark, conflictPrefix } from './conflict-name.ts';
import type { Tree } from './tree.ts';

/** Of a conflicted copy, the name of its file; of that file, the name of its first copy; null for all others. @throws DamagedRow */
export function otherSide(tree: Pick<Tree, 'children'>, { kind, local }: NodeRecord): string | null {
  if (kind === 'folder' || local === null) return null;
  const mark = conflictMark(local.name);
  if (mark !== null) return mark.original;
  const prefix = conflictPrefix(local.name);
  for (const { name } of tree.children(local.parent, prefix)) {
    if (!name.startsWith(prefix)) return null;
    if (conflictMark(name)?.original === local.name) return name;
  }
  return null;
}

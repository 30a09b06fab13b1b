import type { Timespec } from '../base/vocabulary.ts';
import type { AttributeChange } from '../kernel/binding.ts';
import type { LocalFacet } from '../store/tables.ts';
import type { VisibleNode } from './encoded-node.ts';
import { withoutPrivilege } from './set-id-bits.ts';

/**
 * The patch that chmod(2), chown(2) and utimensat(2) make to a node; the size is not part of it.
 *
 * @param now the current time
 * @returns null if nothing changes
 */
export function patchOf(change: AttributeChange, node: VisibleNode, now: Timespec): Partial<LocalFacet> | null {
  const patch: { -readonly [K in keyof LocalFacet]?: LocalFacet[K] } = {};
  if (change.mode !== undefined) patch.mode = change.mode & 0o7777;
  if (change.uid !== undefined) patch.uid = change.uid;
  if (change.gid !== undefined) patch.gid = change.gid;
  // chown(2) clears these bits on executables, even for root.
  if ((change.uid !== undefined || change.gid !== undefined) && node.kind === 'file')
    patch.mode = withoutPrivilege(patch.mode ?? node.local.mode);
  if (change.atime !== undefined) patch.atime = change.atime === 'now' ? now : change.atime;
  if (change.mtime !== undefined) patch.mtime = change.mtime === 'now' ? now : change.mtime;
  if (Object.keys(patch).length === 0) return null;
  patch.ctime = change.ctime ?? now;
  return patch;
}

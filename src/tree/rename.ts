import { FsError } from '../base/errors.ts';
import { type Inode, timespecOfMs } from '../base/vocabulary.ts';
import { childOf, writeNode } from '../store/node-table.ts';
import type { NodeRecord, RemoteFacet, Transaction } from '../store/tables.ts';
import { isWithin, liveFolder, mustBeEmpty, touch } from './live-folder.ts';
import type { Names } from './names.ts';
import type { Succession } from './succession.ts';

export type RenameMode = 'replace' | 'no-replace' | 'exchange';

export interface RenameResult {
  /** As it was, and as it is. The same object where nothing had to be done. */
  readonly before: NodeRecord;
  readonly moved: NodeRecord;
  /** The node that lost its name. */
  readonly replaced: NodeRecord | null;
  /** The node that has the old name now. */
  readonly swapped: NodeRecord | null;
}

/** rename(2) within one change of the store. @throws FsError as `Tree.rename` says */
export function renameNode(
  tx: Transaction,
  rules: { readonly names: Names; readonly succession: Succession },
  places: { readonly parent: Inode; readonly name: string; readonly newParent: Inode; readonly newName: string },
  mode: RenameMode,
  nowMs: number,
): RenameResult {
  const { names, succession } = rules;
  const { parent, name, newParent, newName } = places;
  const now = timespecOfMs(nowMs);
  const from = liveFolder(tx, parent);
  const to = liveFolder(tx, newParent);
  const source = childOf(tx, parent, name);
  if (source?.local == null) throw new FsError('ENOENT');
  const target = childOf(tx, newParent, newName);
  if (target !== undefined && mode === 'no-replace') throw new FsError('EEXIST');
  if (target === undefined && mode === 'exchange') throw new FsError('ENOENT');
  if (target?.ino === source.ino) return { before: source, moved: source, replaced: null, swapped: null };
  if (source.kind === 'folder' && isWithin(tx, newParent, source.ino)) throw new FsError('EINVAL');
  if (source.localOnly !== (to.localOnly || names.staysLocal(newName))) throw new FsError('EXDEV');

  let remote: RemoteFacet | undefined;
  let swapped: NodeRecord | null = null;
  if (target?.local != null && mode === 'exchange') {
    if (target.kind === 'folder' && isWithin(tx, parent, target.ino)) throw new FsError('EINVAL');
    if (target.localOnly !== (from.localOnly || names.staysLocal(name))) throw new FsError('EXDEV');
    swapped = { ...target, local: { ...target.local, parent, name, ctime: now } };
    writeNode(tx, target, swapped, nowMs);
  } else if (target !== undefined) {
    if (target.kind === 'folder' && source.kind !== 'folder') throw new FsError('EISDIR');
    if (target.kind !== 'folder' && source.kind === 'folder') throw new FsError('ENOTDIR');
    if (target.kind === 'folder') mustBeEmpty(tx, target);
    remote = succession.replace(tx, source, target, nowMs);
  } else if (!source.localOnly) {
    remote = succession.reclaim(tx, { parent: newParent, name: newName, kind: source.kind }, source, source.ino, nowMs);
  }

  // The succession may have written it.
  const current = tx.get('node', source.ino) ?? source;
  const local = { ...source.local, parent: newParent, name: newName, ctime: now };
  const moved: NodeRecord = { ...current, local, remote: remote ?? current.remote };
  writeNode(tx, current, moved, nowMs);
  touch(tx, parent, now, nowMs);
  if (newParent !== parent) touch(tx, newParent, now, nowMs);
  return { before: source, moved, replaced: mode === 'exchange' ? null : (target ?? null), swapped };
}

import { FsError } from '../base/errors.ts';
import { type Inode, isSpecial, timespecOfMs } from '../base/vocabulary.ts';
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
  const found = childOf(tx, parent, name);
  if (found?.local == null) throw new FsError('ENOENT');
  const target = childOf(tx, newParent, newName);
  if (target !== undefined && mode === 'no-replace') throw new FsError('EEXIST');
  if (target === undefined && mode === 'exchange') throw new FsError('ENOENT');
  if (target?.ino === found.ino) return { before: found, moved: found, replaced: null, swapped: null };
  if (found.kind === 'folder' && isWithin(tx, newParent, found.ino)) throw new FsError('EINVAL');
  const localOnly = to.localOnly || names.staysLocal(newName) || isSpecial(found.kind);
  // A name that stays here may be the one under which a program writes what it saves: `.` before the name of a file that begins with `_`.
  const beginsToTravel = found.localOnly && !localOnly && found.kind !== 'folder' && mode !== 'exchange';
  if (found.localOnly !== localOnly && !beginsToTravel) throw new FsError('EXDEV');
  const source = { ...found, local: found.local, localOnly };

  let remote: RemoteFacet | undefined;
  let swapped: NodeRecord | null = null;
  if (target?.local != null && mode === 'exchange') {
    if (target.kind === 'folder' && isWithin(tx, parent, target.ino)) throw new FsError('EINVAL');
    const staysLocal = from.localOnly || names.staysLocal(name) || isSpecial(target.kind);
    if (target.localOnly !== staysLocal) throw new FsError('EXDEV');
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
  const current = tx.get('node', source.ino) ?? found;
  const local = { ...source.local, parent: newParent, name: newName, ctime: now };
  const moved: NodeRecord = { ...current, localOnly, local, remote: remote ?? current.remote };
  writeNode(tx, current, moved, nowMs);
  touch(tx, parent, now, nowMs);
  if (newParent !== parent) touch(tx, newParent, now, nowMs);
  return { before: found, moved, replaced: mode === 'exchange' ? null : (target ?? null), swapped };
}

import { FsError } from '../base/errors.ts';
import { type ContentId, type Inode, isSpecial, timespecOfMs } from '../base/vocabulary.ts';
import { layersOf } from '../bytes/content-layers.ts';
import { isInTrash, isTrashFolder } from '../store/local-trash.ts';
import { childOf, writeNode } from '../store/node-table.ts';
import type { LocalFacet, NodeRecord, RemoteFacet, Transaction } from '../store/tables.ts';
import { isComplete, isEmpty, isWithin, liveFolder, mustBeEmpty, touch } from './live-folder.ts';
import { keepHere, letTravel } from './local-trash-moves.ts';
import type { Names } from './names.ts';
import type { OwnershipTransfer } from './ownership-transfer.ts';

export type RenameMode = 'replace' | 'no-replace' | 'exchange';

export interface RenameResult {
  /** Before and after. The same object if nothing changed. */
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
  rules: {
    readonly names: Names;
    readonly ownershipTransfer: OwnershipTransfer;
    /** Another node became dirty or clean. */
    readonly changed: (ino: Inode) => void;
  },
  places: { readonly parent: Inode; readonly name: string; readonly newParent: Inode; readonly newName: string },
  mode: RenameMode,
  nowMs: number,
): RenameResult {
  const { names, ownershipTransfer } = rules;
  const { parent, name, newParent, newName } = places;
  const now = timespecOfMs(nowMs);
  const from = liveFolder(tx, parent);
  const to = liveFolder(tx, newParent);
  const before = childOf(tx, parent, name);
  if (before?.local == null) throw new FsError('ENOENT');
  let found: NodeRecord & { readonly local: LocalFacet } = { ...before, local: before.local };
  const target = childOf(tx, newParent, newName);
  if (target !== undefined && mode === 'no-replace') throw new FsError('EEXIST');
  if (target === undefined && mode === 'exchange') throw new FsError('ENOENT');
  if (target?.ino === found.ino) return { before, moved: before, replaced: null, swapped: null };
  if (found.kind === 'folder' && isWithin(tx, newParent, found.ino)) throw new FsError('EINVAL');
  if (target?.kind === 'folder' && mode === 'exchange' && isWithin(tx, parent, target.ino)) throw new FsError('EINVAL');
  if (target !== undefined && mode !== 'exchange') {
    if (target.kind === 'folder' && found.kind !== 'folder') throw new FsError('EISDIR');
    if (target.kind !== 'folder' && found.kind === 'folder') throw new FsError('ENOTDIR');
    if (target.kind === 'folder') mustBeEmpty(tx, target);
  }

  const intoTrash = isTrashFolder(tx, newParent);
  // Local-only files replace each other: that is how GIO writes a `.trashinfo` file.
  const isInfo = target?.localOnly && before.localOnly && isInTrash(tx, parent);
  if (intoTrash && target !== undefined && !isInfo) throw new FsError('EEXIST', 'names in the trash are unique');
  if (intoTrash || (!to.localOnly && isInTrash(tx, parent))) {
    if (intoTrash) keepHere(tx, before, nowMs, rules.changed);
    else letTravel(tx, names, before, newName, nowMs, rules.changed);
    found = { ...found, localOnly: tx.get('node', found.ino)?.localOnly ?? found.localOnly };
  }

  const travelling = { ...found, localOnly: false };
  let remote: RemoteFacet | undefined;
  if (target === undefined && !to.localOnly) {
    const place = { parent: newParent, name: newName, kind: found.kind };
    remote = ownershipTransfer.reclaim(tx, place, travelling, found.ino, nowMs);
  }
  const place = { folder: to, name: newName, holder: target };
  const localOnly = intoTrash ? found.localOnly : remote === undefined && staysAt(tx, names, found, place);
  const source = changedLocality(tx, ownershipTransfer, found, localOnly, nowMs);

  let swapped: NodeRecord | null = null;
  if (target?.local != null && mode === 'exchange') {
    const stays = staysAt(tx, names, target, { folder: from, name, holder: found });
    const other = changedLocality(tx, ownershipTransfer, tx.get('node', target.ino) ?? target, stays, nowMs);
    swapped = { ...other, local: { ...target.local, parent, name, ctime: now } };
    writeNode(tx, other, swapped, nowMs);
  } else if (target !== undefined) {
    remote = ownershipTransfer.replace(tx, source, target, nowMs);
  }

  // The transfer may have changed it.
  const current = tx.get('node', source.ino) ?? source;
  const local = { ...found.local, parent: newParent, name: newName, ctime: now };
  // The service has one trash: a move within the local one changes nothing there.
  if (intoTrash && current.remote !== null && isTrashFolder(tx, current.remote.parent))
    remote = { ...current.remote, parent: newParent, shownAs: newName };
  const moved: NodeRecord = { ...current, localOnly, local, remote: remote ?? current.remote };
  writeNode(tx, current, moved, nowMs);
  touch(tx, parent, now, nowMs);
  if (newParent !== parent) touch(tx, newParent, now, nowMs);
  return { before, moved, replaced: mode === 'exchange' ? null : (target ?? null), swapped };
}

/**
 * Whether a node is local-only after a rename to a place. Special files are, and so is everything in a local-only
 * folder. If the name is taken, the existing entry decides. If it is free and names of its kind are local-only, the
 * node becomes local-only too, unless the service has it, or its bytes may be complete only on the service.
 */
function staysAt(
  tx: Transaction,
  names: Names,
  node: NodeRecord,
  place: { readonly folder: NodeRecord; readonly name: string; readonly holder: NodeRecord | undefined },
): boolean {
  if (place.folder.localOnly || isSpecial(node.kind)) return true;
  if (place.holder !== undefined && !isSpecial(place.holder.kind)) return place.holder.localOnly;
  if (!names.staysLocal(place.name)) return false;
  return node.localOnly || (node.remote === null && (node.kind === 'folder' || holdsItsBytes(tx, node)));
}

/**
 * The node moved between local-only and pushed places. The remote resource of a node that becomes local-only goes
 * to the trash.
 *
 * @throws FsError EXDEV for a folder with entries, and for a file that would become local-only although its bytes may
 * be complete only on the service: mv(1) then copies
 */
function changedLocality(
  tx: Transaction,
  ownershipTransfer: OwnershipTransfer,
  node: NodeRecord,
  localOnly: boolean,
  nowMs: number,
): NodeRecord {
  if (node.localOnly === localOnly) return node;
  if (node.kind === 'folder' && !(isComplete(tx, node.ino) && isEmpty(tx, node.ino))) throw new FsError('EXDEV');
  if (localOnly && node.kind !== 'folder' && !holdsItsBytes(tx, node)) throw new FsError('EXDEV');
  const before = tx.get('node', node.ino) ?? node;
  const after = { ...before, localOnly, remote: localOnly ? null : before.remote };
  writeNode(tx, before, after, nowMs);
  if (localOnly) ownershipTransfer.giveUp(tx, before, nowMs);
  return after;
}

/** Whether the bytes are stored outside the cache, which may evict remote content. */
function holdsItsBytes(tx: Transaction, { local }: NodeRecord): boolean {
  if (local === null || local.content === null) return false;
  const record = (id: ContentId) => tx.get('content', id);
  return layersOf(local.content, record).every((layer) => record(layer)?.kind === 'draft');
}

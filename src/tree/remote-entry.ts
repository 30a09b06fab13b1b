import type { RemoteEntry } from '../base/resources.ts';
import { type Inode, type NodeKind, timespecOfMs } from '../base/vocabulary.ts';
import { doubtedTime, isDoubted, isLimit, isYoung, mayBeTimeOf } from '../store/service-time.ts';
import type { DepartedRecord, LocalFacet, RemoteFacet } from '../store/tables.ts';

/** Media type under which a symbolic link is kept; its bytes are the target. */
export const SYMLINK_MEDIA_TYPE = 'inode/symlink';

/** What a listing entry is shown as. */
export function kindOf(entry: RemoteEntry): NodeKind {
  if (entry.kind === 'folder') return 'folder';
  return entry.mediaType === SYMLINK_MEDIA_TYPE ? 'symlink' : 'file';
}

export function modeOf(kind: NodeKind, umask: number): number {
  if (kind === 'symlink') return 0o777;
  return (kind === 'folder' ? 0o777 : 0o666) & ~umask;
}

/** Bytes of the newest version; null for a folder and for a file that was never filled. */
export function sizeOf(entry: RemoteEntry): number | null {
  return entry.kind === 'file' && entry.presentOnServer ? entry.sizeBytes : null;
}

/** Whether the service has other bytes than those that `base` tells of. Where a time is not known, the size is all there is. */
export function isRewritten(base: Pick<RemoteFacet, 'sizeBytes' | 'lastModifiedMs'>, entry: RemoteEntry): boolean {
  if (entry.kind === 'folder') return false;
  return base.sizeBytes !== sizeOf(entry) || !mayBeTimeOf(base.lastModifiedMs, entry.lastModifiedMs);
}

/**
 * Whether `entry` tells that the bytes are not there which the service acknowledged when we made the file: it has none, or, of the
 * moment when we sent them, others in length. What is of a later time somebody saved over them; what a listing has confirmed once
 * is not asked about again.
 */
export function isNotArrived(base: RemoteFacet, entry: RemoteEntry): boolean {
  const { createdHereMs, content, sizeBytes, lastModifiedMs } = base;
  if (entry.kind === 'folder' || createdHereMs === null || content === null) return false;
  const isConfirmed = lastModifiedMs !== null && !isLimit(lastModifiedMs);
  if (isConfirmed || sizeOf(entry) === sizeBytes) return false;
  if (sizeOf(entry) === null) return true;
  return lastModifiedMs !== null && entry.lastModifiedMs !== null && entry.lastModifiedMs <= lastModifiedMs;
}

/** A file of which the service has lost the newest version; `copy` holds what was here of it. */
export interface TakenBack {
  readonly ino: Inode;
  readonly copy: Inode | null;
}

/**
 * Whether the newest version that `entry` tells of is older than the one that this machine knows, or as old and shorter. Versions are only
 * added, so the service has lost that one: it was set back to a backup.
 */
export function isTakenBack(base: RemoteFacet, entry: RemoteEntry): boolean {
  const { lastModifiedMs, content } = base;
  if (entry.kind === 'folder' || content === null || entry.lastModifiedMs === null) return false;
  if (lastModifiedMs === null || isLimit(lastModifiedMs)) return false;
  const knownMs = Math.ceil(lastModifiedMs);
  if (entry.lastModifiedMs !== knownMs) return entry.lastModifiedMs < knownMs;
  return (sizeOf(entry) ?? 0) < (base.sizeBytes ?? 0);
}

/**
 * What is kept of the time of bytes that were not rewritten.
 *
 * @param young it was told too early to be trusted
 * @param othersAtWork somebody else changes things in these minutes
 */
export function keptTime(
  base: RemoteFacet,
  toldMs: number | null,
  { young, othersAtWork }: { readonly young: boolean; readonly othersAtWork: boolean },
): number | null {
  const keptMs = base.lastModifiedMs;
  if (toldMs === null || (keptMs !== null && isDoubted(keptMs))) return keptMs;
  // Bytes that nobody has looked at are asked for anyway.
  const settled = base.content === null ? toldMs : doubtedTime(toldMs);
  // Sent by ourselves, and the answer did not tell: that somebody saved as much within the same seconds is a doubt only
  // while there is somebody.
  if (keptMs === null || isLimit(keptMs)) return othersAtWork ? settled : toldMs;
  if (!isYoung(keptMs)) return toldMs;
  return young ? keptMs : settled;
}

/**
 * While the bytes are changed here the remote facet says what they were made over, whatever listings tell since: the push reads
 * the history and knows by that what is somebody else's (`sync/conflict`).
 */
export function withBytesOf(
  base: Pick<RemoteFacet, 'sizeBytes' | 'lastModifiedMs' | 'content' | 'createdHereMs' | 'takenOverBy'>,
  told: RemoteFacet,
): RemoteFacet {
  const { sizeBytes, lastModifiedMs, content, createdHereMs, takenOverBy } = base;
  const bytes = { sizeBytes, lastModifiedMs, content, createdHereMs };
  return { ...told, ...bytes, ...(takenOverBy !== undefined && { takenOverBy }) };
}

/** With what was set here before the resource was gone for a while; with the times only where the bytes are the same. */
export function asItWas(
  local: LocalFacet,
  departed: DepartedRecord | undefined,
  { requestedMs }: { readonly requestedMs: number },
  entry: RemoteEntry,
): LocalFacet {
  if (departed === undefined) return local;
  const { mode, uid, gid, xattrs, atime, mtime } = departed;
  const times = isRewritten(departed, entry) ? null : { atime, mtime };
  return { ...local, mode, uid, gid, xattrs, ...times, ctime: timespecOfMs(requestedMs) };
}

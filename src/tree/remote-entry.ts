import type { RemoteEntry } from '../base/resources.ts';
import { type Inode, type NodeKind, timespecOfMs } from '../base/vocabulary.ts';
import { isBound, isSuspectTime, mayBeTimeOf, reportedTime, type ServiceTime } from '../store/service-time.ts';
import type { DepartedRecord, LocalFacet, RemoteFacet } from '../store/tables.ts';

/** Media type of a stored symbolic link; its bytes are the target. */
export const SYMLINK_MEDIA_TYPE = 'inode/symlink';

/** The kind of node for a listing entry. */
export function kindOf(entry: RemoteEntry): NodeKind {
  if (entry.kind === 'folder') return 'folder';
  return entry.mediaType === SYMLINK_MEDIA_TYPE ? 'symlink' : 'file';
}

export function modeOf(kind: NodeKind, umask: number): number {
  if (kind === 'symlink') return 0o777;
  return (kind === 'folder' ? 0o777 : 0o666) & ~umask;
}

/** Length of the newest version; null for a folder and for a file without data. */
export function sizeOf(entry: RemoteEntry): number | null {
  return entry.kind === 'file' && entry.presentOnServer ? entry.sizeBytes : null;
}

/** Whether the service has other bytes than those of `base`. Without a time, the sizes alone are compared. */
export function isRewritten(base: Pick<RemoteFacet, 'sizeBytes' | 'modified'>, entry: RemoteEntry): boolean {
  if (entry.kind === 'folder') return false;
  return base.sizeBytes !== sizeOf(entry) || !mayBeTimeOf(base.modified, entry.lastModifiedMs);
}

/**
 * Whether the bytes of our creation, which the service acknowledged, are missing: the entry has no bytes, or bytes of
 * the time of our push with another length. Bytes with a later time were saved over ours. Bytes that a listing has
 * confirmed once are not checked again.
 */
export function isNotArrived(base: RemoteFacet, entry: RemoteEntry): boolean {
  const { createdHereMs, content, sizeBytes, modified } = base;
  if (entry.kind === 'folder' || createdHereMs === null || content === null) return false;
  if ((modified !== null && modified.certainty !== 'upper-bound') || sizeOf(entry) === sizeBytes) return false;
  if (sizeOf(entry) === null) return true;
  return modified !== null && entry.lastModifiedMs !== null && entry.lastModifiedMs <= modified.ms;
}

/** A file whose newest version the service lost; `copy` holds the local bytes. */
export interface TakenBack {
  readonly ino: Inode;
  readonly copy: Inode | null;
}

/**
 * Whether the entry's newest version is older than the known one, or as old and shorter. Versions are only ever added,
 * so the service lost one: it was restored from a backup.
 */
export function isTakenBack(base: RemoteFacet, entry: RemoteEntry): boolean {
  const { modified, content } = base;
  if (entry.kind === 'folder' || content === null || entry.lastModifiedMs === null) return false;
  if (modified === null || isBound(modified)) return false;
  if (entry.lastModifiedMs !== modified.ms) return entry.lastModifiedMs < modified.ms;
  return (sizeOf(entry) ?? 0) < (base.sizeBytes ?? 0);
}

/**
 * The time to store for bytes that were not rewritten.
 *
 * @param isRacy `service-time`
 * @param othersAtWork other users or machines are changing things at present
 */
export function keptTime(
  base: RemoteFacet,
  reportedMs: number | null,
  { isRacy, othersAtWork }: { readonly isRacy: boolean; readonly othersAtWork: boolean },
): ServiceTime | null {
  const kept = base.modified;
  if (reportedMs === null || (kept !== null && isSuspectTime(kept))) return kept;
  // Bytes not read here yet are requested anyway.
  const aged = reportedTime(reportedMs, base.content === null ? 'exact' : 'suspect');
  // Our own push, without a time in the response. A remote save of the same length in the same seconds is possible only
  // while others are active.
  if (kept === null || isBound(kept)) return othersAtWork ? aged : reportedTime(reportedMs);
  if (kept.certainty !== 'racy') return reportedTime(reportedMs);
  return isRacy ? kept : aged;
}

/**
 * While local bytes are dirty, the remote facet keeps the bytes that they are based on, regardless of later listings.
 * The push reads the history and detects foreign versions by it (`sync/conflict`).
 */
export function withBytesOf(
  base: Pick<RemoteFacet, 'sizeBytes' | 'modified' | 'content' | 'createdHereMs'>,
  reported: RemoteFacet,
): RemoteFacet {
  const { sizeBytes, modified, content, createdHereMs } = base;
  return { ...reported, sizeBytes, modified, content, createdHereMs };
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

import type { RemoteEntry } from '../base/resources.ts';
import type { NodeKind } from '../base/vocabulary.ts';
import type { RemoteFacet } from '../store/tables.ts';
import { isYoung, timeTold } from './young-time.ts';

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

export function isRewritten(base: RemoteFacet, entry: RemoteEntry, young: boolean): boolean {
  if (entry.kind === 'folder') return false;
  if (base.sizeBytes !== sizeOf(entry)) return true;
  // Not known on one side: the size is all there is to compare (after a plain PUT the time is learnt from the next listing).
  if (base.lastModifiedMs === null || entry.lastModifiedMs === null) return false;
  if (timeTold(base.lastModifiedMs) !== entry.lastModifiedMs) return true;
  return isYoung(base.lastModifiedMs) && !young;
}

export function keptTime(base: RemoteFacet, toldMs: number | null, young: boolean): number | null {
  return toldMs === null || (young && base.lastModifiedMs !== null) ? base.lastModifiedMs : toldMs;
}

import { laterOf } from '../base/vocabulary.ts';
import type { UnflushedAttributes } from '../content/writing.ts';
import type { Attributes } from '../kernel/binding.ts';
import type { LocalFacet, NodeRecord } from '../store/tables.ts';

/**
 * A node as stat(2) shows it: the local facet, with what its open file has not written down yet.
 *
 * Folders have one link: the count of sub-folders is not kept, and 1 tells find(1) not to rely on it (as btrfs does).
 */
export function attributesOf(
  node: NodeRecord,
  local: LocalFacet,
  unflushed: UnflushedAttributes | null,
  nlink: number,
): Attributes {
  const sizeBytes = unflushed?.sizeBytes ?? local.sizeBytes;
  return {
    ino: node.ino,
    kind: node.kind,
    mode: node.kind === 'symlink' ? 0o777 : local.mode,
    nlink,
    uid: local.uid,
    gid: local.gid,
    sizeBytes,
    blocks512: Math.ceil(sizeBytes / 512),
    atime: local.atime,
    mtime: unflushed?.mtime ?? local.mtime,
    // The record may be newer than what was written before: chmod(2), rename(2) and others change it at once.
    ctime: unflushed === null ? local.ctime : laterOf(local.ctime, unflushed.ctime),
  };
}

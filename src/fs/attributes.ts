import { laterOf } from '../base/vocabulary.ts';
import type { UnflushedAttributes } from '../content/writing.ts';
import type { Attributes } from '../kernel/binding.ts';
import type { LocalFacet, NodeRecord } from '../store/tables.ts';

/**
 * A node as stat(2) shows it: the local facet, with the unflushed attributes of its open file.
 *
 * Folders have one link: sub-folders are not counted, and 1 keeps find(1) from relying on the count (as on btrfs).
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
    // The record may be newer than the unflushed write: chmod(2), rename(2) and others change it immediately.
    ctime: unflushed === null ? local.ctime : laterOf(local.ctime, unflushed.ctime),
  };
}

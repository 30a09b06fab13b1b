import { type ResourceUrl, ROOT_INODE, timespecOfMs } from '../base/vocabulary.ts';
import type { NodeRecord } from '../store/tables.ts';

/** The node of the mount's root. It is its own parent and has no name, on both sides. */
export function rootNode(
  root: { readonly resource: ResourceUrl; readonly uid: number; readonly gid: number },
  nowMs: number,
): NodeRecord {
  const now = timespecOfMs(nowMs);
  const place = { parent: ROOT_INODE, name: '' };
  return {
    ino: ROOT_INODE,
    kind: 'folder',
    localOnly: false,
    local: {
      ...place,
      mode: 0o755,
      uid: root.uid,
      gid: root.gid,
      atime: now,
      mtime: now,
      ctime: now,
      xattrs: null,
      content: null,
      sizeBytes: 0,
    },
    remote: {
      ...place,
      resource: root.resource,
      shownAs: '',
      sizeBytes: null,
      modified: null,
      mediaType: null,
      content: null,
      createdHereMs: null,
    },
  };
}

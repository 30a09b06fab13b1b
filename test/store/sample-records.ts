import type { ContentId, Inode, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type { ContentRecord, LocalFacet, NodeRecord, RemoteFacet } from '../../src/store/tables.ts';

/** Records with something in every field. */

export function sampleLocal(parent: number, name: string, changes: Partial<LocalFacet> = {}): LocalFacet {
  return {
    parent: parent as Inode,
    name,
    mode: 0o644,
    uid: 1000,
    gid: 1000,
    atime: { sec: 1_700_000_000, nsec: 1 },
    mtime: { sec: -5, nsec: 999_999_999 },
    ctime: { sec: 1_700_000_000, nsec: 3 },
    xattrs: null,
    content: null,
    sizeBytes: 0,
    ...changes,
  };
}

export function sampleRemote(parent: number, name: string, changes: Partial<RemoteFacet> = {}): RemoteFacet {
  return {
    resource: `https://service.example/file/${name}` as ResourceUrl,
    parent: parent as Inode,
    name,
    shownAs: name,
    sizeBytes: 12,
    modified: { ms: 1_700_000_000_123, certainty: 'exact' },
    mediaType: 'text/plain',
    content: null,
    createdHereMs: null,
    ...changes,
  };
}

export function sampleNode(ino: number, changes: Partial<NodeRecord> = {}): NodeRecord {
  return {
    ino: ino as Inode,
    kind: 'file',
    localOnly: false,
    local: sampleLocal(1, `file ${ino}`),
    remote: null,
    ...changes,
  };
}

export function sampleContent(changes: Partial<ContentRecord> = {}): ContentRecord {
  return {
    kind: 'draft',
    sealed: false,
    sizeBytes: 2 ** 41 + 7,
    version: 'https://service.example/file/1/version/1' as VersionUrl,
    resource: 'https://service.example/file/1' as ResourceUrl,
    where: 'file',
    base: 7 as ContentId,
    baseBytes: 100,
    extents: [0, 10, 20, 2 ** 40],
    refs: 1,
    ...changes,
  };
}

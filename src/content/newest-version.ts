import type { Clock } from '../base/clock.ts';
import type { NewestVersion } from '../base/resources.ts';
import { type ContentId, type Inode, type ResourceUrl, timespecOfMs } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { isContentDirty, isSuspect, writeNode } from '../store/node-table.ts';
import { boundBefore, isSameServiceTime, mayBeTimeOf, revalidated } from '../store/service-time.ts';
import type { LocalFacet, NodeRecord, RemoteFacet, StoreReader, StoreWriter } from '../store/tables.ts';

/** Whether the cached bytes may have been replaced by as many bytes at the same time: their time is suspect, or still racy. */
export function mayBeReplaced(node: NodeRecord): boolean {
  const isRacy = node.remote?.modified?.certainty === 'racy';
  return (isRacy && node.local?.content != null && !isContentDirty(node)) || isSuspect(node);
}

/** What recording the newest version of a file changed. */
export interface RecordedVersion {
  readonly content: ContentId;
  /** If it is not the listed version: how much longer it is. */
  readonly other: { readonly longerBytes: number } | null;
}

/**
 * Records the newest version that the service named as the node's content.
 *
 * @param answer `asked`: the node at the time of the request
 */
export function recordNewest(
  { store, contents, clock }: { readonly store: StoreWriter; readonly contents: Contents; readonly clock: Clock },
  answer: { readonly asked: NodeRecord; readonly resource: ResourceUrl; readonly version: NewestVersion },
): RecordedVersion {
  const { asked, resource, version } = answer;
  return store.transact((tx) => {
    const ours = firstUploadOf(tx, asked.ino, resource, version);
    if (ours !== null) contents.adopt(tx, ours, version.url, resource);
    const content = contents.versionContent(tx, version.url, resource, version.sizeBytes);
    const node = tx.get('node', asked.ino);
    // Unchanged if, during the request, the file was written, replaced or removed, or a listing showed other bytes.
    const isListedSame = isSameServiceTime(node?.remote?.modified ?? null, asked.remote?.modified ?? null);
    const isSame = node?.remote?.resource === resource && isListedSame;
    if (
      node?.local == null ||
      node.remote == null ||
      !isSame ||
      (node.local.content !== null && !mayBeReplaced(node))
    ) {
      // Only the lease keeps it from collection.
      if (tx.get('content', content)?.refs === 0) tx.put('garbage', content, true);
      return { content, other: null };
    }
    const longerBytes = version.sizeBytes - node.local.sizeBytes;
    const isOther = longerBytes !== 0 || (node.local.content !== null && node.local.content !== content);
    const mtime = isOther && version.lastModifiedMs !== null ? timespecOfMs(version.lastModifiedMs) : node.local.mtime;
    // Keep the listing's time: if this version is newer, the next listing shows it and the history is requested again.
    const modified = revalidated(node.remote.modified);
    const remote = { ...node.remote, content, sizeBytes: version.sizeBytes, modified };
    const local: LocalFacet = { ...node.local, content, sizeBytes: version.sizeBytes, mtime };
    writeNode(tx, node, { ...node, local, remote }, clock.nowMs());
    return { content, other: isOther ? { longerBytes } : null };
  }, 'learnt');
}

/**
 * The remote facet of locally changed bytes names their base: `base`, which the open handles hold since before a listing showed another
 * version. The author of the change has not seen that other version (`sync/conflict`).
 */
export function madeOver(reported: RemoteFacet, base: ContentId, store: StoreReader): RemoteFacet {
  const { kind, resource, sizeBytes } = store.get('content', base) ?? {};
  const content = kind === 'version' && resource === reported.resource ? base : null;
  const modified = reported.modified === null ? null : boundBefore(reported.modified);
  return { ...reported, content, sizeBytes: sizeBytes ?? reported.sizeBytes, modified, createdHereMs: null };
}

/**
 * The draft that a plain PUT sent as the first version of the file, whose response did not name it (`sync/unidentified-versions`), if that
 * version is `version`. Given another content for the same bytes, a file that is open would count as changed elsewhere.
 */
function firstUploadOf(
  store: StoreReader,
  ino: Inode,
  resource: ResourceUrl,
  version: NewestVersion,
): ContentId | null {
  const { local, remote } = store.get('node', ino) ?? {};
  const content = local?.content;
  if (!version.isFirst || content == null || remote?.content !== content || remote.resource !== resource) return null;
  const record = store.get('content', content);
  const isOurs = record?.kind === 'draft' && record.sealed && record.resource === resource;
  const isSame = record?.sizeBytes === version.sizeBytes && mayBeTimeOf(remote.modified, version.lastModifiedMs);
  return isOurs && isSame ? content : null;
}

import { ProtocolError } from '../../base/errors.ts';
import type { RemoteEntry, RemoteFile, RemoteFolder, RemoteVersion, UploadProgress } from '../../base/resources.ts';
import type { ResourceUrl, VersionUrl } from '../../base/vocabulary.ts';
import type {
  CollectionContentsDocument,
  FileDocument,
  FileEntryDocument,
  FileVersionDocument,
  FileVersionsDocument,
  UserDocument,
} from '../../protocol/messages.ts';
import type { AccountUser } from './account.ts';

/** From documents to plain objects. Pure. */

/** A page's entries in the service's order: collections first, then files (docs/service.md 5.2). */
export function entriesOf(document: CollectionContentsDocument): readonly RemoteEntry[] {
  const folders = document.collections.map(
    (entry): RemoteFolder => ({ kind: 'folder', url: entry.ref as ResourceUrl, name: entry.displayName }),
  );
  return [...folders, ...document.files.map((entry) => fileOf(entry.ref as ResourceUrl, entry))];
}

export function fileOf(url: ResourceUrl, document: FileDocument | FileEntryDocument): RemoteFile {
  const { size } = document;
  // A file without data has size -1 and the flag false. If the listing omits the flag, the size decides.
  const presentOnServer = (document.presentOnServer ?? size >= 0) && size >= 0;
  return {
    kind: 'file',
    url,
    name: document.displayName,
    sizeBytes: presentOnServer ? size : null,
    lastModifiedMs: document.lastModified ?? null,
    mediaType: document.mediaType ?? null,
    presentOnServer,
  };
}

/** @throws ProtocolError for a version without a length */
export function progressOf(document: FileVersionDocument): UploadProgress {
  const complete = document.presentOnServer;
  const bytes = complete ? document.size : document.storedSize;
  // The length is the service's only end-to-end check: without it the version cannot be verified.
  if (bytes === undefined || bytes < 0) {
    throw new ProtocolError(`fileVersion: no ${complete ? 'size' : 'storedSize'} where presentOnServer is ${complete}`);
  }
  return { complete, receivedBytes: bytes };
}

/** The versions of one page. @throws ProtocolError for one without a URL, or a complete one without a length */
export function versionsOf(document: FileVersionsDocument): readonly RemoteVersion[] {
  return document.versions.map((version) => {
    // The progress of another client's upload is not used: a version without a number is skipped.
    const isUnknown = !version.presentOnServer && version.storedSize === undefined;
    const { complete, receivedBytes } = isUnknown ? { complete: false, receivedBytes: 0 } : progressOf(version);
    return {
      url: versionUrlOf(version),
      sizeBytes: receivedBytes,
      complete,
      lastModifiedMs: version.lastModified ?? null,
      mediaType: version.mediaType ?? null,
    };
  });
}

/** Without `ref` (docs/service.md 7.3), the version's URL is derived from that of its data. */
function versionUrlOf(version: FileVersionDocument): VersionUrl {
  const url = version.ref ?? version.fileData?.replace(/\/data$/, '');
  if (url === undefined) throw new ProtocolError('fileVersion: neither ref nor fileData');
  return url as VersionUrl;
}

/** @throws ProtocolError for links that cannot be used */
export function userOf(document: UserDocument, url: string): AccountUser {
  const link = (contents: string | undefined) =>
    contents === undefined ? null : (containerOf(contents) as ResourceUrl);
  return {
    url,
    username: document.username,
    nickname: document.nickname ?? null,
    quota: document.quota === undefined ? null : { limitBytes: document.quota.limit, usedBytes: document.quota.usage },
    syncFolders: containerOf(document.syncfolders),
    home: document.magicBriefcase as ResourceUrl,
    deletedFiles: document.deleted as ResourceUrl,
    webArchive: (document.webArchive ?? null) as ResourceUrl | null,
    mobilePhotos: (document.mobilePhotos ?? null) as ResourceUrl | null,
    workspaces: link(document.workspaces),
    albums: link(document.albums),
    publicLinks: link(document.publicLinks),
    receivedShares: document.receivedShares ?? null,
  };
}

/** The container of a `…/contents` link: other clients depend on the suffix too (docs/service.md 13.1). */
function containerOf(contents: string): ResourceUrl {
  if (!contents.endsWith('/contents'))
    throw new ProtocolError(`user: a collection link without /contents: ${contents}`);
  return contents.slice(0, -'/contents'.length) as ResourceUrl;
}

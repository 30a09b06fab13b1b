import { dsidOf, type Endpoint, parseUrl, pathOf, type ResourceId, SYSTEM_FOLDERS } from '../protocol/endpoints.ts';
import type {
  AlbumDocument,
  CollectionContentsDocument,
  CollectionEntryDocument,
  FileDocument,
  FileEntryDocument,
  FileVersionDocument,
  FolderDocument,
  ImageDocument,
  ReceivedShareDocument,
  SharingDocument,
  UserDocument,
  WorkspaceDocument,
} from '../protocol/messages.ts';
import { endOf, type Page } from './list-page.ts';
import { forbidden } from './refusal.ts';
import {
  type FileRow,
  type FolderRow,
  type ResourceRow,
  TOP,
  type UserRow,
  type VersionRow,
  type WorkspaceRow,
} from './rows.ts';

/** Converts rows to documents: every id becomes a URL below the server's origin. */
export class Documents {
  readonly #origin: string;

  constructor(deps: { origin: string }) {
    this.#origin = deps.origin;
  }

  url(endpoint: Endpoint): string {
    return this.#origin + pathOf(endpoint);
  }

  /** The endpoint of a URL of this server; null for any other text. */
  parse(url: string): Endpoint | null {
    return parseUrl(this.#origin, url.trim());
  }

  /** The folder of a `parent` URL. @throws Refusal 403 for a URL of another server. ASSUMED (docs/service.md 2.4) */
  parentOf(url: string): ResourceId {
    const endpoint = this.parse(url);
    if (endpoint?.kind !== 'folder') throw forbidden('Not allowed');
    return endpoint.id;
  }

  user(row: UserRow, usage: number): UserDocument {
    const { uid } = row;
    const collection = (
      name: 'folders' | 'workspaces' | 'albums' | 'receivedShares' | 'publicLinks' | 'recentActivities',
    ) => this.url({ kind: 'userCollectionContents', uid, collection: name });
    const folder = (local: string) => this.url({ kind: 'folder', id: { uid, local } });
    return {
      username: row.email,
      nickname: row.nickname,
      quota: { limit: row.quotaBytes, usage },
      workspaces: collection('workspaces'),
      syncfolders: collection('folders'),
      deleted: folder(SYSTEM_FOLDERS.deleted),
      magicBriefcase: folder(SYSTEM_FOLDERS.magicBriefcase),
      webArchive: folder(SYSTEM_FOLDERS.webArchive),
      mobilePhotos: folder(SYSTEM_FOLDERS.mobilePhotos),
      albums: collection('albums'),
      recentActivities: collection('recentActivities'),
      receivedShares: collection('receivedShares'),
      publicLinks: collection('publicLinks'),
      maximumPublicLinkSize: 25,
    };
  }

  /** @param showsParent false for the top of a share: the receiver must not see its parent */
  folder(row: FolderRow, sharing: SharingDocument, showsParent: boolean): FolderDocument {
    const contents = this.url({ kind: 'folderContents', id: row });
    const parent = this.url({ kind: 'folder', id: { uid: row.uid, local: row.parent } });
    return {
      displayName: row.name,
      dsid: dsidOf(row),
      timeCreated: row.createdMs,
      ...(row.parent === TOP || !showsParent ? {} : { parent }),
      collections: `${contents}?type=folder`,
      files: `${contents}?type=file`,
      contents,
      sharing,
    };
  }

  /**
   * @param image null unless the file is an image
   * @param showsLink false for a receiver: he would keep the link after the share ends
   */
  file(row: FileRow, image: ImageDocument | null, showsLink: boolean): FileDocument {
    const enabled = row.publicLink !== null;
    const url = showsLink ? row.publicLink : null;
    return {
      displayName: row.name,
      dsid: dsidOf(row),
      timeCreated: row.createdMs,
      parent: this.url({ kind: 'folder', id: { uid: row.uid, local: row.parent } }),
      ...this.#filling(row),
      versions: this.url({ kind: 'fileVersions', id: row }),
      publicLink: url === null ? { enabled } : { enabled, url: this.url({ kind: 'publicLink', token: url }) },
      ...(image === null ? {} : { image }),
    };
  }

  contents(page: Page<ResourceRow>): CollectionContentsDocument {
    return {
      ...boundsOf(page),
      collections: page.entries.flatMap((row) => (row.kind === 'folder' ? [this.collection(row, 'folder')] : [])),
      files: page.entries.flatMap((row) => (row.kind === 'file' ? [this.#fileEntry(row)] : [])),
    };
  }

  /** A listing of folders only, each with the given type. */
  collections(page: Page<CollectionEntryDocument>): CollectionContentsDocument {
    return { ...boundsOf(page), collections: page.entries, files: [] };
  }

  collection(
    row: { uid: string; local: string; name: string },
    type: 'folder' | 'syncFolder' | 'album',
  ): CollectionEntryDocument {
    const [kind, contents] =
      type === 'album' ? (['album', 'albumContents'] as const) : (['folder', 'folderContents'] as const);
    return {
      type,
      displayName: row.name,
      ref: this.url({ kind, id: row }),
      contents: this.url({ kind: contents, id: row }),
    };
  }

  workspaceEntry(row: WorkspaceRow): CollectionEntryDocument {
    const ref = this.url({ kind: 'workspace', id: row });
    return { type: 'workspace', displayName: row.name, ref, iconId: row.iconId, contents: `${ref}/contents` };
  }

  workspace(row: WorkspaceRow): WorkspaceDocument {
    const contents = this.url({ kind: 'workspaceContents', id: row });
    const { name: displayName, createdMs: timeCreated, iconId } = row;
    return { displayName, dsid: dsidOf(row), timeCreated, collections: `${contents}?type=folder`, contents, iconId };
  }

  album(row: FolderRow): AlbumDocument {
    const contents = this.url({ kind: 'albumContents', id: row });
    return { displayName: row.name, dsid: dsidOf(row), files: `${contents}?type=file`, contents };
  }

  /** @param storedBytes bytes stored of an incomplete version */
  version(row: VersionRow, storedBytes: number): FileVersionDocument {
    const { lastModifiedMs: lastModified, mediaType, complete: presentOnServer } = row;
    const fileData = this.url({ kind: 'fileVersionData', id: { uid: row.uid, local: row.file }, version: row.version });
    const size = row.complete ? { size: row.sizeBytes } : { storedSize: storedBytes };
    return { ...size, lastModified, mediaType, presentOnServer, fileData };
  }

  versionUrl(row: VersionRow): string {
    return this.url({ kind: 'fileVersion', id: { uid: row.uid, local: row.file }, version: row.version });
  }

  receivedShare(
    receiver: string,
    folder: FolderRow,
    share: { readonly writeAllowed: boolean; readonly createdMs: number },
  ): ReceivedShareDocument {
    return {
      ref: this.url({ kind: 'receivedShare', uid: receiver, id: folder }),
      displayName: folder.name,
      timeReceived: share.createdMs,
      sharedFolder: this.url({ kind: 'folder', id: folder }),
      permissions: { readAllowed: true, writeAllowed: share.writeAllowed },
      owner: this.url({ kind: 'contact', uid: receiver, contact: folder.uid }),
    };
  }

  #fileEntry(row: FileRow): FileEntryDocument {
    return { displayName: row.name, ref: this.url({ kind: 'file', id: row }), ...this.#filling(row) };
  }

  /** A file without data has size -1 and no data link (docs/service.md 5.4). */
  #filling(row: FileRow) {
    const { newest, mediaType } = row;
    if (newest === null) return { size: -1, lastModified: row.createdMs, mediaType, presentOnServer: false };
    return {
      size: newest.sizeBytes,
      lastModified: newest.lastModifiedMs,
      mediaType,
      presentOnServer: true,
      fileData: this.url({ kind: 'fileData', id: row }),
    };
  }
}

function boundsOf(page: Page<unknown>) {
  return { start: page.start, hasMore: page.hasMore, end: endOf(page) };
}

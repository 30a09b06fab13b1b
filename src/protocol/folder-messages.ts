import { flag, instant, integer, many, only, optional, record, text, word } from './codec.ts';
import { decoderOf, encoderOf } from './xml.ts';

/** Folders and listings (docs/service.md 5). */

export interface SharingDocument {
  readonly enabled: boolean;
  readonly readAllowed?: boolean | undefined;
  readonly writeAllowed?: boolean | undefined;
  readonly shareList?: string | undefined;
}

/** GET folder. */
export interface FolderDocument {
  readonly displayName: string;
  readonly dsid?: string | undefined;
  readonly timeCreated?: number | undefined;
  /** URL of the parent folder; absent for a top-level folder. */
  readonly parent?: string | undefined;
  readonly collections?: string | undefined;
  readonly files?: string | undefined;
  readonly contents: string;
  readonly sharing?: SharingDocument | undefined;
}

/** POST into a folder: the new folder's name is the only parameter. */
export interface NewFolderDocument {
  readonly displayName: string;
}

/** PUT folder: absent fields stay unchanged. Other elements are ignored (docs/service.md 5.5). */
export interface FolderUpdateDocument {
  readonly displayName?: string | undefined;
  /** URL of the new parent. */
  readonly parent?: string | undefined;
}

/** POST /user/UID/folders. */
export interface SyncFolderDocument {
  readonly displayName: string;
}

export interface CollectionEntryDocument {
  /**
   * `folder`, `syncFolder`, `workspace` or `album`. Written for other clients; this one knows the kind from the
   * requested URL.
   */
  readonly type?: string | undefined;
  readonly displayName: string;
  readonly ref: string;
  /** Workspaces only. */
  readonly iconId?: string | undefined;
  readonly contents?: string | undefined;
}

export interface FileEntryDocument {
  readonly displayName: string;
  readonly ref: string;
  /** Bytes; -1 for a file without data. */
  readonly size: number;
  readonly lastModified?: number | undefined;
  readonly mediaType?: string | undefined;
  readonly presentOnServer?: boolean | undefined;
  /** Absent for a file without data. */
  readonly fileData?: string | undefined;
}

/** One page of a listing: collections first, then files. */
export interface CollectionContentsDocument {
  readonly start?: number | undefined;
  readonly hasMore?: boolean | undefined;
  /**
   * Index of the *last* entry of the page, `start` for an empty one (docs/service.md 13.5; the prose counts it
   * differently). Written for other clients; must not be used in calculations.
   */
  readonly end?: number | undefined;
  readonly collections: readonly CollectionEntryDocument[];
  readonly files: readonly FileEntryDocument[];
}

const folder = record<FolderDocument>({
  displayName: ['displayName', text],
  dsid: ['dsid', optional(word)],
  timeCreated: ['timeCreated', optional(instant)],
  parent: ['parent', optional(word)],
  collections: ['collections', optional(word)],
  files: ['files', optional(word)],
  contents: ['contents', word],
  sharing: [
    'sharing',
    optional(
      record<SharingDocument>({
        enabled: ['@enabled', flag],
        readAllowed: ['readAllowed', optional(only('@enabled', flag))],
        writeAllowed: ['writeAllowed', optional(only('@enabled', flag))],
        shareList: ['shareList', optional(word)],
      }),
    ),
  ],
});

const newFolder = record<NewFolderDocument>({ displayName: ['displayName', text] });

const folderUpdate = record<FolderUpdateDocument>({
  displayName: ['displayName', optional(text)],
  parent: ['parent', optional(word)],
});

const syncFolder = record<SyncFolderDocument>({ displayName: ['displayName', text] });

const collectionContents = record<CollectionContentsDocument>({
  start: ['@start', optional(integer)],
  hasMore: ['@hasMore', optional(flag)],
  end: ['@end', optional(integer)],
  collections: [
    'collection',
    many(
      record<CollectionEntryDocument>({
        type: ['@type', optional(text)],
        displayName: ['displayName', text],
        ref: ['ref', word],
        iconId: ['iconId', optional(text)],
        contents: ['contents', optional(word)],
      }),
    ),
  ],
  files: [
    'file',
    many(
      record<FileEntryDocument>({
        displayName: ['displayName', text],
        ref: ['ref', word],
        size: ['size', integer],
        lastModified: ['lastModified', optional(instant)],
        mediaType: ['mediaType', optional(text)],
        presentOnServer: ['presentOnServer', optional(flag)],
        fileData: ['fileData', optional(word)],
      }),
    ),
  ],
});

export const decodeFolder = decoderOf('folder', folder);
export const encodeFolder = encoderOf('folder', folder);
export const decodeNewFolder = decoderOf('folder', newFolder);
export const encodeNewFolder = encoderOf('folder', newFolder);
export const decodeFolderUpdate = decoderOf('folder', folderUpdate);
export const encodeFolderUpdate = encoderOf('folder', folderUpdate);
export const decodeSyncFolder = decoderOf('syncFolder', syncFolder);
export const encodeSyncFolder = encoderOf('syncFolder', syncFolder);
export const decodeCollectionContents = decoderOf('collectionContents', collectionContents);
export const encodeCollectionContents = encoderOf('collectionContents', collectionContents);

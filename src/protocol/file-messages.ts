import { flag, instant, integer, many, optional, record, text, word } from './codec.ts';
import { decoderOf, encoderOf } from './xml.ts';

/** Files and their versions (docs/service.md 6 and 7). */

export interface PublicLinkDocument {
  readonly enabled: boolean;
  /** The link, if there is one. */
  readonly url?: string | undefined;
}

/** Image properties; absent for a file that is not an image. */
export interface ImageDocument {
  /** Pixels, as stored, before rotation. */
  readonly height?: number | undefined;
  readonly width?: number | undefined;
  /** Clockwise rotation, in degrees, that makes the image upright. ASSUMED (docs/service.md 6.2) */
  readonly rotation?: number | undefined;
}

/** GET file, and the response to PUT file. It has no `ref`. */
export interface FileDocument {
  readonly displayName: string;
  readonly dsid?: string | undefined;
  readonly timeCreated?: number | undefined;
  readonly parent?: string | undefined;
  /** Bytes; -1 for a file without data. */
  readonly size: number;
  readonly lastModified?: number | undefined;
  readonly mediaType?: string | undefined;
  readonly presentOnServer?: boolean | undefined;
  /** Absent for a file without data. */
  readonly fileData?: string | undefined;
  readonly versions?: string | undefined;
  readonly publicLink?: PublicLinkDocument | undefined;
  readonly image?: ImageDocument | undefined;
}

/** POST into a folder. */
export interface NewFileDocument {
  readonly displayName: string;
  readonly mediaType?: string | undefined;
}

/** PUT file: absent fields stay unchanged. Other elements are ignored (docs/service.md 6.5). */
export interface FileUpdateDocument {
  readonly displayName?: string | undefined;
  readonly mediaType?: string | undefined;
  /** URL of the new parent. */
  readonly parent?: string | undefined;
  readonly publicLink?: PublicLinkDocument | undefined;
}

/** POST into the target folder of the copy. */
export interface FileCopyDocument {
  /** URL of the file to be copied. */
  readonly source: string;
  readonly displayName: string;
}

export interface FileVersionDocument {
  /** Bytes of a complete version. */
  readonly size?: number | undefined;
  /** Bytes stored of an incomplete version. */
  readonly storedSize?: number | undefined;
  readonly lastModified?: number | undefined;
  readonly mediaType?: string | undefined;
  readonly presentOnServer: boolean;
  readonly fileData?: string | undefined;
  /** The version's URL: in lists only (docs/service.md 7.3). */
  readonly ref?: string | undefined;
}

/** Newest first. */
export interface FileVersionsDocument {
  readonly start?: number | undefined;
  readonly hasMore?: boolean | undefined;
  readonly end?: number | undefined;
  readonly versions: readonly FileVersionDocument[];
}

const publicLink = record<PublicLinkDocument>({ enabled: ['@enabled', flag], url: ['#text', optional(word)] });

const file = record<FileDocument>({
  displayName: ['displayName', text],
  dsid: ['dsid', optional(word)],
  timeCreated: ['timeCreated', optional(instant)],
  parent: ['parent', optional(word)],
  size: ['size', integer],
  lastModified: ['lastModified', optional(instant)],
  mediaType: ['mediaType', optional(text)],
  presentOnServer: ['presentOnServer', optional(flag)],
  fileData: ['fileData', optional(word)],
  versions: ['versions', optional(word)],
  publicLink: ['publicLink', optional(publicLink)],
  image: [
    'image',
    optional(
      record<ImageDocument>({
        height: ['height', optional(integer)],
        width: ['width', optional(integer)],
        rotation: ['rotation', optional(integer)],
      }),
    ),
  ],
});

const newFile = record<NewFileDocument>({
  displayName: ['displayName', text],
  mediaType: ['mediaType', optional(text)],
});

const fileUpdate = record<FileUpdateDocument>({
  displayName: ['displayName', optional(text)],
  mediaType: ['mediaType', optional(text)],
  parent: ['parent', optional(word)],
  publicLink: ['publicLink', optional(publicLink)],
});

const fileCopy = record<FileCopyDocument>({ source: ['@source', word], displayName: ['displayName', text] });

const fileVersion = record<FileVersionDocument>({
  size: ['size', optional(integer)],
  storedSize: ['storedSize', optional(integer)],
  lastModified: ['lastModified', optional(instant)],
  mediaType: ['mediaType', optional(text)],
  presentOnServer: ['presentOnServer', flag],
  fileData: ['fileData', optional(word)],
  ref: ['ref', optional(word)],
});

const fileVersions = record<FileVersionsDocument>({
  start: ['@start', optional(integer)],
  hasMore: ['@hasMore', optional(flag)],
  end: ['@end', optional(integer)],
  versions: ['fileVersion', many(fileVersion)],
});

export const decodeFile = decoderOf('file', file);
export const encodeFile = encoderOf('file', file);
export const decodeNewFile = decoderOf('file', newFile);
export const encodeNewFile = encoderOf('file', newFile);
export const decodeFileUpdate = decoderOf('file', fileUpdate);
export const encodeFileUpdate = encoderOf('file', fileUpdate);
export const decodeFileCopy = decoderOf('fileCopy', fileCopy);
export const encodeFileCopy = encoderOf('fileCopy', fileCopy);
export const decodeFileVersions = decoderOf('fileVersions', fileVersions);
export const encodeFileVersions = encoderOf('fileVersions', fileVersions);
export const decodeFileVersion = decoderOf('fileVersion', fileVersion);
export const encodeFileVersion = encoderOf('fileVersion', fileVersion);

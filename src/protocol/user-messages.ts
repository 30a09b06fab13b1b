import { flag, instant, integer, many, only, optional, record, roomBytes, text, word } from './codec.ts';
import { decoderOf, encoderOf } from './xml.ts';

/**
 * A user and the account's other resources (docs/service.md 4, 8 and 9): workspaces, albums, received shares, contacts.
 * Only fields that a client needs are required.
 */

export interface QuotaDocument {
  readonly limit: number;
  readonly usage: number;
}

export interface UserDocument {
  readonly username: string;
  readonly nickname?: string | undefined;
  readonly salt?: string | undefined;
  /** In bytes. */
  readonly quota?: QuotaDocument | undefined;
  readonly workspaces?: string | undefined;
  /** URL of the listing of the sync folders; ends in `/contents`. */
  readonly syncfolders: string;
  readonly deleted: string;
  readonly magicBriefcase: string;
  readonly webArchive?: string | undefined;
  readonly mobilePhotos?: string | undefined;
  readonly albums?: string | undefined;
  readonly recentActivities?: string | undefined;
  readonly receivedShares?: string | undefined;
  readonly publicLinks?: string | undefined;
  // ASSUMED (docs/service.md 4.1): in MB, as the only known value is 25.
  readonly maximumPublicLinkSize?: number | undefined;
}

export interface WorkspaceDocument {
  readonly displayName: string;
  readonly dsid?: string | undefined;
  readonly timeCreated?: number | undefined;
  readonly collections?: string | undefined;
  readonly files?: string | undefined;
  readonly contents: string;
  readonly iconId?: string | undefined;
}

/** PUT workspace: only the name can be changed. */
export interface WorkspaceUpdateDocument {
  readonly displayName?: string | undefined;
}

export interface AlbumDocument {
  readonly displayName: string;
  readonly dsid?: string | undefined;
  readonly files?: string | undefined;
  readonly contents: string;
}

export interface PermissionsDocument {
  readonly readAllowed: boolean;
  readonly writeAllowed: boolean;
}

export interface ReceivedShareDocument {
  /** The share's own URL; an attribute, and only there in lists. */
  readonly ref?: string | undefined;
  readonly displayName: string;
  readonly timeReceived?: number | undefined;
  /** URL of the folder, under its owner's id. */
  readonly sharedFolder: string;
  readonly permissions: PermissionsDocument;
  /** URL of the contact. */
  readonly owner?: string | undefined;
}

export interface ReceivedSharesDocument {
  readonly shares: readonly ReceivedShareDocument[];
}

export interface ContactDocument {
  readonly primaryEmailAddress: string;
  readonly firstName?: string | undefined;
  readonly lastName?: string | undefined;
}

const user = record<UserDocument>({
  username: ['username', text],
  nickname: ['nickname', optional(text)],
  salt: ['salt', optional(text)],
  quota: ['quota', optional(record<QuotaDocument>({ limit: ['limit', roomBytes], usage: ['usage', roomBytes] }))],
  workspaces: ['workspaces', optional(word)],
  syncfolders: ['syncfolders', word],
  deleted: ['deleted', word],
  magicBriefcase: ['magicBriefcase', word],
  webArchive: ['webArchive', optional(word)],
  mobilePhotos: ['mobilePhotos', optional(word)],
  albums: ['albums', optional(word)],
  recentActivities: ['recentActivities', optional(word)],
  receivedShares: ['receivedShares', optional(word)],
  publicLinks: ['publicLinks', optional(word)],
  maximumPublicLinkSize: ['maximumPublicLinkSize', optional(integer)],
});

const workspace = record<WorkspaceDocument>({
  displayName: ['displayName', text],
  dsid: ['dsid', optional(word)],
  timeCreated: ['timeCreated', optional(instant)],
  collections: ['collections', optional(word)],
  files: ['files', optional(word)],
  contents: ['contents', word],
  // Some pages of the vendor's documentation write iconID; clients and listings use iconId (docs/service.md 13.8).
  iconId: ['iconId', optional(text)],
});

const workspaceUpdate = record<WorkspaceUpdateDocument>({ displayName: ['displayName', optional(text)] });

const album = record<AlbumDocument>({
  displayName: ['displayName', text],
  dsid: ['dsid', optional(word)],
  files: ['files', optional(word)],
  contents: ['contents', word],
});

const receivedShare = record<ReceivedShareDocument>({
  ref: ['@ref', optional(word)],
  displayName: ['displayName', text],
  timeReceived: ['timeReceived', optional(instant)],
  sharedFolder: ['sharedFolder', word],
  permissions: [
    'permissions',
    record<PermissionsDocument>({
      readAllowed: ['readAllowed', only('@enabled', flag)],
      writeAllowed: ['writeAllowed', only('@enabled', flag)],
    }),
  ],
  owner: ['owner', optional(word)],
});

const receivedShares = record<ReceivedSharesDocument>({ shares: ['receivedShare', many(receivedShare)] });

const contact = record<ContactDocument>({
  primaryEmailAddress: ['primaryEmailAddress', text],
  firstName: ['firstName', optional(text)],
  lastName: ['lastName', optional(text)],
});

export const decodeUser = decoderOf('user', user);
export const encodeUser = encoderOf('user', user);
export const decodeWorkspace = decoderOf('workspace', workspace);
export const encodeWorkspace = encoderOf('workspace', workspace);
export const decodeWorkspaceUpdate = decoderOf('workspace', workspaceUpdate);
export const encodeWorkspaceUpdate = encoderOf('workspace', workspaceUpdate);
export const decodeAlbum = decoderOf('album', album);
export const encodeAlbum = encoderOf('album', album);
export const decodeReceivedShares = decoderOf('receivedShares', receivedShares);
export const encodeReceivedShares = encoderOf('receivedShares', receivedShares);
export const decodeReceivedShare = decoderOf('receivedShare', receivedShare);
export const encodeReceivedShare = encoderOf('receivedShare', receivedShare);
export const decodeContact = decoderOf('contact', contact);
export const encodeContact = encoderOf('contact', contact);

import type { ResourceUrl } from '../base/vocabulary.ts';

/** Account data (not folder data) as plain objects. Links are null if the service sends none. */

export interface RemoteUser {
  /** The user's own URL, under which its collections lie: `{base}/user/<uid>`. */
  readonly url: string;
  readonly username: string;
  readonly nickname: string | null;
  readonly quota: { readonly limitBytes: number; readonly usedBytes: number } | null;
  /** Container of the top-level folders: listed like a folder, and folders are created in it. */
  readonly syncFolders: ResourceUrl;
  readonly magicBriefcase: ResourceUrl;
  readonly deletedFiles: ResourceUrl;
  readonly webArchive: ResourceUrl | null;
  readonly mobilePhotos: ResourceUrl | null;
  /** Containers, listed like folders. */
  readonly workspaces: ResourceUrl | null;
  readonly albums: ResourceUrl | null;
  readonly publicLinks: ResourceUrl | null;
  /** URL of the document with the received shares. */
  readonly receivedShares: string | null;
}

export interface RemoteCollection {
  readonly url: ResourceUrl;
  readonly name: string;
}

export interface RemoteShare {
  readonly url: string | null;
  readonly name: string;
  /** The shared folder, under its owner's id: used like any folder. */
  readonly folder: ResourceUrl;
  readonly timeReceivedMs: number | null;
  readonly mayRead: boolean;
  readonly mayWrite: boolean;
  /** URL of the contact it came from. */
  readonly owner: string | null;
}

/** Image metadata (docs/service.md 6.2). */
export interface RemoteImage {
  /** As stored, before rotation. */
  readonly widthPixels: number | null;
  readonly heightPixels: number | null;
  /** Clockwise rotation, in degrees, that makes the image upright. */
  readonly rotation: number;
}

export interface RemoteContact {
  readonly emailAddress: string;
  readonly firstName: string | null;
  readonly lastName: string | null;
}

/** Input for a new refresh token; never stored. */
export interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** Identifies the application to the service. */
export interface ApplicationKeys {
  /** Path-like: `/sc/<uid>/<id>`. */
  readonly application: string;
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
}

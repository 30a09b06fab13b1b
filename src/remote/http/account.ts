import type { ResourceUrl } from '../../base/vocabulary.ts';
import type { RemoteUser } from '../contract.ts';

/** Account data (not folder data) as plain objects. Links are null if the service sends none. */

/** `home` is the service's *Magic Briefcase*; `url` is `{base}/user/<uid>`, under which the user's collections lie. */
export interface AccountUser extends RemoteUser {
  readonly nickname: string | null;
  /** Container of the top-level folders: listed like a folder, and folders are created in it. */
  readonly syncFolders: ResourceUrl;
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

export interface RemoteContact {
  readonly emailAddress: string;
  readonly firstName: string | null;
  readonly lastName: string | null;
}

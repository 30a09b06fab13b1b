import type {
  ListingPage,
  NewestBytes,
  NewestVersion,
  RemoteEntry,
  RemoteFile,
  RemoteResource,
  RemoteVersion,
  UploadProgress,
} from '../base/resources.ts';
import type { Extent, NodeKind, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';

/**
 * What a mount needs of a service. `transfer/` and the commands name these interfaces and no implementation.
 *
 * Members of `RemoteService` are required. A capability is a member that is null where the service does not have it; the
 * table says what a mount does then.
 *
 * | capability | without it |
 * | --- | --- |
 * | `uploads` | the mount is read-only |
 * | `trash` | a mount needs `--delete forever`; `cfs trash` is refused |
 * | `copies` | a save whose old file was renamed, and the rename pushed, becomes a new file (S-version-14) |
 * | `links` | `user.cfs.public_link` is `off` and cannot be set |
 * | `pictures` | `user.cfs.thumbnail` is ENODATA; no previews in the page |
 * | `downloads` | all bytes pass through JavaScript |
 * | `wholeAccount` | no `--root account` |
 *
 * URLs are opaque identities. A `ResourceUrl` names a file or folder, also after a rename; a service that changes it then
 * returns the new one. A `VersionUrl` names immutable bytes: a service without a history reports one version for each file,
 * under a URL that changes with the bytes.
 *
 * Every method may throw ApiError (the service refused), TransportError (outcome unknown), SignInError (the user must sign
 * in again), ProtocolError (an unexpected response), or the signal's reason.
 */
export interface RemoteService extends RemoteReading {
  /** Whether the service refuses the saved sign-in. */
  readonly signInRequired: boolean;
  /** Requests since the start. */
  readonly requestCounts: { readonly sent: number; readonly repeated: number };

  /** The user who is signed in. Cheap, and always answered with success: it also probes the connection. */
  user(signal?: AbortSignal): Promise<RemoteUser>;
  /**
   * Signs in with a password and uses the resulting token from then on.
   * @returns the token, for storage; the password is not kept
   * @throws SignInError if the service refuses
   */
  signIn(credentials: Credentials, signal?: AbortSignal): Promise<string>;
  /** Switches to the keys and the token of a new sign-in. */
  useSignIn(keys: ApplicationKeys, refreshToken: string): void;
  close(): Promise<void>;

  /** All entries of a folder, each once. Recovery of a lost request depends on it. */
  list(folder: ResourceUrl, signal?: AbortSignal): Promise<readonly RemoteEntry[]>;

  /** Not retried automatically: after a TransportError, list the parent before trying again. */
  createFolder(parent: ResourceUrl, name: string, signal?: AbortSignal): Promise<ResourceUrl>;
  /** Makes a file without data. Not retried automatically. */
  createFile(parent: ResourceUrl, name: string, mediaType: string, signal?: AbortSignal): Promise<ResourceUrl>;
  /** Sets name and parent, always both. @returns the URL from now on */
  relocate(
    url: ResourceUrl,
    kind: NodeKind,
    parent: ResourceUrl,
    name: string,
    signal?: AbortSignal,
  ): Promise<ResourceUrl>;
  /** Deletes permanently; a folder must be empty. @returns null if it did not exist, which is success */
  deleteForever(url: ResourceUrl, kind: NodeKind, signal?: AbortSignal): Promise<'deleted' | null>;

  readonly uploads: Uploads | null;
  readonly trash: Trash | null;
  readonly copies: Copies | null;
  readonly links: PublicLinks | null;
  readonly pictures: Pictures | null;
  readonly wholeAccount: WholeAccount | null;
}

/** Listing and reading: what a mount shows. The whole account as one tree (`WholeAccount`) answers the same questions. */
export interface RemoteReading {
  /** One page of a folder, from entry `start` on. The next page starts at `start + entries.length`. */
  listPage(folder: ResourceUrl, start: number, signal?: AbortSignal): Promise<ListingPage>;
  /** The current state of the resource, under its new URL if the service moved it; null if it does not exist. */
  resource(url: ResourceUrl, kind: NodeKind, signal?: AbortSignal): Promise<RemoteResource | null>;
  /** A file's versions, newest first, complete and incomplete ones. @throws ApiError 404 for a file that does not exist */
  versions(file: ResourceUrl, signal?: AbortSignal): Promise<readonly RemoteVersion[]>;
  /** The newest complete version; null if the file has none or does not exist. */
  newestVersion(file: ResourceUrl, signal?: AbortSignal): Promise<NewestVersion | null>;
  /** The newest complete version of that length; null when the file has none. */
  versionOfLength(file: ResourceUrl, sizeBytes: number, signal?: AbortSignal): Promise<RemoteVersion | null>;
  /**
   * Bytes of the newest version, expected to have `sizeBytes` bytes, in one request and in memory. Null: the service does not name the
   * version that it sent, or it was another range or length. Absent: as if it was always null.
   */
  readNewest?(file: ResourceUrl, extent: Extent, sizeBytes: number, signal?: AbortSignal): Promise<NewestBytes | null>;
  /** Bytes of a version whose length is known to be `sizeBytes`. @throws ApiError 404 when the version no longer exists */
  readVersion(version: VersionUrl, extent: Extent, sizeBytes: number, signal?: AbortSignal): Promise<IncomingData>;

  readonly downloads: DirectDownloads | null;
}

/** Sending bytes: a first version in one request, and versions that take their bytes in parts. */
export interface Uploads {
  /**
   * A file's bytes in one request: a new version, which cannot be resumed. Not retried automatically.
   * @returns the service's clock at the response, milliseconds since the epoch; null if it is not known
   */
  putFileData(file: ResourceUrl, body: RequestBody, mediaType: string, signal?: AbortSignal): Promise<number | null>;
  /** A new, incomplete version. */
  createVersion(file: ResourceUrl, signal?: AbortSignal): Promise<VersionUrl>;
  /**
   * Sends the bytes from `offset` to the end. The version is complete when all of them have arrived.
   * @throws ApiError 416 if the service holds another number of bytes
   */
  putVersionData(version: VersionUrl, offset: number, body: RequestBody, signal?: AbortSignal): Promise<UploadProgress>;
  /** How much of a version the service holds; null if it does not know the version. */
  versionProgress(version: VersionUrl, signal?: AbortSignal): Promise<UploadProgress | null>;
}

/** A folder for deleted entries. */
export interface Trash {
  /** The folder that lists deleted entries. */
  trashFolder(signal?: AbortSignal): Promise<ResourceUrl>;
  /** Moves there, under its name; a folder with its contents. @returns null if it did not exist, which is success */
  moveToTrash(url: ResourceUrl, kind: NodeKind, name: string, signal?: AbortSignal): Promise<'deleted' | null>;
}

export interface Copies {
  /** Copies a file on the service, bytes and all. Not retried automatically. @returns the copy */
  copyFile(source: ResourceUrl, parent: ResourceUrl, name: string, signal?: AbortSignal): Promise<ResourceUrl>;
}

/** Links under which anyone may read a file. `RemoteReading.resource` then says of each file whether it has one (`isPublic`). */
export interface PublicLinks {
  /** Files that have a link. */
  publicLinks(signal?: AbortSignal): Promise<readonly RemoteFile[]>;
  /** A file's public link; null where it has none. */
  publicLink(file: ResourceUrl, signal?: AbortSignal): Promise<string | null>;
  /** @returns the link now in effect; null after it was removed */
  setPublicLink(file: ResourceUrl, state: 'on' | 'off', signal?: AbortSignal): Promise<string | null>;
}

/** Pictures that the service transcodes. */
export interface Pictures {
  /** Image metadata; null for a file that is not an image. */
  image(file: ResourceUrl, signal?: AbortSignal): Promise<RemoteImage | null>;
  /**
   * A JPEG image in another form. Read it to its end, or leave the loop: both free the connection.
   * @throws ApiError 406 for what cannot be transcoded
   */
  transcodedImage(
    image: ResourceUrl | VersionUrl,
    form: ImageForm,
    signal?: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>>;
}

/** Downloads from the network into a file without passing through JavaScript. */
export interface DirectDownloads {
  /**
   * As `readVersion`, into a file at the bytes' own offsets, as far as that goes.
   * @returns the end of the bytes in the file; `readVersion` fetches the remainder, possibly all
   */
  bringVersion(
    version: VersionUrl,
    extent: Extent,
    sizeBytes: number,
    landing: Landing,
    signal: AbortSignal,
  ): Promise<number>;
}

/** The account with everything in it, for `--root account`. */
export interface WholeAccount {
  /** The top of that tree. */
  top(signal?: AbortSignal): Promise<ResourceUrl>;
  /** @param shownName maps a remote name to its local form: link targets must name what the user sees */
  view(shownName: (name: string) => string): RemoteReading;
}

/** A body of known length that can be sent again from its beginning. */
export interface RequestBody {
  readonly length: number;
  /** A chunk may be overwritten once two more have been asked for. */
  chunks(): AsyncIterable<Uint8Array>;
}

/** A download in progress. `extent` is the range that will arrive; it may be larger than requested. */
export interface IncomingData {
  readonly extent: Extent;
  /** Exactly `extent`, or it rejects. Read it to the end or leave the loop: both free the connection. */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Recycles the memory of a chunk that is no longer read. Optional. */
  takeBack?(chunk: Uint8Array): void;
}

/** Target of a direct download: a file; bytes keep their offsets. */
export interface Landing {
  readonly fd: number;
  /** Called with the end of the bytes now in the file and the checksums of completed blocks. */
  readonly landed: (at: number, checksums: readonly number[]) => void;
  /** Called periodically while bytes arrive, even within an incomplete block. */
  readonly came?: () => void;
}

export interface RemoteUser {
  /** Identifies the account on the service. */
  readonly url: string;
  readonly username: string;
  readonly quota: { readonly limitBytes: number; readonly usedBytes: number } | null;
  /** The folder that a mount shows unless it shows the whole account. */
  readonly home: ResourceUrl;
}

/** Image metadata (docs/service.md 6.2). */
export interface RemoteImage {
  /** As stored, before rotation. */
  readonly widthPixels: number | null;
  readonly heightPixels: number | null;
  /** Clockwise rotation, in degrees, that makes the image upright. */
  readonly rotation: number;
}

/**
 * Requested form of an image (docs/service.md 6.6). It fits into the box and keeps its proportions unless `square` is set.
 */
export interface ImageForm {
  readonly widthMax: number;
  readonly heightMax: number;
  readonly square?: boolean;
  /** Clockwise. */
  readonly quarterTurns?: 0 | 1 | 2 | 3;
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

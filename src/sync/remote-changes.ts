import type { BodyPiece, RemoteEntry, RemoteResource, RemoteVersion, UploadProgress } from '../base/resources.ts';
import type { NodeKind, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';

/**
 * What the sync needs to change names on the service. Satisfied by `transfer/` across the threads, by models in tests.
 * Every method may throw ApiError (the service said no), TransportError (unknown what happened), SignInError.
 */
export interface RemoteChanges {
  /** Makes a folder. Not repeated by itself: after a TransportError the caller looks before it asks again. */
  createFolder(parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl>;
  /** Makes a file without data (a stub, size -1 to others until it is filled). Not repeated by itself. */
  createFile(parent: ResourceUrl, name: string, mediaType: string, signal: AbortSignal): Promise<ResourceUrl>;
  /** Copies a file on the service, bytes and all. Not repeated by itself. */
  copyFile(source: ResourceUrl, parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl>;
  /** Gives name and parent (always both). @returns the URL from now on: the service may change it (301, docs/service.md 13.1) */
  relocate(
    url: ResourceUrl,
    kind: NodeKind,
    parent: ResourceUrl,
    name: string,
    signal: AbortSignal,
  ): Promise<ResourceUrl>;
  /** Moves to *Deleted Files*; a folder goes whole. Gone already is success. */
  moveToTrash(url: ResourceUrl, kind: NodeKind, name: string, signal: AbortSignal): Promise<void>;
  /** Deletes for ever; a folder must be empty (its contents would be orphaned). Gone already is success. */
  deleteForever(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<void>;
  /** All entries of a folder, complete: to find out what a lost request did. */
  list(folder: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteEntry[]>;
  /** The resource as it is now, or null when the service says it does not exist (404), and has answered something else since. */
  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null>;
  /**
   * Resolves once the service has accepted a request that was sent after this call: a refusal that came before it is the service's.
   * @throws TransportError when it did not: a network refuses everything, or the service could not be asked
   */
  confirmed(signal: AbortSignal): Promise<void>;
}

/** What the sync needs to send bytes. `body` is read from local files by the other thread; lengths are exact. */
export interface UploadService {
  /**
   * A created file's first bytes, in one request; cannot be resumed (docs/service.md 6.1).
   * @returns the service's clock when it had them, milliseconds since the epoch; null where it did not say
   */
  putFileData(
    file: ResourceUrl,
    body: readonly BodyPiece[],
    mediaType: string,
    signal: AbortSignal,
  ): Promise<number | null>;
  createVersion(file: ResourceUrl, signal: AbortSignal): Promise<VersionUrl>;
  /** Sends `body`, which is what follows `offset`. @throws ApiError 416 when the service holds another number of bytes */
  putVersionData(
    version: VersionUrl,
    offset: number,
    body: readonly BodyPiece[],
    signal: AbortSignal,
  ): Promise<UploadProgress>;
  /** What the service holds of a version; null when it does not know it (404). */
  versionProgress(version: VersionUrl, signal: AbortSignal): Promise<UploadProgress | null>;
  /** A file's versions, newest first, complete and incomplete ones. */
  versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]>;
}

import type { BodyPiece, RemoteEntry, RemoteResource, RemoteVersion, UploadProgress } from '../base/resources.ts';
import type { NodeKind, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';

/**
 * The changes of names that the sync needs from the service. Implemented by `transfer/` across the threads, and by models in tests. Every
 * method may throw ApiError (the service refused), TransportError (the effect is unknown) and SignInError.
 */
export interface RemoteChanges {
  /** Creates a folder. Not retried automatically: after a TransportError the caller checks for an effect first. */
  createFolder(parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl>;
  /** Creates a file without data: a stub of size -1 for other clients until it is filled. Not retried automatically. */
  createFile(parent: ResourceUrl, name: string, mediaType: string, signal: AbortSignal): Promise<ResourceUrl>;
  /** Copies a file with its bytes on the service. Not retried automatically. */
  copyFile(source: ResourceUrl, parent: ResourceUrl, name: string, signal: AbortSignal): Promise<ResourceUrl>;
  /** Sets name and parent (always both). @returns the URL from now on: the service may change it (301, docs/service.md 13.1) */
  relocate(
    url: ResourceUrl,
    kind: NodeKind,
    parent: ResourceUrl,
    name: string,
    signal: AbortSignal,
  ): Promise<ResourceUrl>;
  /** Moves a resource to *Deleted Files*, a folder whole. A resource that is already deleted is a success. */
  moveToTrash(url: ResourceUrl, kind: NodeKind, name: string, signal: AbortSignal): Promise<void>;
  /** Deletes permanently. A folder must be empty: its contents would be orphaned. A resource that is already deleted is a success. */
  deleteForever(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<void>;
  /** The folder for deleted entries; null if the service has none. */
  trashFolder(signal: AbortSignal): Promise<ResourceUrl | null>;
  /** All entries of a folder, complete. Intent recovery needs them. */
  list(folder: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteEntry[]>;
  /** The present state of a resource. null if the service answers 404, and another request succeeded since. */
  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null>;
  /**
   * Resolves once the service has accepted a request that was sent after this call. An earlier refusal then came from the service.
   * @throws TransportError if it did not: a network refuses every request, or the service could not be asked
   */
  confirmed(signal: AbortSignal): Promise<void>;
}

/** The uploads that the sync needs from the service. The other thread reads `body` from local files; lengths are exact. */
export interface UploadService {
  /**
   * Sends the first bytes of a created file in one request, which cannot be resumed (docs/service.md 6.1).
   * @returns the service's clock when it had the bytes, milliseconds since the epoch; null if it did not say
   */
  putFileData(
    file: ResourceUrl,
    body: readonly BodyPiece[],
    mediaType: string,
    signal: AbortSignal,
  ): Promise<number | null>;
  createVersion(file: ResourceUrl, signal: AbortSignal): Promise<VersionUrl>;
  /** Sends `body`, the bytes from `offset` on. @throws ApiError 416 if the service holds another number of bytes */
  putVersionData(
    version: VersionUrl,
    offset: number,
    body: readonly BodyPiece[],
    signal: AbortSignal,
  ): Promise<UploadProgress>;
  /** The progress of a version on the service; null if the service does not know the version (404). */
  versionProgress(version: VersionUrl, signal: AbortSignal): Promise<UploadProgress | null>;
  /** A file's versions, newest first, complete and incomplete ones. */
  versions(file: ResourceUrl, signal: AbortSignal): Promise<readonly RemoteVersion[]>;
}

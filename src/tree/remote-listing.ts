import type { ListingPage, RemoteResource } from '../base/resources.ts';
import type { NodeKind, ResourceUrl } from '../base/vocabulary.ts';

/**
 * Read access that the tree needs from the service. Implemented by `transfer/` across the threads, and by fakes in
 * tests.
 */
export interface RemoteListing {
  /**
   * One page of a folder, from entry `start` on. The next page starts at `start + entries.length`. The service numbers
   * entries anew for each request, so pages requested side by side need an overlap (`listPages`).
   *
   * @throws ApiError 404 if the folder does not exist · TransportError without a response
   */
  listPage(folder: ResourceUrl, start: number, signal: AbortSignal): Promise<ListingPage>;

  /** The current state of the resource, or null if the service says that it does not exist (404). */
  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null>;
}

import type { ListingPage, RemoteResource } from '../base/resources.ts';
import type { NodeKind, ResourceUrl } from '../base/vocabulary.ts';

/** What the tree needs from the service: to look. Satisfied by `transfer/` across the threads, by fakes in tests. */
export interface RemoteListing {
  /**
   * One page of a folder, entries from `start` on. The next page starts at `start + entries.length`; pages are asked for one
   * after another, because the service numbers entries at the time of each request.
   *
   * @throws ApiError 404 when the folder is gone · TransportError when no answer came
   */
  listPage(folder: ResourceUrl, start: number, signal: AbortSignal): Promise<ListingPage>;

  /** The resource as it is now, or null when the service says it does not exist (404). */
  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null>;
}

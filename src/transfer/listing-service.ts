import type { ListingPage, RemoteResource } from '../base/resources.ts';
import type { NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import type { AccountTree } from '../remote/http/account-tree.ts';
import type { HttpService } from '../remote/http/http-service.ts';
import type { Connectivity } from './connectivity.ts';

/** What the tree asks for (`RemoteListing`), across the threads. */
export class ListingService {
  readonly #service: HttpService | AccountTree;
  readonly #connectivity: Connectivity;

  /** @param options.account the whole account as one tree; without it, the service's own folders */
  constructor(options: { service: HttpService; account?: AccountTree; connectivity: Connectivity }) {
    this.#service = options.account ?? options.service;
    this.#connectivity = options.connectivity;
  }

  listPage(folder: ResourceUrl, start: number, signal: AbortSignal): Promise<ListingPage> {
    return this.#connectivity.watched(() => this.#service.listPage(folder, start, signal));
  }

  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null> {
    return this.#connectivity.watched(() => this.#service.resource(url, kind, signal));
  }
}

import type { ListingPage, RemoteResource } from '../base/resources.ts';
import type { NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import type { HttpService } from '../remote/http-service.ts';
import type { Connectivity } from './connectivity.ts';

/** What the tree asks for (`RemoteListing`), across the threads. */
export class ListingService {
  readonly #service: HttpService;
  readonly #connectivity: Connectivity;

  constructor(options: { service: HttpService; connectivity: Connectivity }) {
    this.#service = options.service;
    this.#connectivity = options.connectivity;
  }

  listPage(folder: ResourceUrl, start: number, signal: AbortSignal): Promise<ListingPage> {
    return this.#connectivity.watched(() => this.#service.listPage(folder, start, signal));
  }

  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null> {
    return this.#connectivity.watched(() => this.#service.resource(url, kind, signal));
  }
}

import type { ListingPage, RemoteResource } from '../base/resources.ts';
import type { NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import type { RemoteReading } from '../remote/contract.ts';
import type { Connectivity } from './connectivity.ts';

/** The listings that the tree needs (`RemoteListing`), across the threads. */
export class ListingService {
  readonly #reading: RemoteReading;
  readonly #connectivity: Connectivity;

  constructor(options: { reading: RemoteReading; connectivity: Connectivity }) {
    this.#reading = options.reading;
    this.#connectivity = options.connectivity;
  }

  listPage(folder: ResourceUrl, start: number, signal: AbortSignal): Promise<ListingPage> {
    return this.#connectivity.watched(() => this.#reading.listPage(folder, start, signal));
  }

  resource(url: ResourceUrl, kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null> {
    return this.#connectivity.watched(() => this.#reading.resource(url, kind, signal));
  }
}

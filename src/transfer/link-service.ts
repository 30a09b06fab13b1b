import type { ResourceUrl } from '../base/vocabulary.ts';
import type { HttpService } from '../remote/http/http-service.ts';
import type { Connectivity } from './connectivity.ts';

/** What is asked about public links (`PublicLinks`), across the threads. */
export class LinkService {
  readonly #service: HttpService;
  readonly #connectivity: Connectivity;

  constructor(options: { service: HttpService; connectivity: Connectivity }) {
    this.#service = options.service;
    this.#connectivity = options.connectivity;
  }

  publicLink(file: ResourceUrl, signal: AbortSignal): Promise<string | null> {
    return this.#connectivity.watched(() => this.#service.account.publicLink(file, signal));
  }

  setPublicLink(file: ResourceUrl, state: 'on' | 'off', signal: AbortSignal): Promise<string | null> {
    return this.#connectivity.watched(() => this.#service.account.setPublicLink(file, state, signal));
  }
}

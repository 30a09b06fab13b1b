import type { ResourceUrl } from '../base/vocabulary.ts';
import { missingCapability } from '../remote/capability.ts';
import type { PublicLinks } from '../remote/contract.ts';
import type { Connectivity } from './connectivity.ts';

/** The requests about public links (`PublicLinks`), across the threads. */
export class LinkService {
  readonly #links: PublicLinks | null;
  readonly #connectivity: Connectivity;

  constructor(options: { service: { readonly links: PublicLinks | null }; connectivity: Connectivity }) {
    this.#links = options.service.links;
    this.#connectivity = options.connectivity;
  }

  publicLink(file: ResourceUrl, signal: AbortSignal): Promise<string | null> {
    const links = this.#links;
    if (links === null) return Promise.resolve(null);
    return this.#connectivity.watched(() => links.publicLink(file, signal));
  }

  setPublicLink(file: ResourceUrl, state: 'on' | 'off', signal: AbortSignal): Promise<string | null> {
    const links = this.#links;
    if (links === null) return Promise.reject(missingCapability('setPublicLink', 'has no public links'));
    return this.#connectivity.watched(() => links.setPublicLink(file, state, signal));
  }
}

import { TransportError } from '../base/errors.ts';

/** An answer that the service did not give: a proxy's, a login page's, another protocol's. The same request would get it again at once. */
export class StrangeNetworkError extends TransportError {
  constructor(
    message: string,
    reason = 'this network may want a login',
    options?: ErrorOptions & { readonly neverSent?: boolean },
  ) {
    super(`${message}: ${reason}`, options);
  }
}

/** Statuses that only the network on the way gives: a proxy that wants a password (RFC 9110), a network that wants a login (RFC 6585). */
export const STATUS_OF_NETWORK: ReadonlyMap<number, string> = new Map([
  [407, 'the proxy wants a user name and a password'],
  [511, 'this network wants a login'],
]);

import { TransportError } from '../base/errors.ts';

/**
 * A response that the service did not send: from a proxy, a login page, another protocol. An immediate retry would get
 * it again.
 */
export class StrangeNetworkError extends TransportError {
  constructor(
    message: string,
    reason = 'this network may want a login',
    options?: ErrorOptions & { readonly neverSent?: boolean },
  ) {
    super(`${message}: ${reason}`, options);
  }
}

/**
 * Statuses that only the network sends: a proxy requires a password (RFC 9110), a network requires a login (RFC 6585).
 */
export const STATUS_OF_NETWORK: ReadonlyMap<number, string> = new Map([
  [407, 'the proxy wants a user name and a password'],
  [511, 'this network wants a login'],
]);

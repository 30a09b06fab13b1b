import type { ServiceProxy } from '../base/proxy.ts';

/** The proxy, and not the service, is why there is no connection. */
export class ProxyFailure extends Error {
  override readonly name = 'ProxyFailure';
  readonly code: 'ETIMEDOUT' | 'ERR_PROXY';
  /** The status with which the proxy refused; null where none came. */
  readonly status: number | null;

  /** @param what continues "the proxy http://… ": `cannot be reached: …` */
  constructor(proxy: ServiceProxy, what: string, options: ErrorOptions & { timedOut?: boolean; status?: number } = {}) {
    super(`the proxy ${proxy.address} (${proxy.source}) ${what}`, options);
    this.code = options.timedOut === true ? 'ETIMEDOUT' : 'ERR_PROXY';
    this.status = options.status ?? null;
  }
}

/** The proxy's refusal of an exchange, where the status is its and cannot be the service's (RFC 9110, 15.5.8). */
export function proxySignInFailure(proxy: ServiceProxy): ProxyFailure {
  const what = proxy.credentials === null ? 'wants a user name and password' : 'refuses the user name and password';
  return new ProxyFailure(proxy, `${what} (407)`, { status: 407 });
}

/** The failure of the proxy behind an error of the transport; null for any other failure. */
export function proxyFailureOf(error: unknown): ProxyFailure | null {
  for (let at = error; at instanceof Error; at = at.cause) if (at instanceof ProxyFailure) return at;
  return null;
}

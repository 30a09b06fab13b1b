import type { ServiceProxy } from '../base/proxy.ts';

/** The connection failed at the proxy, not at the service. */
export class ProxyFailure extends Error {
  override readonly name = 'ProxyFailure';
  readonly code: 'ETIMEDOUT' | 'ERR_PROXY';
  /** The status of the proxy's refusal; null if there was none. */
  readonly status: number | null;

  /** @param what continues "the proxy http://… ": `cannot be reached: …` */
  constructor(proxy: ServiceProxy, what: string, options: ErrorOptions & { timedOut?: boolean; status?: number } = {}) {
    super(`the proxy ${proxy.address} (${proxy.source}) ${what}`, options);
    this.code = options.timedOut === true ? 'ETIMEDOUT' : 'ERR_PROXY';
    this.status = options.status ?? null;
  }
}

/** A 407, which only a proxy can send, not the service (RFC 9110, 15.5.8). */
export function proxySignInFailure(proxy: ServiceProxy): ProxyFailure {
  const what = proxy.credentials === null ? 'wants a user name and password' : 'refuses the user name and password';
  return new ProxyFailure(proxy, `${what} (407)`, { status: 407 });
}

/** The failure of the proxy behind an error of the transport; null for any other failure. */
export function proxyFailureOf(error: unknown): ProxyFailure | null {
  for (let at = error; at instanceof Error; at = at.cause) if (at instanceof ProxyFailure) return at;
  return null;
}

import { timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** Why a request is refused: status and one sentence with the remedy. */
export interface Refusal {
  readonly status: 401 | 403 | 421;
  readonly sentence: string;
}

/**
 * Decides about each request before anything else reads it. Every user of this machine can connect to the port, and every web page in
 * the browser can send requests to it (DNS rebinding makes them same-origin): the names in `Host` and `Origin` and the token decide.
 */
export class RequestGate {
  readonly #hosts: ReadonlySet<string>;
  readonly #remedy: string;
  readonly #token: Uint8Array;

  /** @param hosts further values of `Host` (`--host`), for a proxy or a forwarded port */
  constructor(how: { readonly port: number; readonly hosts: readonly string[]; readonly token: string }) {
    const own = [`127.0.0.1:${how.port}`, `localhost:${how.port}`];
    this.#hosts = new Set([...own, ...how.hosts.map((host) => host.toLowerCase())]);
    this.#remedy = `use http://${own[0]}/; for a forwarded port or a proxy, start with: cfs web --port ${how.port} --host NAME`;
    this.#token = Buffer.from(how.token);
  }

  /** A refusal of any request. */
  refusalOf({ host, origin }: IncomingHttpHeaders): Refusal | null {
    if (!this.#hosts.has(host?.toLowerCase() ?? ''))
      return { status: 421, sentence: `this page is not served under the name "${shown(host)}": ${this.#remedy}` };
    if (origin === undefined || this.#isOwn(origin)) return null;
    return { status: 403, sentence: `requests from "${shown(origin)}" are refused: ${this.#remedy}` };
  }

  /** A refusal of a request that needs the token. */
  refusalWithoutToken({ authorization = '' }: IncomingHttpHeaders): Refusal | null {
    const given = Buffer.from(/^Bearer (.+)$/.exec(authorization)?.[1] ?? '');
    if (given.length === this.#token.length && timingSafeEqual(given, this.#token)) return null;
    return { status: 401, sentence: 'this browser is not signed in to the page: run cfs web --open' };
  }

  #isOwn(origin: string): boolean {
    const [, host] = /^https?:\/\/(.+)$/.exec(origin.toLowerCase()) ?? [];
    return host !== undefined && this.#hosts.has(host);
  }
}

/** The value may come from a foreign page. */
function shown(value: string | undefined): string {
  return (value ?? '').slice(0, 100).replace(/[^\x20-\x7e]/g, '?');
}

import { backoffMs } from '../../base/backoff.ts';
import type { Clock } from '../../base/clock.ts';
import { ApiError, ProtocolError, TransportError } from '../../base/errors.ts';
import type { Logger } from '../../base/log.ts';
import { errorPageMessage } from '../../protocol/error-page.ts';
import { certificateFaultOf } from '../certificate-failure.ts';
import type { RequestBody } from '../contract.ts';
import { proxyFailureOf } from '../proxy-failure.ts';
import { STATUS_OF_NETWORK, StrangeNetworkError } from '../strange-network.ts';
import type { AccessToken } from './access-token.ts';
import type { Answer } from './answer.ts';
import type { Download } from './direct-downloads.ts';
import type { Transport } from './transport.ts';
import type { Method } from './transport-request.ts';

/**
 * Sends a request until it succeeds: tokens, redirects and retries.
 *
 * Whether a request may be retried depends on its effect (its *repetition*) and on the failure. "Never sent": the
 * service certainly has not seen it. "Lost": the service may have acted, because no response came or it broke off.
 *
 * | repetition | used for | never sent | lost | 429 | 408 500 502 503 504 509 | 401 |
 * | --- | --- | --- | --- | --- | --- | --- |
 * | `always` | GET; POST /authorization; POST version (a second empty version is harmless); PUT of name or parent (idempotent); DELETE (idempotent) | again | again | again | again | new token, once |
 * | `unseen` | POST of a folder, file, copy, refresh token (would create two); PUT of data (the service may hold part of it: ask for the progress, or list, first) | again | TransportError | again | ApiError | new token, once |
 * | `never` | first bytes requested together with their version: if they do not come, they are requested by it | TransportError | TransportError | ApiError | ApiError | new token, once |
 *
 * A 429 is sent before the service acts. A 5xx may come later: a proxy sends 502 after the service behind it has acted.
 * A 408 counts as a lost connection: the request did not arrive in time. There are at most `ATTEMPTS_MAX` attempts,
 * with a growing pause (`backoffMs`), or with the pause from Retry-After if that is short enough. A longer
 * Retry-After is left to the caller (`ApiError.retryAfterMs`). Certificate failures and proxy sign-in failures are not
 * retried.
 *
 * | redirect | GET | PUT | other |
 * | --- | --- | --- | --- |
 * | 301 | followed | of a name or parent: done, the resource has a new URL (docs/service.md 13.1); of data: ProtocolError | ProtocolError |
 * | 302, 303 | followed | ProtocolError | ProtocolError |
 * | 307, 308 | followed | sent again there | sent again there |
 *
 * Redirects are followed at most `REDIRECTS_MAX` times, and never to another origin. A redirect to another origin means
 * a network that requires a login. So does a 2xx with an HTML page, which the service sends only with refusals
 * (docs/service.md 13.3), and so do 407, 511 and bytes that are not HTTP. All of them are TransportErrors
 * (`StrangeNetworkError`): temporary, and nothing was done. An empty body is not a page, whatever its media type: many
 * servers call it HTML. Each row has its test in test/remote/requests.test.ts.
 */
export type Repetition = 'always' | 'unseen' | 'never';

export interface ServiceRequest {
  readonly method: Method;
  readonly url: string;
  readonly repetition: Repetition;
  /** The token endpoints take no Authorization header (docs/service.md 3). */
  readonly anonymous?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | RequestBody | null;
  readonly signal?: AbortSignal | undefined;
  /** A PUT that may change the resource's URL. */
  readonly mayReaddress?: boolean;
  /** The response carries file data, which may be an HTML page. */
  readonly isData?: boolean;
}

export interface DataDownload extends Omit<Download, 'path' | 'asked'> {
  readonly url: string;
}

/** A response with a status of 200 to 299, or the 301 of a `mayReaddress` request. */
export interface ServiceAnswer {
  readonly answer: Answer;
  /** The URL of this response: that of the request, or the target of a redirect. */
  readonly url: string;
  /** The URL to use from now on: `url`, unless the redirect is temporary (302, 303, 307). */
  readonly address: string;
}

const ATTEMPTS_MAX = 4;
const BACKOFF = { firstMs: 400, maxMs: 8_000 };
const RETRY_AFTER_MS_MAX = 20_000;
const REDIRECTS_MAX = 5;
const ERROR_BODY_BYTES_MAX = 64 * 1024;

const AGAIN_ALWAYS: ReadonlySet<number> = new Set([408, 429, 500, 502, 503, 504, 509]);

export class Requests {
  readonly #transport: Transport;
  readonly #token: AccessToken;
  readonly #clock: Clock;
  readonly #log: Logger;
  #sent = 0;
  #repeated = 0;

  constructor(options: { transport: Transport; token: AccessToken; clock: Clock; log: Logger }) {
    this.#transport = options.transport;
    this.#token = options.token;
    this.#clock = options.clock;
    this.#log = options.log;
  }

  /**
   * Sends the request and reads the response. Reading is part of the attempt: a document that breaks off is requested
   * again if the request may be repeated. The failure thrown is that of the last attempt; its `mayHaveActed` is that of
   * all attempts: a first response may be lost and the second attempt meet a closed port.
   *
   * @throws ApiError for a status of 400 and more · TransportError · SignInError · ProtocolError for a forbidden
   * redirect or an unexpected response · the signal's reason
   */
  async send<T>(request: ServiceRequest, read: (answered: ServiceAnswer) => Promise<T>): Promise<T> {
    let mayHaveActed = false;
    for (let attempt = 1; ; attempt++) {
      try {
        const answered = await this.#attempt(request);
        return await read(answered);
      } catch (error) {
        if (error instanceof ApiError || error instanceof TransportError) {
          mayHaveActed ||= error.mayHaveActed;
          error.mayHaveActed = mayHaveActed;
        }
        const pauseMs = attempt < ATTEMPTS_MAX ? this.#pauseBefore(error, request.repetition, attempt) : null;
        if (pauseMs === null || request.signal?.aborted) throw named(error, request);
        this.#repeated++;
        this.#log.debug(
          { request: shownRequest(request), attempt, waitMs: Math.round(pauseMs), err: error },
          'request repeated',
        );
        await this.#clock.sleep(pauseMs, request.signal);
      }
    }
  }

  /**
   * Downloads into a file directly (`DirectDownloads`), as far as possible.
   *
   * @returns the end of the bytes in the file. The remainder, possibly all, is left to `send`, which also reports the
   * failure.
   * @throws what `send` throws before it sends: without a token, `send` would only fail again
   */
  async bring({ url, headers, ...download }: DataDownload): Promise<number> {
    const { direct } = this.#transport;
    const { start } = download.extent;
    if (!direct?.isWilling) return start;
    const { token } = await this.#token.current(download.signal);
    return await direct.bring({
      ...download,
      path: this.#transport.pathOf(url),
      headers: this.#transport.headersOf({ ...headers, Authorization: token }),
      asked: () => {
        this.#sent++;
      },
    });
  }

  /** Since the start: requests sent, and retries after failures. */
  get counts(): { readonly sent: number; readonly repeated: number } {
    return { sent: this.#sent, repeated: this.#repeated };
  }

  /** How long to wait before the next attempt; null for none. */
  #pauseBefore(error: unknown, repetition: Repetition, attempt: number): number | null {
    if (!mayRepeat(error, repetition)) return null;
    const asked = error instanceof ApiError ? error.retryAfterMs : null;
    if (asked !== null) return asked <= RETRY_AFTER_MS_MAX ? asked : null;
    return backoffMs(attempt, this.#clock.random(), BACKOFF);
  }

  /** One attempt: with the token renewed once, and redirects followed. */
  async #attempt(request: ServiceRequest): Promise<ServiceAnswer> {
    let { url } = request;
    let address = url;
    let renewed = false;
    for (let redirects = 0; ; ) {
      const token = request.anonymous ? null : await this.#token.current(request.signal);
      this.#sent++;
      const answer = await this.#transport.exchange({
        method: request.method,
        url,
        headers: {
          ...request.headers,
          ...(typeof request.body === 'string' && request.body !== '' ? XML_BODY : null),
          ...(token === null ? null : { Authorization: token.token }),
        },
        body: request.body ?? null,
        signal: request.signal,
      });
      const { status } = answer;
      if (status < 300) {
        if (answer.mediaType !== 'text/html' || request.isData) return { answer, url, address };
        if ((await answer.discard()) === 0) return { answer, url, address };
        throw new StrangeNetworkError(`${shownRequest(request)}: an HTML page came instead of a response`);
      }
      if (status === 401 && token !== null && !renewed) {
        renewed = true;
        await answer.discard();
        await this.#token.after(token.token, request.signal);
        continue;
      }
      const network = STATUS_OF_NETWORK.get(status);
      if (network !== undefined) {
        await answer.discard();
        // The proxy or the network responded before the service saw the request.
        throw new StrangeNetworkError(`${shownRequest(request)}: ${status}`, network, { neverSent: true });
      }
      if (status >= 400) throw await this.#refusal(request, answer);
      const target = await this.#redirectTarget(request, answer, url);
      if (status === 301 && request.mayReaddress) return { answer, url: target, address: target };
      await answer.discard();
      redirects += 1;
      if (redirects > REDIRECTS_MAX) throw new ProtocolError('too many redirects');
      if (address === url && (status === 301 || status === 308)) address = target;
      url = target;
    }
  }

  /**
   * @throws what `redirectTarget` throws, after draining the body: unread, a long one would hold its connection
   * permanently
   */
  async #redirectTarget(request: ServiceRequest, answer: Answer, url: string): Promise<string> {
    try {
      return redirectTarget(request, answer, url, this.#transport.origin);
    } catch (error) {
      await answer.discard();
      throw error;
    }
  }

  async #refusal(request: ServiceRequest, answer: Answer): Promise<ApiError> {
    const retryAfterMs = parseRetryAfter(answer.header('retry-after'), answer.serverTimeMs ?? this.#clock.nowMs());
    let message: string | null = null;
    try {
      message = errorPageMessage((await answer.bytes(ERROR_BODY_BYTES_MAX)).toString());
    } catch {
      // The status is enough; a body that breaks off adds no explanation.
    }
    const shown = shownRequest(request);
    return new ApiError(answer.status, shown, `${shown}: ${answer.status}${message === null ? '' : ` ${message}`}`, {
      retryAfterMs,
    });
  }
}

const XML_BODY = { 'Content-Type': 'application/xml; charset=UTF-8' };

/** Adds the request to the message of a ProtocolError. */
function named(error: unknown, request: ServiceRequest): unknown {
  if (!(error instanceof ProtocolError) || error.cause !== undefined) return error;
  return new ProtocolError(`${shownRequest(request)}: ${error.message}`, { cause: error });
}

/** The first table above, but for 401. */
export function mayRepeat(error: unknown, repetition: Repetition): boolean {
  if (repetition === 'never') return false;
  if (error instanceof TransportError) {
    if (certificateFaultOf(error) !== null || error instanceof StrangeNetworkError) return false;
    // Retries with a wrong password may lock the account in the proxy's user directory.
    if (proxyFailureOf(error)?.status === 407) return false;
    return error.neverSent || repetition === 'always';
  }
  if (!(error instanceof ApiError)) return false;
  return error.status === 429 || (repetition === 'always' && AGAIN_ALWAYS.has(error.status));
}

/** Retry-After (RFC 9110, 10.2.3): seconds, or a date; in milliseconds from `nowMs` on, null where it makes no sense. */
export function parseRetryAfter(raw: string | null, nowMs: number): number | null {
  if (raw === null) return null;
  if (/^\d{1,9}$/.test(raw.trim())) return Number(raw) * 1000;
  const moment = Date.parse(raw);
  return Number.isNaN(moment) ? null : Math.max(0, moment - nowMs);
}

/** Method and path without query, for errors and log lines. Paths contain no secrets except tokens, which are cut. */
export function shownRequest(request: { readonly method: string; readonly url: string }): string {
  const path = request.url.replace(/^[a-z]+:\/\/[^/?#]*/i, '').replace(/[?#].*$/, '');
  return `${request.method} ${path.replace(/^(\/(?:app-)?authorization\/).+/, '$1…')}`;
}

function redirectTarget(request: ServiceRequest, answer: Answer, url: string, origin: string): string {
  const location = answer.locationFrom(url);
  const { status } = answer;
  const allowed =
    status === 307 || status === 308
      ? true
      : request.method === 'GET'
        ? status === 301 || status === 302 || status === 303
        : request.mayReaddress && status === 301;
  const target = location !== null && URL.canParse(location, url) ? new URL(location, url).origin : null;
  if (target !== null && target !== origin) {
    throw new StrangeNetworkError(
      `${shownRequest(request)}: redirected to another server, ${target}`,
      'this network may want a login, or the service has a new address',
    );
  }
  if (!allowed || location === null || target === null) throw new ProtocolError(`unexpected ${status}`);
  return location;
}

import type { OnReadOpts } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { ProtocolError, TransportError, UsageError } from '../../base/errors.ts';
import { isLoopback, type ServiceProxy } from '../../base/proxy.ts';
import { systemCertificates } from '../certificates.ts';
import { proxySignInFailure } from '../proxy-failure.ts';
import { type CertificateSource, TrustStore } from '../trust-store.ts';
import type { Answer } from './answer.ts';
import { AnswerHandler, originOf } from './answer-handler.ts';
import { ConnectionPool } from './connection-pool.ts';
import { Connector } from './connector.ts';
import { DirectDownloads } from './direct-downloads.ts';
import { NameLookup } from './name-lookup.ts';
import { surviveEndsWhilePaused } from './paused-parser.ts';
import { Receiver } from './receiver.ts';
import { ReusedReads } from './reused-reads.ts';
import type { TransportRequest } from './transport-request.ts';
import { proxyAuthorization } from './tunnel.ts';

export interface TransportOptions {
  /** The service's base URL. Plain http is for loopback only, unless `insecure`. */
  readonly baseUrl: string;
  readonly insecure?: boolean;
  /** The only trusted authorities; by default the system's. Read again after a certificate failure. */
  readonly certificates?: CertificateSource;
  /** Without a proxy the service is reached directly. */
  readonly proxy?: ServiceProxy | null;
  readonly clock: Clock;
  /** Name lookup for the service and its proxy; by default the system's. */
  readonly names?: NameLookup;
  readonly deadlines?: Partial<Deadlines>;
  /** Maximum number of connections to the service, for documents and for data each; 8. */
  readonly connections?: number;
  /** Sent as User-Agent (docs/service.md 2.2): a name and a version. */
  readonly userAgent: string;
}

/** Longest silence allowed in each phase of an exchange, in milliseconds. */
export interface Deadlines {
  readonly connectMs: number;
  /** From the last byte that was sent to the first of the answer. A service may answer before it has read the whole request. */
  readonly answerMs: number;
  /** The time limit after a request body, which the service may have to write to disk first. */
  readonly answerAfterBodyMs: number;
  /** Between two pieces of the answer's body. */
  readonly bodyMs: number;
  /** For a whole document exchange: a service that sends a byte now and then must not block. */
  readonly documentMs: number;
}

const DEADLINES: Deadlines = {
  connectMs: 10_000,
  answerMs: 30_000,
  answerAfterBodyMs: 60_000,
  bodyMs: 30_000,
  documentMs: 120_000,
};

/** Documents and data have connections of their own, so that no listing waits behind eight uploads. */
const CONNECTIONS_MAX = 8;
const KEEP_ALIVE_MS = 30_000;
const ANSWER_HEADER_BYTES_MAX = 32 * 1024;

/**
 * One request, one response: connections, deadlines, cancellation. It does not retry or follow redirects (see
 * `requests.ts`), and it accepts every status except 407, which only a proxy sends.
 *
 * Through a proxy, https uses a tunnel (CONNECT) and plain http the absolute form (RFC 9112, 3.2.2): many proxies
 * refuse tunnels to ports other than 443.
 */
export class Transport {
  readonly origin: string;
  readonly #deadlines: Deadlines;
  readonly #userAgent: string;
  readonly #clock: Clock;
  readonly #documents: ConnectionPool;
  readonly #data: ConnectionPool;
  readonly #reads: ReusedReads;
  readonly #names: NameLookup;
  readonly #proxy: ServiceProxy | null;
  /** Path prefix and headers for a proxy that is asked in the absolute form. */
  readonly #absolute: { readonly origin: string; readonly headers: Readonly<Record<string, string>> };
  readonly #trust: TrustStore | null;
  /** Opened on first use: it starts a thread. */
  #direct: DirectDownloads | null | undefined;

  /** @throws UsageError for an invalid address, or one that would send secrets unencrypted */
  constructor(options: TransportOptions) {
    surviveEndsWhilePaused();
    const base = parsedBase(options.baseUrl);
    const loopback = isLoopback(base.hostname);
    if (base.protocol === 'http:' && !loopback && options.insecure !== true) {
      throw new UsageError(`${base.origin} would get the password in the clear: use https, or cfs login --insecure`);
    }
    this.origin = base.origin;
    this.#deadlines = { ...DEADLINES, ...options.deadlines };
    this.#userAgent = options.userAgent;
    this.#clock = options.clock;
    this.#reads = new ReusedReads({ clock: options.clock });
    const isTls = base.protocol === 'https:';
    this.#names = options.names ?? new NameLookup();
    this.#proxy = loopback ? null : (options.proxy ?? null);
    this.#absolute =
      this.#proxy !== null && !isTls && !this.#proxy.address.startsWith('socks5:')
        ? { origin: base.origin, headers: proxyAuthorization(this.#proxy) }
        : { origin: '', headers: {} };
    const isProxyTls = this.#proxy?.address.startsWith('https:') === true;
    const certificates = options.certificates ?? systemCertificates;
    const pool = (onread?: OnReadOpts): ConnectionPool => {
      const connector = new Connector({
        origin: base.origin,
        proxy: this.#proxy,
        trust,
        names: this.#names,
        connectMs: this.#deadlines.connectMs,
        ...(onread !== undefined && { onread }),
      });
      return new ConnectionPool({
        origin: base.origin,
        places: options.connections ?? CONNECTIONS_MAX,
        open: (signal) => connector.open(signal),
        client: {
          keepAliveTimeout: KEEP_ALIVE_MS,
          headersTimeout: this.#deadlines.answerMs,
          bodyTimeout: this.#deadlines.bodyMs,
          maxHeaderSize: ANSWER_HEADER_BYTES_MAX,
        },
      });
    };
    const trust = isTls || isProxyTls ? new TrustStore(certificates) : null;
    this.#trust = isTls ? trust : null;
    this.#documents = pool();
    // With TLS, Node delivers decrypted data in small chunks of its own.
    this.#data = isTls || isProxyTls ? pool() : pool(this.#reads.onread);
  }

  /**
   * Resolves when the answer's headers are here.
   *
   * @throws TransportError when no answer came · StrangeNetworkError for one that is not HTTP · ProtocolError for a request to another origin ·
   * the signal's reason · whatever the body's source threw
   */
  async exchange(request: TransportRequest): Promise<Answer> {
    const { body, signal } = request;
    if (signal?.aborted) throw signal.reason;
    // The token is sent with every request: it must not reach another origin.
    const path = this.pathOf(request.url);
    const stream = body !== null && typeof body !== 'string' && body.length > 0 ? body : null;
    const headers = this.headersOf(request.headers);
    if (stream !== null) headers['Content-Length'] = String(stream.length);
    Object.assign(headers, this.#absolute.headers);
    const data = stream !== null || path.endsWith('/data');
    const answer = await new Promise<Answer>((resolve, reject) => {
      const exchange = new AnswerHandler(request, this.#reads, resolve, reject);
      if (!data) exchange.expireAfter(this.#deadlines.documentMs, this.#clock);
      const pool = data ? this.#data : this.#documents;
      pool.dispatch(
        {
          path: this.#absolute.origin + path,
          method: request.method,
          headers,
          // undici takes async iterables, its types do not say so. It asks for the next chunk when the socket's queue is below its
          // high-water mark, which is less than a chunk: late enough for `RequestBody.chunks`.
          body: (stream === null ? body : exchange.whileWanted(stream.chunks(), this.#clock)) as string | null,
          headersTimeout: stream !== null ? this.#deadlines.answerAfterBodyMs : this.#deadlines.answerMs,
        },
        exchange,
      );
    });
    if (answer.status !== 407 || this.#proxy === null) return answer;
    await answer.discard();
    const cause = proxySignInFailure(this.#proxy);
    throw new TransportError(cause.message, { neverSent: true, cause });
  }

  /** Downloads that bypass V8; null through a proxy, without the addon, or with TLS that it cannot decrypt. */
  get direct(): DirectDownloads | null {
    if (this.#proxy !== null) return null;
    if (this.#direct === undefined) {
      const [origin, names, trust] = [this.origin, this.#names, this.#trust];
      const receiver = Receiver.open();
      const isUsable = trust === null || receiver?.isTls === true;
      if (!isUsable) receiver?.close();
      const parts = { origin, names, trust, clock: this.#clock, deadlines: this.#deadlines };
      this.#direct = receiver !== null && isUsable ? new DirectDownloads({ receiver, ...parts }) : null;
    }
    return this.#direct;
  }

  headersOf(headers: Readonly<Record<string, string>>): Record<string, string> {
    // Without this header a service may send any coding (RFC 9110, 12.5.3). Only listings are decoded (`uncoded`).
    return { 'User-Agent': this.#userAgent, 'Accept-Encoding': 'identity', ...headers };
  }

  /**
   * Path and query of a URL on this server, also if its origin is written in another form.
   *
   * @throws ProtocolError for any other
   */
  pathOf(url: string): string {
    // URL parsing below escapes characters that a request line cannot carry.
    if (url.startsWith(`${this.origin}/`) && !/[^\x21-\x7e]/.test(url)) return url.slice(this.origin.length);
    const parsed = URL.canParse(url) ? new URL(url) : null;
    if (parsed?.origin !== this.origin) {
      throw new ProtocolError(`an address on another server: ${originOf(url)} instead of ${this.origin}`);
    }
    return parsed.pathname + parsed.search;
  }

  /** Closes all connections, including those in use. */
  async close(): Promise<void> {
    const gone = new TransportError('the client closed its connections to the service');
    this.#direct?.close();
    await Promise.all([this.#documents.destroy(gone), this.#data.destroy(gone)]);
  }
}

function parsedBase(baseUrl: string): URL {
  const base = URL.canParse(baseUrl) ? new URL(baseUrl) : null;
  if (base === null || (base.protocol !== 'http:' && base.protocol !== 'https:') || base.username !== '') {
    throw new UsageError(`${baseUrl} is not the address of a service`);
  }
  return base;
}

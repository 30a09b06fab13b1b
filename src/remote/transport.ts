import type { LookupFunction, OnReadOpts } from 'node:net';
import { createSecureContext } from 'node:tls';
import type undici from 'undici';
import type { Dispatcher } from 'undici';
import type { Clock } from '../base/clock.ts';
import { commonJs } from '../base/common-js.ts';
import { ProtocolError, TransportError, UsageError } from '../base/errors.ts';
import type { Answer } from './answer.ts';
import { systemCertificates } from './certificates.ts';
import { DirectDownloads } from './direct-downloads.ts';
import { Exchange, originOf } from './exchange.ts';
import { attemptMs, NameLookup } from './name-lookup.ts';
import { surviveEndsWhilePaused } from './paused-parser.ts';
import { Receiver } from './receiver.ts';
import { ReusedReads } from './reused-reads.ts';

// Without a proxy the part that sends: the rest of undici is a tenth of a second of each start.
const Agent = commonJs('undici/lib/dispatcher/agent.js') as typeof undici.Agent;

/** A body of known length that can be sent again from its beginning. */
export interface RequestBody {
  readonly length: number;
  /**
   * A chunk may be overwritten once two more have been asked for. That is late enough: undici asks for the next one when the
   * socket's queue is below its high-water mark, which is less than a chunk.
   */
  chunks(): AsyncIterable<Uint8Array>;
}

export type Method = 'GET' | 'PUT' | 'POST' | 'DELETE';

export interface TransportRequest {
  readonly method: Method;
  /** On the service's own origin, always. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | RequestBody | null;
  readonly signal: AbortSignal | undefined;
}

export interface TransportOptions {
  /** The service's base URL. Plain http is for loopback only, unless `insecure`. */
  readonly baseUrl: string;
  readonly insecure?: boolean;
  /** PEM certificates to be believed, and no others; null: those that Node brings along. By default those of the system. */
  readonly certificates?: string | null;
  readonly clock: Clock;
  /** Where the addresses of the service and its proxy come from; the system. */
  readonly names?: NameLookup;
  readonly deadlines?: Partial<Deadlines>;
  /** How many connections to the service are open at most, for documents and for data each; 8. */
  readonly connections?: number;
  /** Sent as User-Agent (interface 4): a name and a version. */
  readonly userAgent: string;
}

/** Longest silence allowed in each phase of an exchange, in milliseconds. */
export interface Deadlines {
  readonly connectMs: number;
  /** From the last byte of the request that could be written to the first of the answer. */
  readonly answerMs: number;
  /** The same after a body, which the service may have to put on a disk first. */
  readonly answerAfterBodyMs: number;
  /** Between two pieces of the answer's body. */
  readonly bodyMs: number;
  /** For a whole exchange that moves a document: a service that gives a byte every now and then is no help. */
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
 * One request, one answer: connections, deadlines, cancellation. It repeats nothing and follows nothing (see `requests.ts`),
 * and it takes any status for an answer.
 *
 * Proxies come from the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), except for loopback, which no proxy could reach.
 */
export class Transport {
  readonly origin: string;
  readonly #deadlines: Deadlines;
  readonly #userAgent: string;
  readonly #clock: Clock;
  readonly #documents: Dispatcher;
  readonly #data: Dispatcher;
  readonly #reads: ReusedReads;
  readonly #lookup: LookupFunction;
  readonly #isPlain: boolean;
  /** Opened when it is wanted first: it is a thread. */
  #direct: DirectDownloads | null | undefined;

  /** @throws UsageError for an address that is none, or would send secrets in the clear */
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
    const certificates = options.certificates === undefined && isTls ? systemCertificates(null) : options.certificates;
    this.#lookup = (options.names ?? new NameLookup()).lookup;
    this.#isPlain = !isTls && (loopback || !isProxied());
    const how = {
      deadlines: this.#deadlines,
      certificates: certificates ?? null,
      loopback,
      connectionsMax: options.connections ?? CONNECTIONS_MAX,
      lookup: this.#lookup,
    };
    this.#documents = connections(how);
    // What TLS has decrypted Node hands over in small pieces of their own.
    this.#data = connections(isTls ? how : { ...how, onread: this.#reads.onread });
  }

  /**
   * Resolves when the answer's headers are here.
   *
   * @throws TransportError when no answer came · ProtocolError for one that is not HTTP, or a request to another origin ·
   * the signal's reason · whatever the body's source threw
   */
  async exchange(request: TransportRequest): Promise<Answer> {
    const { body, signal } = request;
    if (signal?.aborted) throw signal.reason;
    // The token goes with every request: it must not go anywhere else.
    const path = this.pathOf(request.url);
    const stream = body !== null && typeof body !== 'string' && body.length > 0 ? body : null;
    const headers = this.headersOf(request.headers);
    if (stream !== null) headers['Content-Length'] = String(stream.length);
    const data = stream !== null || path.endsWith('/data');
    return await new Promise<Answer>((resolve, reject) => {
      const exchange = new Exchange(request, this.#reads, resolve, reject);
      if (!data) exchange.expireAfter(this.#deadlines.documentMs, this.#clock);
      const dispatcher = data ? this.#data : this.#documents;
      dispatcher.dispatch(
        {
          origin: this.origin,
          path,
          method: request.method,
          headers,
          // undici takes async iterables, its types do not say so.
          body: (stream === null ? body : exchange.whileWanted(stream.chunks(), this.#clock)) as string | null,
          headersTimeout: stream !== null ? this.#deadlines.answerAfterBodyMs : this.#deadlines.answerMs,
        },
        exchange,
      );
    });
  }

  /** Downloads past V8, where there are any: not with TLS, nor through a proxy, nor without the addon. */
  get direct(): DirectDownloads | null {
    if (!this.#isPlain) return null;
    if (this.#direct === undefined) {
      const [origin, lookup] = [this.origin, this.#lookup];
      const receiver = Receiver.open();
      const parts = { origin, lookup, clock: this.#clock, deadlines: this.#deadlines };
      this.#direct = receiver === null ? null : new DirectDownloads({ receiver, ...parts });
    }
    return this.#direct;
  }

  headersOf(headers: Readonly<Record<string, string>>): Record<string, string> {
    // Unasked, a service may send any coding (RFC 9110, 12.5.3), and nothing here undoes one.
    return { 'User-Agent': this.#userAgent, 'Accept-Encoding': 'identity', ...headers };
  }

  /**
   * Path and query of an address on this server; also of one that writes the same origin in another way.
   *
   * @throws ProtocolError for any other
   */
  pathOf(url: string): string {
    // What no request line can carry is escaped by whoever takes the address apart.
    if (url.startsWith(`${this.origin}/`) && !/[^\x21-\x7e]/.test(url)) return url.slice(this.origin.length);
    const parsed = URL.canParse(url) ? new URL(url) : null;
    if (parsed?.origin !== this.origin) {
      throw new ProtocolError(`an address on another server: ${originOf(url)} instead of ${this.origin}`);
    }
    return parsed.pathname + parsed.search;
  }

  /** Ends all connections, those in use too. */
  async close(): Promise<void> {
    const gone = new TransportError('the connection to the service was closed here');
    this.#direct?.close();
    await Promise.all([this.#documents.destroy(gone), this.#data.destroy(gone)]);
  }
}

function connections(how: {
  deadlines: Deadlines;
  certificates: string | null;
  loopback: boolean;
  connectionsMax: number;
  lookup: LookupFunction;
  onread?: OnReadOpts;
}): Dispatcher {
  const { deadlines, certificates, loopback, connectionsMax, lookup, onread } = how;
  const reach = { lookup, autoSelectFamilyAttemptTimeout: attemptMs(deadlines.connectMs) };
  // Made once: reading a system's hundred certificates takes milliseconds, and would be done for every connection.
  const tls = certificates === null ? {} : { secureContext: createSecureContext({ ca: certificates }) };
  const options = {
    connections: connectionsMax,
    pipelining: 1,
    keepAliveTimeout: KEEP_ALIVE_MS,
    headersTimeout: deadlines.answerMs,
    bodyTimeout: deadlines.bodyMs,
    maxHeaderSize: ANSWER_HEADER_BYTES_MAX,
    connect: { timeout: deadlines.connectMs, ...reach, ...tls, ...(onread !== undefined && { onread }) },
  };
  if (loopback || !isProxyNamed()) return new Agent(options);
  // What speaks to a proxy needs undici as a whole, which adds `connect` to its clients.
  const { EnvHttpProxyAgent } = commonJs('undici') as typeof undici;
  return new EnvHttpProxyAgent({ ...options, requestTls: tls, proxyTls: { ...reach, ...tls } });
}

/** Whether the environment names a proxy: without one `EnvHttpProxyAgent` is an `Agent`. */
function isProxyNamed(): boolean {
  const { http_proxy, HTTP_PROXY, https_proxy, HTTPS_PROXY } = process.env;
  return [http_proxy, HTTP_PROXY, https_proxy, HTTPS_PROXY].some((proxy) => (proxy ?? '') !== '');
}

/** For plain http. As undici takes it from the environment. */
function isProxied(): boolean {
  return (process.env.http_proxy ?? process.env.HTTP_PROXY ?? '') !== '';
}

function parsedBase(baseUrl: string): URL {
  const base = URL.canParse(baseUrl) ? new URL(baseUrl) : null;
  if (base === null || (base.protocol !== 'http:' && base.protocol !== 'https:') || base.username !== '') {
    throw new UsageError(`${baseUrl} is not the address of a service`);
  }
  return base;
}

function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname);
}

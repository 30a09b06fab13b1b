import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { type Clock, systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { silentLogger } from '../base/log.ts';
import { AdminServer, type Metric } from './admin-server.ts';
import type { BackEnd } from './back-end.ts';
import { Dispatcher } from './dispatcher.ts';
import { Documents } from './documents.ts';
import { FaultPlan, type FaultRule } from './fault-plan.ts';
import { Lines } from './lines.ts';
import { listening } from './listening.ts';
import { LocalBackEnd } from './local-back-end.ts';
import { Pictures } from './pictures.ts';
import { TrustedProxies } from './remote-address.ts';
import { RequestLog } from './request-log.ts';
import type { AdministrationRules } from './rules.ts';
import { serverMetrics } from './server-metrics.ts';
import type { ReferenceServerOptions } from './server-options.ts';

/**
 * The complete service, durable, in one process (docs/service.md): the embedded default of `npm start`, the peer in
 * tests, and small enough to self-host.
 */
export class ReferenceServer {
  /** `http://127.0.0.1:PORT`: the prefix of every URL of this server. */
  readonly origin: string;
  readonly port: number;
  /** Administration of users, applications, keys and shares on the same data. */
  readonly administration: AdministrationRules;
  readonly requests: RequestLog;
  readonly #backEnd: BackEnd;
  readonly #clock: Clock;
  readonly #http: Server;
  readonly #dispatcher: Dispatcher;
  readonly #lines: Lines;
  readonly #admin: AdminServer | null;

  /**
   * @throws UsageError if the port is taken, the directory is in use, or plain HTTP would leave this machine;
   * StorageError if the data cannot be used
   */
  static async open(options: ReferenceServerOptions): Promise<ReferenceServer> {
    const host = options.listen?.host ?? '127.0.0.1';
    if (options.tls === undefined && options.insecure !== true && !LOOPBACK.test(host)) {
      throw new UsageError(`plain HTTP on ${host} can be overheard: give --tls-cert and --tls-key, or --insecure`);
    }
    const http = createHttp(options);
    let backEnd: BackEnd | null = null;
    let admin: AdminServer | null = null;
    let server: ReferenceServer | null = null;
    // The server listens before its back end knows the address. Requests that come in between wait.
    const early: ((to: ReferenceServer) => void)[] = [];
    const answer = (expectsContinue: boolean) => (request: IncomingMessage, response: ServerResponse) => {
      const act = (to: ReferenceServer) => void to.#dispatcher.answer(request, response, expectsContinue);
      if (server === null) early.push(act);
      else act(server);
    };
    http.on('request', answer(false)).on('checkContinue', answer(true));
    // Other expectations may be ignored (RFC 9110, 10.1.1). Node's 417 would lack the headers common to all responses
    // here.
    http.on('checkExpectation', answer(false));
    try {
      backEnd = await openBackEnd(options);
      const trustedProxies = new TrustedProxies(options.trustedProxies ?? []);
      const lines = new Lines(http, { linesMax: options.connectionsMax ?? CONNECTIONS_MAX, trustedProxies });
      if (options.adminListen !== undefined) {
        admin = await AdminServer.open(options.adminListen, {
          isHealthy: () => server?.isReadable() ?? false,
          metrics: () => server?.metrics ?? [],
        });
      }
      const kept = backEnd.keptPort;
      const asked = options.listen?.port;
      const wanted = asked === undefined || asked === 0 ? (kept ?? 0) : asked;
      const port = await listen(http, { host, port: wanted, isKnown: wanted === kept });
      const origin = originOf(options, host, port);
      await backEnd.keepAddress(port, origin);
      server = new ReferenceServer(options, backEnd, { trustedProxies, admin }, http, lines, origin, port);
      for (const act of early) act(server);
      return server;
    } catch (error) {
      http.close();
      http.closeAllConnections();
      await admin?.close();
      await backEnd?.close();
      throw error;
    }
  }

  private constructor(
    options: ReferenceServerOptions,
    backEnd: BackEnd,
    parts: { trustedProxies: TrustedProxies; admin: AdminServer | null },
    http: Server,
    lines: Lines,
    origin: string,
    port: number,
  ) {
    this.port = port;
    this.origin = origin;
    this.#backEnd = backEnd;
    this.#clock = options.clock ?? systemClock;
    this.#http = http;
    this.#lines = lines;
    this.#admin = parts.admin;
    this.administration = backEnd.administration;
    this.requests = new RequestLog({ entriesMax: options.requestsKept ?? 10_000 });
    this.#dispatcher = new Dispatcher({
      service: {
        ...backEnd.rules,
        documents: new Documents({ origin: this.origin }),
        pictures: new Pictures(),
      },
      clock: this.#clock,
      log: options.log ?? silentLogger,
      requests: this.requests,
      faults: new FaultPlan(options.faults ?? []),
      latencyMs: options.latencyMs ?? 0,
      bandwidth: options.bandwidthBytesPerSecond ?? Number.POSITIVE_INFINITY,
      lines,
      trustedProxies: parts.trustedProxies,
      requestsPerAccountMax: Math.max(1, Math.floor((options.connectionsMax ?? CONNECTIONS_MAX) / 4)),
    });
    // A connection could not be accepted (no descriptors, no memory): the client retries.
    http.on('error', (err) => (options.log ?? silentLogger).warn({ err }, 'connection not accepted'));
    backEnd.start();
  }

  /** Origin of `/healthz` and `/metrics`; null without them. */
  get adminOrigin(): string | null {
    return this.#admin?.origin ?? null;
  }

  /** Whether the data can be read. */
  async isReadable(): Promise<boolean> {
    return this.#backEnd.isReadable();
  }

  get metrics(): readonly Metric[] {
    return [...serverMetrics(this.requests, this.#lines), ...this.#backEnd.metrics];
  }

  /** Requests that wait behind others of their connection. */
  get waiting(): number {
    return this.#lines.waiting;
  }

  /** The fault rules; setting them resets their counts. Servers that get one plan count together. @throws TypeError for an invalid rule */
  get faults(): readonly FaultRule[] {
    return this.#dispatcher.faults.rules;
  }

  set faults(rules: readonly FaultRule[] | FaultPlan) {
    this.#dispatcher.faults = rules instanceof FaultPlan ? rules : new FaultPlan(rules);
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#lines.size;
  }

  /** Bytes received since the start: heads and bodies, stored or discarded. */
  get bytesArrived(): number {
    return this.#lines.bytesArrived;
  }

  /** Number of versions being written. */
  get uploadsUnderWay(): number {
    return this.#backEnd.uploadsUnderWay;
  }

  /** Versions that wait for the object store; 0 without one. */
  get versionsToMove(): number {
    return this.#backEnd.versionsToMove;
  }

  /** Deletes objects without a reference, as every minute. @returns how many */
  collectObjects(): Promise<number> {
    return this.#backEnd.collectObjects();
  }

  /** Waits up to `graceMs` for active requests, then closes their connections. Acknowledged data are durable. */
  async close(options: { graceMs?: number } = {}): Promise<void> {
    const tidied = this.#backEnd.stopHousekeeping();
    const closed = new Promise<void>((resolve) => void this.#http.close(() => resolve()));
    this.#http.closeIdleConnections();
    const endLines = (): void => {
      for (const socket of this.#lines.open) socket.destroy();
    };
    const graceMs = options.graceMs ?? 0;
    if (graceMs === 0) endLines();
    const cancel = this.#clock.after(graceMs, endLines);
    await closed;
    cancel();
    await this.#dispatcher.idle();
    await this.#admin?.close();
    await tidied;
    await this.#backEnd.close();
  }
}

/** The client of the database is loaded only if there is one. */
async function openBackEnd(options: ReferenceServerOptions): Promise<BackEnd> {
  if (options.database === undefined) return LocalBackEnd.open(options);
  const { PostgresBackEnd } = await import('./postgres/postgres-back-end.ts');
  return PostgresBackEnd.open(options, options.database);
}

function originOf(options: ReferenceServerOptions, host: string, port: number): string {
  const shownHost = host.includes(':') ? `[${host}]` : host;
  return options.publicOrigin ?? `${options.tls === undefined ? 'http' : 'https'}://${shownHost}:${port}`;
}

const LOOPBACK = /^(127\.\d+\.\d+\.\d+|::1|localhost)$/;

/** Connection limits: slow or silent clients are disconnected. Long uploads are not: only a pause in them counts. */
const LINE_LIMITS: ServerOptions = {
  maxHeaderSize: 32 * 1024,
  headersTimeout: 20_000,
  requestTimeout: 0,
  // The dispatcher refuses a request without Host: Node's refusal lacks the headers common to all responses here.
  requireHostHeader: false,
  keepAliveTimeout: 30_000,
  connectionsCheckingInterval: 5000,
  // Read buffer for bodies: the default of 64 KiB costs a third of the speed of large uploads.
  highWaterMark: 256 * 1024,
};
const SILENCE_MAX_MS = 120_000;
const CONNECTIONS_MAX = 1000;

function createHttp(options: ReferenceServerOptions): Server {
  const { tls } = options;
  const http =
    tls === undefined
      ? createServer(LINE_LIMITS)
      : createTlsServer({ ...LINE_LIMITS, cert: tls.certificate, key: tls.key });
  http.timeout = options.silenceMaxMs ?? SILENCE_MAX_MS;
  http.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const status = error.code === 'HPE_HEADER_OVERFLOW' ? '431 Request Header Fields Too Large' : '400 Bad Request';
    if (socket.writable && !owesAnswer(socket))
      socket.end(`HTTP/1.1 ${status}\r\nAccess-Control-Allow-Origin: *\r\nConnection: close\r\n\r\n`);
    else socket.destroy();
  });
  return http as Server;
}

/**
 * Whether an earlier request on the connection has no response yet, or half of one: a message sent now would be taken
 * for it, or for its rest. Node's own handler checks the same member (lib/_http_server.js, socketOnError). If the
 * request's own body is not HTTP, the message is its response.
 */
function owesAnswer(line: object): boolean {
  const { _httpMessage: answer } = line as { readonly _httpMessage?: ServerResponse | null };
  return answer !== undefined && answer !== null && (answer.headersSent || answer.req.complete);
}

/** @returns the port */
async function listen(
  http: Server,
  { host, port, isKnown }: { readonly host: string; readonly port: number; readonly isKnown: boolean },
): Promise<number> {
  await listening(http, { host, port }).catch((error: NodeJS.ErrnoException) => {
    throw error.code === 'EADDRINUSE' ? new PortTakenError({ host, port, isKnown }, error) : error;
  });
  return (http.address() as AddressInfo).port;
}

/** The port is used by another program. The caller sets its exit code. */
export class PortTakenError extends UsageError {
  /** @param place `isKnown`: an earlier start used this port, and clients keep that URL */
  constructor(
    { host, port, isKnown }: { readonly host: string; readonly port: number; readonly isKnown: boolean },
    cause: unknown,
  ) {
    const sentence = isKnown
      ? `port ${port} of ${host}, where clients know this server, is taken by another program`
      : `port ${port} of ${host} is taken by another program: --listen ${host}:0 takes a free one`;
    super(sentence, 12, { cause });
  }
}

import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type Clock, systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/log.ts';
import { Accounts } from './accounts.ts';
import { AdminServer, type Metric } from './admin-server.ts';
import { Administration } from './administration.ts';
import { Blobs } from './blobs.ts';
import { claimStore } from './claimed-store.ts';
import { makeDataDirectory, refuseWritableByOthers } from './data-directory.ts';
import { lockData } from './data-lock.ts';
import { Database } from './database.ts';
import type { DiskSpace } from './disk-reserve.ts';
import { Dispatcher } from './dispatcher.ts';
import { Documents } from './documents.ts';
import { FaultPlan, type FaultRule } from './fault-plan.ts';
import { Histories } from './histories.ts';
import type { HoldingLimits } from './holdings.ts';
import { bootId, collectGarbage, sweepBlobs, truncatePartialUploads } from './housekeeping.ts';
import { Lines } from './lines.ts';
import { listening } from './listening.ts';
import { localRules } from './local-rules.ts';
import { ObjectCollector } from './object-collector.ts';
import { ObjectMover } from './object-mover.ts';
import type { ObjectStore } from './object-store.ts';
import { Pictures } from './pictures.ts';
import { TrustedProxies } from './remote-address.ts';
import { Repository } from './repository.ts';
import { RequestLog } from './request-log.ts';
import type { VersionRow } from './rows.ts';
import { Sealer } from './sealer.ts';
import { serverMetrics } from './server-metrics.ts';
import type { Parts } from './server-parts.ts';
import { Uploads } from './uploads.ts';

/** Server options. The defaults are those of the real service, as far as known. */
export interface ReferenceServerOptions {
  readonly dataDirectory: string;
  /**
   * `port` 0 or absent: the port that this data directory used last, or any free port at its first start. Clients know
   * resources by their URLs, so a server keeps its origin.
   */
  readonly listen?: { readonly host?: string; readonly port?: number };
  /** PEM texts; without them plain HTTP, which is refused beyond loopback. */
  readonly tls?: { readonly certificate: string; readonly key: string };
  /** Allows plain HTTP beyond loopback: behind a proxy that terminates TLS. */
  readonly insecure?: boolean;
  /** Where `/healthz` and `/metrics` are answered; nowhere by default. `host`: loopback by default. */
  readonly adminListen?: { readonly host?: string; readonly port?: number };
  /** Origin of URLs in responses, if it differs from the listening address: `https://cloud.example.com`. */
  readonly publicOrigin?: string;
  readonly log?: Logger;
  readonly clock?: Clock;
  /** Lifetime of an access token; one hour (docs/service.md 3.2). */
  readonly accessTokenMs?: number;
  readonly uniqueNames?: boolean;
  readonly foldCase?: boolean;
  /** Complete versions kept per file, including the newest; all by default. */
  readonly versionsKept?: number;
  /** Upper limit of entries on one page, even for a larger `max`; 1,000. */
  readonly pageMax?: number;
  /** Incomplete versions are deleted after this long without progress; 7 days. */
  readonly uploadKeptMs?: number;
  /** Accepts any developer's keys and application: for clients with built-in ones. */
  readonly acceptAnyKeys?: boolean;
  readonly faults?: readonly FaultRule[];
  /** Delay before each response, for benchmarks. */
  readonly latencyMs?: number;
  /** Bandwidth of each body, for benchmarks. */
  readonly bandwidthBytesPerSecond?: number;
  /**
   * Maximum number of open connections; 1000. A further one takes the place of the oldest without a valid token. One
   * account, and one network without a valid token, may have a quarter of them.
   */
  readonly connectionsMax?: number;
  /** A connection without traffic for this long is closed, even within a request; two minutes. */
  readonly silenceMaxMs?: number;
  /** Requests kept in the log; 10,000. */
  readonly requestsKept?: number;
  /** Addresses or networks of proxies whose X-Forwarded-For is believed. */
  readonly trustedProxies?: readonly string[];
  /** Limits of each account beside its quota. */
  readonly limits?: HoldingLimits;
  /** Where the bytes of complete versions are moved to; null: they stay in the data directory. The server closes it. */
  readonly objects?: ObjectStore | null;
  /** The file system of the data; by default queried from the system. */
  readonly disk?: DiskSpace;
}

/**
 * The complete service, durable, in one process (docs/service.md): the embedded default of `npm start`, the peer in
 * tests, and small enough to self-host.
 */
export class ReferenceServer {
  /** `http://127.0.0.1:PORT`: the prefix of every URL of this server. */
  readonly origin: string;
  readonly port: number;
  /** Administration of users, applications, keys and shares on the same data. */
  readonly administration: Administration;
  readonly requests: RequestLog;
  readonly #parts: Parts;
  readonly #unlock: () => Promise<void>;
  readonly #http: Server;
  readonly #dispatcher: Dispatcher;
  readonly #lines: Lines;
  readonly #stopHousekeeping: () => Promise<void>;
  readonly #admin: AdminServer | null;
  /** Null without an object store. */
  readonly #objects: ObjectCollector | null;

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
    makeDataDirectory(options.dataDirectory);
    refuseWritableByOthers(options.dataDirectory);
    const unlock = await lockData(options.dataDirectory);
    let parts: Parts | undefined;
    let admin: AdminServer | null = null;
    let server: ReferenceServer | null = null;
    try {
      parts = openParts(options);
      await claimStore(parts.database, options.objects ?? null, options.log ?? silentLogger);
      await truncatePartialUploads(parts, bootId());
      await sweepBlobs(parts);
      for (const version of parts.histories.all()) if (version.sha256 === null) parts.sealer.add(version);
      const trustedProxies = new TrustedProxies(options.trustedProxies ?? []);
      const lines = new Lines(http, { linesMax: options.connectionsMax ?? CONNECTIONS_MAX, trustedProxies });
      if (options.adminListen !== undefined) {
        admin = await AdminServer.open(options.adminListen, {
          isHealthy: () => server?.isReadable === true,
          metrics: () => server?.metrics ?? [],
        });
      }
      const kept = parts.database.meta.get('port') as number | undefined;
      const asked = options.listen?.port;
      const wanted = asked === undefined || asked === 0 ? (kept ?? 0) : asked;
      const port = await listen(http, { host, port: wanted, isKnown: wanted === kept });
      const origin = originOf(options, host, port);
      keepAddress(parts.database, port, origin);
      server = new ReferenceServer(options, { ...parts, unlock, trustedProxies, admin }, http, lines, origin, port);
      return server;
    } catch (error) {
      http.close();
      await admin?.close();
      await parts?.mover?.close();
      await parts?.database.close();
      await options.objects?.close();
      await unlock();
      throw error;
    }
  }

  private constructor(
    options: ReferenceServerOptions,
    parts: Parts & { unlock: () => Promise<void>; trustedProxies: TrustedProxies; admin: AdminServer | null },
    http: Server,
    lines: Lines,
    origin: string,
    port: number,
  ) {
    this.port = port;
    this.origin = origin;
    this.#parts = parts;
    this.#unlock = parts.unlock;
    this.#http = http;
    this.#lines = lines;
    this.#admin = parts.admin;
    this.administration = new Administration(parts);
    this.requests = new RequestLog({ entriesMax: options.requestsKept ?? 10_000 });
    this.#dispatcher = new Dispatcher({
      service: {
        ...localRules(parts),
        documents: new Documents({ origin: this.origin }),
        pictures: new Pictures(),
      },
      clock: parts.clock,
      log: options.log ?? silentLogger,
      requests: this.requests,
      faults: new FaultPlan(options.faults ?? []),
      latencyMs: options.latencyMs ?? 0,
      bandwidth: options.bandwidthBytesPerSecond ?? Number.POSITIVE_INFINITY,
      lines,
      trustedProxies: parts.trustedProxies,
      requestsPerAccountMax: Math.max(1, Math.floor((options.connectionsMax ?? CONNECTIONS_MAX) / 4)),
    });
    const answer = (expectsContinue: boolean) => (request: IncomingMessage, response: ServerResponse) =>
      void this.#dispatcher.answer(request, response, expectsContinue);
    http.on('request', answer(false)).on('checkContinue', answer(true));
    // Other expectations may be ignored (RFC 9110, 10.1.1). Node's 417 would lack the headers common to all responses
    // here.
    http.on('checkExpectation', answer(false));
    // A connection could not be accepted (no descriptors, no memory): the client retries.
    http.on('error', (err) => (options.log ?? silentLogger).warn({ err }, 'connection not accepted'));
    const store = options.objects ?? null;
    const log = options.log ?? silentLogger;
    this.#objects = store === null ? null : new ObjectCollector({ ...parts, store, log });
    this.#objects?.start();
    parts.mover?.start();
    this.#stopHousekeeping = collectGarbage(parts, {
      uploadKeptMs: options.uploadKeptMs ?? 7 * 24 * 3600_000,
      log: options.log ?? silentLogger,
    });
  }

  /** Origin of `/healthz` and `/metrics`; null without them. */
  get adminOrigin(): string | null {
    return this.#admin?.origin ?? null;
  }

  /** Whether the data can be read. */
  get isReadable(): boolean {
    return this.#parts.database.isReadable();
  }

  get metrics(): readonly Metric[] {
    return serverMetrics(this.#parts, this.requests, this.#lines);
  }

  /** Requests that wait behind others of their connection. */
  get waiting(): number {
    return this.#lines.waiting;
  }

  /** The fault rules; setting them resets their counts. @throws TypeError for an invalid rule */
  get faults(): readonly FaultRule[] {
    return this.#dispatcher.faults.rules;
  }

  set faults(rules: readonly FaultRule[]) {
    this.#dispatcher.faults = new FaultPlan(rules);
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
    return this.#parts.uploads.underWay;
  }

  /** Versions that wait for the object store; 0 without one. */
  get versionsToMove(): number {
    return this.#parts.mover?.waiting ?? 0;
  }

  /** Deletes objects without a reference, as every minute. @returns how many */
  async collectObjects(): Promise<number> {
    return (await this.#objects?.collect()) ?? 0;
  }

  /** Waits up to `graceMs` for active requests, then closes their connections. Acknowledged data are durable. */
  async close(options: { graceMs?: number } = {}): Promise<void> {
    const tidied = this.#stopHousekeeping();
    const closed = new Promise<void>((resolve) => void this.#http.close(() => resolve()));
    this.#http.closeIdleConnections();
    const endLines = (): void => {
      for (const socket of this.#lines.open) socket.destroy();
    };
    const graceMs = options.graceMs ?? 0;
    if (graceMs === 0) endLines();
    const cancel = this.#parts.clock.after(graceMs, endLines);
    await closed;
    cancel();
    await this.#dispatcher.idle();
    await this.#admin?.close();
    await tidied;
    await this.#parts.sealer.close();
    await this.#parts.mover?.close();
    await this.#objects?.close();
    await this.#parts.database.close();
    await this.#unlock();
  }
}

export function openParts(options: ReferenceServerOptions): Parts {
  const clock = options.clock ?? systemClock;
  const database = Database.open(options.dataDirectory, { disk: options.disk, limits: options.limits });
  const store = options.objects ?? null;
  const blobs = new Blobs({ directory: join(options.dataDirectory, 'blobs'), database, store });
  const repository = new Repository({
    database,
    clock,
    rules: { uniqueNames: options.uniqueNames ?? false, foldCase: options.foldCase ?? false },
    pageMax: options.pageMax ?? PAGE_MAX,
  });
  const versionsKept = options.versionsKept ?? Number.POSITIVE_INFINITY;
  const histories = new Histories({
    database,
    clock,
    repository,
    versionsKept,
    removeBlobs: (names) => blobs.remove(names),
  });
  const accounts = new Accounts({
    database,
    clock,
    accessTokenMs: options.accessTokenMs ?? 3600_000,
    acceptAnyKeys: options.acceptAnyKeys ?? false,
  });
  const log = options.log ?? silentLogger;
  const mover = store === null ? null : new ObjectMover({ store, database, blobs, histories, clock, log });
  const sealed = (version: VersionRow): void => mover?.add(version);
  const sealer = new Sealer({ database, blobs, histories, clock, log, sealed });
  const uploads = new Uploads({ database, blobs, histories, sealer, accounts, repository, clock });
  histories.spare((version) => uploads.isUnderWay(version));
  return { database, clock, accounts, repository, histories, blobs, sealer, uploads, mover };
}

/** Administration of a data directory, with or without a running server. Must be closed. */
export async function openAdministration(options: {
  dataDirectory: string;
  clock?: Clock;
}): Promise<OpenAdministration> {
  const parts = openParts(options);
  const { meta } = parts.database;
  return {
    administration: new Administration(parts),
    origin: () => (meta.get('origin') as string | undefined) ?? null,
    reserve: (port) => {
      const origin = `http://127.0.0.1:${port}`;
      keepAddress(parts.database, port, origin);
      return origin;
    },
    close: () => parts.database.close(),
  };
}

export interface OpenAdministration {
  readonly administration: Administration;
  /** The server's origin at its last start; null before its first start. */
  origin(): string | null;
  /** Sets the port of a server that has not started yet. @returns its origin */
  reserve(port: number): string;
  close(): Promise<void>;
}

/** Most starts find it stored already and write nothing: a server must start on a full disk. */
function keepAddress(database: Database, port: number, origin: string): void {
  const { meta } = database;
  if (meta.get('port') === port && meta.get('origin') === origin) return;
  database.change(() => {
    void meta.put('port', port);
    void meta.put('origin', origin);
  });
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
const PAGE_MAX = 1000;
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

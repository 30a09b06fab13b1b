import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { type Clock, systemClock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { type Logger, silentLogger } from '../base/log.ts';
import { Accounts } from './accounts.ts';
import { Administration } from './administration.ts';
import { Blobs } from './blobs.ts';
import { Collections } from './collections.ts';
import { makeDataDirectory } from './data-directory.ts';
import { lockData } from './data-lock.ts';
import { Database } from './database.ts';
import { DiskReserve, type DiskSpace, diskSpaceOf } from './disk-reserve.ts';
import { Dispatcher } from './dispatcher.ts';
import { Documents } from './documents.ts';
import { FaultPlan, type FaultRule } from './fault-plan.ts';
import { Histories } from './histories.ts';
import { bootId, collectGarbage, settlePartialUploads, sweepBlobs } from './housekeeping.ts';
import { Lines } from './lines.ts';
import { listening } from './listening.ts';
import { Pictures } from './pictures.ts';
import { Repository } from './repository.ts';
import { RequestLog } from './request-log.ts';
import { Sealer } from './sealer.ts';
import type { Parts } from './server-parts.ts';
import { Uploads } from './uploads.ts';

/** How the service behaves. All have defaults: those of the real service as far as they are known. */
export interface ReferenceServerOptions {
  readonly dataDirectory: string;
  /**
   * `port` 0 or left out: the one that this data directory had last, or at its first start any free one. Clients know resources
   * by their URLs, so a server keeps its origin.
   */
  readonly listen?: { readonly host?: string; readonly port?: number };
  /** PEM texts; without them plain HTTP, which is refused beyond loopback. */
  readonly tls?: { readonly certificate: string; readonly key: string };
  /** Plain HTTP beyond loopback all the same: behind a proxy that speaks TLS. */
  readonly insecure?: boolean;
  /** What URLs in answers begin with, where that is not what is listened on: `https://cloud.example.com`. */
  readonly publicOrigin?: string;
  readonly log?: Logger;
  readonly clock?: Clock;
  /** Life of an access token; one hour (docs/service.md 3.2). */
  readonly accessTokenMs?: number;
  readonly uniqueNames?: boolean;
  readonly foldCase?: boolean;
  /** Complete versions of a file that are kept, the newest included; all by default. */
  readonly versionsKept?: number;
  /** Entries on one page at most, whatever `max` says; no limit by default. */
  readonly pageMax?: number;
  /** Incomplete versions are forgotten after so long without a byte; 7 days. */
  readonly uploadKeptMs?: number;
  /** Any developer's keys and application are good: for clients that have their own compiled in. */
  readonly acceptAnyKeys?: boolean;
  readonly faults?: readonly FaultRule[];
  /** Added before each answer, for measuring. */
  readonly latencyMs?: number;
  /** Of each body, for measuring. */
  readonly bandwidthBytesPerSecond?: number;
  /** Lines at once; 1000. One more is ended at once. */
  readonly connectionsMax?: number;
  /** A line on which nothing moves for so long is ended, also within a request; two minutes. */
  readonly silenceMaxMs?: number;
  /** Requests that the log keeps; 10,000. */
  readonly requestsKept?: number;
  /** The file system of the data; asked of the system by default. */
  readonly disk?: DiskSpace;
}

/**
 * The service, whole and durable, in one process (docs/service.md): the embedded default of `npm start`, the
 * peer in tests, small enough to self-host.
 */
export class ReferenceServer {
  /** `http://127.0.0.1:PORT`: what every URL of this server begins with. */
  readonly origin: string;
  readonly port: number;
  /** Users, applications, keys and shares on the same data. */
  readonly administration: Administration;
  readonly requests: RequestLog;
  readonly #parts: Parts;
  readonly #unlock: () => Promise<void>;
  readonly #http: Server;
  readonly #dispatcher: Dispatcher;
  readonly #lines: Lines;
  readonly #stopHousekeeping: () => Promise<void>;

  /**
   * @throws UsageError when the port is taken, the directory is in use, or plain HTTP would leave this machine;
   * StorageError when the data cannot be used
   */
  static async open(options: ReferenceServerOptions): Promise<ReferenceServer> {
    const host = options.listen?.host ?? '127.0.0.1';
    if (options.tls === undefined && options.insecure !== true && !LOOPBACK.test(host)) {
      throw new UsageError(`plain HTTP on ${host} can be overheard: give --tls-cert and --tls-key, or --insecure`);
    }
    const http = createHttp(options);
    makeDataDirectory(options.dataDirectory);
    const unlock = await lockData(options.dataDirectory);
    let parts: Parts | undefined;
    try {
      parts = openParts(options);
      await settlePartialUploads(parts, bootId());
      await sweepBlobs(parts);
      for (const version of parts.histories.all()) parts.sealer.add(version);
      const lines = new Lines(http);
      const kept = parts.database.meta.get('port') as number | undefined;
      const asked = options.listen?.port;
      const wanted = asked === undefined || asked === 0 ? (kept ?? 0) : asked;
      const port = await listen(http, { host, port: wanted, isKnown: wanted === kept });
      const origin = originOf(options, host, port);
      keepAddress(parts.database, port, origin);
      return new ReferenceServer(options, { ...parts, unlock }, http, lines, origin, port);
    } catch (error) {
      http.close();
      await parts?.database.close();
      await unlock();
      throw error;
    }
  }

  private constructor(
    options: ReferenceServerOptions,
    parts: Parts & { unlock: () => Promise<void> },
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
    this.administration = new Administration(parts);
    this.requests = new RequestLog({ entriesMax: options.requestsKept ?? 10_000 });
    this.#dispatcher = new Dispatcher({
      service: {
        ...parts,
        collections: new Collections(parts),
        documents: new Documents({ origin: this.origin }),
        pictures: new Pictures(),
      },
      clock: parts.clock,
      log: options.log ?? silentLogger,
      requests: this.requests,
      faults: new FaultPlan(options.faults ?? []),
      latencyMs: options.latencyMs ?? 0,
      bandwidth: options.bandwidthBytesPerSecond ?? Number.POSITIVE_INFINITY,
    });
    const answer = (expectsContinue: boolean) => (request: IncomingMessage, response: ServerResponse) =>
      void this.#dispatcher.answer(request, response, expectsContinue);
    http.on('request', answer(false)).on('checkContinue', answer(true));
    // Another expectation may be passed over (RFC 9110, 10.1.1). Node would say 417, without what each of our answers has.
    http.on('checkExpectation', answer(false));
    // A connection that could not be taken (no descriptors, no memory): the client tries again.
    http.on('error', (err) => (options.log ?? silentLogger).warn({ err }, 'connection not accepted'));
    this.#stopHousekeeping = collectGarbage(parts, {
      uploadKeptMs: options.uploadKeptMs ?? 7 * 24 * 3600_000,
      log: options.log ?? silentLogger,
    });
  }

  /** The trouble to come; setting it starts its counts anew. @throws TypeError for a rule that is none */
  get faults(): readonly FaultRule[] {
    return this.#dispatcher.faults.rules;
  }

  set faults(rules: readonly FaultRule[]) {
    this.#dispatcher.faults = new FaultPlan(rules);
  }

  /** Lines that are open right now. */
  get connections(): number {
    return this.#lines.open.size;
  }

  /** All that came over lines since the start: heads and bodies, kept or thrown away. */
  get bytesArrived(): number {
    return this.#lines.bytesArrived;
  }

  /** Versions that some request is writing to right now. */
  get uploadsUnderWay(): number {
    return this.#parts.uploads.underWay;
  }

  /** Lets requests under way finish for `graceMs`, then ends their lines. What was acknowledged is on the disk. */
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
    await tidied;
    await this.#parts.sealer.close();
    await this.#parts.database.close();
    await this.#unlock();
  }
}

export function openParts(options: ReferenceServerOptions): Parts {
  const clock = options.clock ?? systemClock;
  const database = Database.open(options.dataDirectory, options.disk?.freeBytes);
  const blobs = new Blobs({ directory: join(options.dataDirectory, 'blobs'), database });
  const repository = new Repository({
    database,
    clock,
    rules: { uniqueNames: options.uniqueNames ?? false, foldCase: options.foldCase ?? false },
    pageMax: options.pageMax ?? Number.MAX_SAFE_INTEGER - 1,
  });
  const versionsKept = options.versionsKept ?? Number.POSITIVE_INFINITY;
  const histories = new Histories({ database, clock, repository, versionsKept });
  const accounts = new Accounts({
    database,
    clock,
    accessTokenMs: options.accessTokenMs ?? 3600_000,
    acceptAnyKeys: options.acceptAnyKeys ?? false,
  });
  const sealer = new Sealer({ database, blobs, histories, clock, log: options.log ?? silentLogger });
  const reserve = new DiskReserve(options.disk ?? diskSpaceOf(options.dataDirectory));
  const uploads = new Uploads({ database, blobs, histories, sealer, reserve, clock });
  return { database, clock, accounts, repository, histories, blobs, sealer, uploads };
}

/** Administration of a data directory whose server may or may not be running. Close it when done. */
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
  /** What the server's URLs began with when it last started; null before its first start. */
  origin(): string | null;
  /** Sets the port of a server that has not started yet. @returns its origin */
  reserve(port: number): string;
  close(): Promise<void>;
}

/** Most starts find it kept already: a server starts on a full disk, too. */
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

/** Limits of a line: slow or silent ones are ended. Long uploads are not: only a pause in them counts. */
const LINE_LIMITS: ServerOptions = {
  maxHeaderSize: 32 * 1024,
  headersTimeout: 20_000,
  requestTimeout: 0,
  // The dispatcher refuses one without: Node's refusal lacks what each of our answers has.
  requireHostHeader: false,
  keepAliveTimeout: 30_000,
  connectionsCheckingInterval: 5000,
  // What a body is read with: the default of 64 KiB costs a third of the speed of large uploads.
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
  http.maxConnections = options.connectionsMax ?? CONNECTIONS_MAX;
  http.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const status = error.code === 'HPE_HEADER_OVERFLOW' ? '431 Request Header Fields Too Large' : '400 Bad Request';
    if (socket.writable && !owesAnswer(socket))
      socket.end(`HTTP/1.1 ${status}\r\nAccess-Control-Allow-Origin: *\r\nConnection: close\r\n\r\n`);
    else socket.destroy();
  });
  return http as Server;
}

/**
 * Whether an earlier request on a line has no answer yet, or half of one: what is said now would be taken for that, or for the rest of it.
 * Node's own handler asks the same member (lib/_http_server.js, socketOnError). Where the body of the request itself is no HTTP, what is
 * said is its answer.
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

/** The port belongs to another program. The caller gives it its exit code. */
export class PortTakenError extends UsageError {
  /** @param place `isKnown`: an earlier start listened there, and clients keep that address */
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

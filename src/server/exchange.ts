import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Clock } from '../base/clock.ts';
import { ProtocolError } from '../base/errors.ts';
import { errorPage } from '../protocol/error-page.ts';
import { type DecodeDocument, rootName } from '../protocol/xml.ts';
import type { Fault } from './fault-plan.ts';
import { malformed, Refusal } from './refusal.ts';
import { RequestBody } from './request-body.ts';

/** How a request body ended: complete, cut connection, stopped by a fault rule, or longer than allowed. */
export type BodyOutcome = 'complete' | 'interrupted' | 'stopped' | 'tooLong';

/**
 * One request and its response: reads bodies with back-pressure, sends the service's forms of response, counts bytes,
 * and applies the connection part of a fault.
 */
export class Exchange {
  readonly request: IncomingMessage;
  readonly fault: Fault;
  readonly #response: ServerResponse;
  readonly #body: RequestBody;
  readonly #clock: Clock;
  readonly expectsContinue: boolean;
  readonly #bandwidth: number;
  #bytesIn = 0;
  #bytesOut = 0;
  #status = 0;
  #answerCutAt = Infinity;
  /** The last response's text, kept for stale listings. */
  #text: string | null = null;

  constructor(deps: {
    request: IncomingMessage;
    response: ServerResponse;
    clock: Clock;
    fault: Fault;
    expectsContinue: boolean;
    /** Bytes per second of each body; Infinity for no limit. */
    bandwidth: number;
  }) {
    this.request = deps.request;
    this.fault = deps.fault;
    this.#response = deps.response;
    this.#body = new RequestBody(deps.request, this.contentLength === 0);
    this.#clock = deps.clock;
    this.expectsContinue = deps.expectsContinue;
    this.#bandwidth = Math.min(deps.bandwidth, deps.fault.bandwidthBytesPerSecond ?? Number.POSITIVE_INFINITY);
    // A cut connection is an outcome here, not an exception.
    this.request.on('error', () => {});
    this.#response.on('error', () => {});
  }

  get bytesIn(): number {
    return this.#bytesIn;
  }

  get bytesOut(): number {
    return this.#bytesOut;
  }

  /** 0 until the response begins. */
  get status(): number {
    return this.#status;
  }

  get text(): string | null {
    return this.#text;
  }

  /** The refusal that the fault rule orders: immediately, or after `acceptBytes` of the body. */
  get orderedRefusal(): Refusal | null {
    const { status, retryAfterSeconds } = this.fault;
    if (status === undefined) return null;
    const headers = retryAfterSeconds === undefined ? {} : { 'Retry-After': String(retryAfterSeconds) };
    return new Refusal(status, 'Ordered trouble', headers);
  }

  /** Announced length of the body; null for a chunked one. */
  get contentLength(): number | null {
    const raw = this.request.headers['content-length'];
    if (raw !== undefined) return Number(raw);
    return this.request.headers['transfer-encoding'] === undefined ? 0 : null;
  }

  /**
   * Passes the body on in chunks; the sender is throttled while `sink` is busy.
   * @param bytesMax maximum length of the body
   */
  receive(sink: (chunks: readonly Uint8Array[]) => Promise<void>, bytesMax: number): Promise<BodyOutcome> {
    return this.#receive(sink, bytesMax, SLOWEST_BYTES);
  }

  /** @param slowestBytes the least number of bytes in half a minute */
  async #receive(
    sink: (chunks: readonly Uint8Array[]) => Promise<void>,
    bytesMax: number,
    slowestBytes: number,
  ): Promise<BodyOutcome> {
    if (this.expectsContinue && !this.#response.headersSent) this.#response.writeContinue();
    const cutAt = this.#cutOf(this.contentLength);
    const orderedEnd = Math.min(this.fault.acceptBytes ?? Infinity, cutAt);
    const stopWatch = this.#watchSender(slowestBytes);
    try {
      return await this.#pass(sink, { cutAt, orderedEnd, bytesMax });
    } finally {
      stopWatch();
    }
  }

  async #pass(
    sink: (chunks: readonly Uint8Array[]) => Promise<void>,
    { cutAt, orderedEnd, bytesMax }: { cutAt: number; orderedEnd: number; bytesMax: number },
  ): Promise<BodyOutcome> {
    for (;;) {
      const chunks = await this.#body.next();
      if (chunks === null) break;
      const room = Math.min(orderedEnd, bytesMax) - this.#bytesIn;
      const kept = front(chunks, room);
      const bytes = lengthOf(kept);
      this.#bytesIn += bytes;
      if (bytes > 0) await sink(kept);
      if (this.#bandwidth !== Infinity) await this.#clock.sleep((bytes / this.#bandwidth) * 1000);
      if (this.#bytesIn === cutAt) this.hangUp();
      if (this.#bytesIn === orderedEnd) return this.#bytesIn === cutAt ? 'interrupted' : 'stopped';
      if (bytes < lengthOf(chunks)) return 'tooLong';
    }
    return this.#body.isComplete ? 'complete' : 'interrupted';
  }

  /** Ends the connection of a sender that is too slow, while the server waits for it. */
  #watchSender(slowestBytes: number): () => void {
    if (this.#body.isComplete) return () => {};
    let seenBytes = 0;
    let cancel = (): void => {};
    const look = (): void => {
      if (this.#body.isAwaited && this.#bytesIn - seenBytes < slowestBytes) {
        this.hangUp();
        return;
      }
      seenBytes = this.#bytesIn;
      cancel = this.#clock.after(SLOWEST_MS, look);
    };
    cancel = this.#clock.after(SLOWEST_MS, look);
    return () => cancel();
  }

  /** The whole body, for small ones, within half a minute. @throws Refusal 400 if it is too long, or incomplete */
  async document(): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    // A document that has not ended by then is too slow, whatever has come of it.
    const outcome = await this.#receive(
      async (arrived) => void chunks.push(...arrived),
      DOCUMENT_BYTES_MAX,
      Number.POSITIVE_INFINITY,
    );
    if (outcome !== 'complete') throw malformed();
    return Buffer.concat(chunks);
  }

  /** Decodes the body. @throws Refusal 400 if the decoder rejects it */
  async decoded<T>(decode: DecodeDocument<T>): Promise<T> {
    return decodedOr400(await this.document(), decode);
  }

  /** Sends an XML document, without Content-Length like the service (docs/service.md 2.2). */
  async sendXml(status: number, xml: string, headers: Readonly<Record<string, string>> = {}): Promise<void> {
    this.#text = xml;
    const body = Buffer.from(xml);
    const own: Record<string, string> = { ...headers, 'Content-Type': 'application/xml; charset=UTF-8' };
    if (body.byteLength < GZIP_BYTES_MIN) return this.#send(status, own, body);
    own.Vary = 'Accept-Encoding';
    if (!acceptsGzip(this.request.headers['accept-encoding'])) return this.#send(status, own, body);
    own['Content-Encoding'] = 'gzip';
    await this.#send(status, own, await compressed(body, { level: 1 }));
  }

  async sendEmpty(status: number, headers: Readonly<Record<string, string>> = {}): Promise<void> {
    const length = status === 204 ? {} : { 'Content-Length': '0' };
    await this.#send(
      status,
      { ...headers, ...length, 'Content-Type': 'application/octet-stream; charset=UTF-8' },
      null,
    );
  }

  async sendRefusal(refusal: Refusal): Promise<void> {
    await this.sendHtml(refusal.status, errorPage(refusal.status, refusal.message), refusal.headers);
  }

  async sendHtml(status: number, html: string, headers: Readonly<Record<string, string>> = {}): Promise<void> {
    const body = Buffer.from(html);
    const own = { 'Content-Type': 'text/html; charset=UTF-8', 'Content-Length': String(body.byteLength) };
    await this.#send(status, { ...headers, ...own }, body);
  }

  /** Sends chunks, each valid until the next one is requested; ends early if the client disconnects. */
  async sendData(
    status: number,
    headers: Readonly<Record<string, string>>,
    data: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  ): Promise<void> {
    if (!(await this.#begin(status, headers, Number(headers['Content-Length'])))) return;
    if (this.#isHead) return void this.#response.end();
    try {
      for await (const chunk of data) if (!(await this.#write(chunk))) return;
      this.#response.end();
    } catch {
      // The response has begun: the reader sees a body that is too short.
      this.hangUp();
    }
  }

  hangUp(): void {
    this.request.socket.destroy();
  }

  /** Sends nothing until the client disconnects. */
  async hang(): Promise<void> {
    if (!this.request.socket.destroyed) await once(this.request.socket, 'close').catch(() => {});
  }

  /** Number of body bytes after which the fault rule cuts the connection; Infinity for no cut, or an empty body. */
  #cutOf(bodyBytes: number | null): number {
    const { hangUpAfterBytes = Infinity } = this.fault;
    if (bodyBytes === 0) return Infinity;
    if (typeof hangUpAfterBytes === 'number') return hangUpAfterBytes;
    if (bodyBytes === null) return Infinity;
    return hangUpAfterBytes === 'half' ? Math.floor(bodyBytes / 2) : bodyBytes - 1;
  }

  /** Sends the head. @returns false if the response is dropped instead */
  async #begin(status: number, headers: Readonly<Record<string, string>>, bodyBytes: number): Promise<boolean> {
    const { actButNeverAnswer, hangUpInHead } = this.fault;
    if (actButNeverAnswer === 'hang') await this.hang();
    if (actButNeverAnswer !== undefined && actButNeverAnswer !== false) {
      this.hangUp();
      return false;
    }
    if (hangUpInHead === true) {
      await written(this.request.socket, this.request.socket, Buffer.from(HALF_A_HEAD));
      this.hangUp();
      return false;
    }
    const response = this.#response;
    if (this.#isGone || response.headersSent) return false;
    this.#status = status;
    // A request with a body is cut within the request body.
    this.#answerCutAt = this.contentLength === 0 ? this.#cutOf(bodyBytes) : Infinity;
    response.writeHead(status, {
      ...headers,
      ...COMMON_HEADERS,
      ...(this.#leavesBodyUnread() ? { Connection: 'close' } : {}),
    });
    return true;
  }

  async #send(status: number, headers: Readonly<Record<string, string>>, body: Uint8Array | null): Promise<void> {
    // A small body is cheaper to read than a new connection.
    if (this.#leavesBodyUnread() && (this.contentLength ?? Infinity) <= SMALL_BODY_BYTES && !this.expectsContinue) {
      await this.#letSenderFinish();
    }
    // Decided before the head is sent, which announces whether the connection stays open.
    const leavesBodyUnread = this.#leavesBodyUnread();
    if (!(await this.#begin(status, headers, body?.byteLength ?? 0))) return;
    if (body !== null && !this.#isHead && !(await this.#write(body, !leavesBodyUnread))) return;
    if (leavesBodyUnread) await this.#letSenderFinish();
    this.#response.end();
  }

  /**
   * Whether the client has disconnected. Checks the connection: a pipelined response that waits behind another one has
   * no socket yet, and gets no close event.
   */
  get #isGone(): boolean {
    return this.request.socket.destroyed;
  }

  /** HEAD: only the headers are requested. */
  get #isHead(): boolean {
    return this.request.method === 'HEAD';
  }

  #leavesBodyUnread(): boolean {
    return this.contentLength !== 0 && !this.#body.isComplete;
  }

  /**
   * Drains the unwanted body for a while: closing the connection under a sender resets it, and the response is lost.
   */
  async #letSenderFinish(): Promise<void> {
    const limit = new AbortController();
    await Promise.race([this.#body.discard(LINGER_BYTES_MAX), this.#clock.sleep(LINGER_MS, limit.signal)]);
    limit.abort();
  }

  /**
   * Resolves when the kernel has the bytes, at the pace of the bandwidth limit. @returns false if the client has
   * disconnected
   * @param isLast ends the response: head, body and end leave together, which costs half of two packets
   */
  async #write(chunk: Uint8Array, isLast = false): Promise<boolean> {
    const pieceBytes = Math.max(1, Math.ceil(this.#bandwidth * PIECE_S));
    if (chunk.byteLength <= pieceBytes) return this.#writePiece(chunk, isLast);
    for (let at = 0; at < chunk.byteLength; at += pieceBytes) {
      const piece = chunk.subarray(at, at + pieceBytes);
      if (!(await this.#writePiece(piece, isLast && at + pieceBytes >= chunk.byteLength))) return false;
    }
    return true;
  }

  async #writePiece(chunk: Uint8Array, isLast: boolean): Promise<boolean> {
    const response = this.#response;
    if (this.#isGone) return false;
    const room = this.#answerCutAt - this.#bytesOut;
    const sent = chunk.byteLength <= room ? chunk : chunk.subarray(0, room);
    this.#bytesOut += sent.byteLength;
    const isCut = this.#bytesOut === this.#answerCutAt;
    const leaving = written(response, this.request.socket, sent, isLast && !isCut);
    if (!isCut && this.#bandwidth !== Infinity) await this.#clock.sleep((sent.byteLength / this.#bandwidth) * 1000);
    // Also before a cut: destroying a socket discards its queued bytes.
    await leaving;
    if (isCut) this.hangUp();
    return !isCut && !this.#isGone;
  }
}

/** @throws Refusal 400 instead of ProtocolError */
export function decodedOr400<T>(body: Uint8Array, decode: DecodeDocument<T>): T {
  return or400(() => decode(body));
}

/** The root element of a body. @throws Refusal 400 instead of ProtocolError */
export function rootOr400(body: Uint8Array): string {
  return or400(() => rootName(body));
}

function or400<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    throw malformed(/: no [\w@]+$/.test(error.message) ? 'Missing mandatory element' : 'Invalid xml request');
  }
}

const compressed = promisify<Uint8Array, { level: number }, Buffer>(gzip);

const DOCUMENT_BYTES_MAX = 256 * 1024;
/** Shorter documents are sent as they are: they fit into a few packets. */
const GZIP_BYTES_MIN = 4096;
/** Documents that take longer end, and uploads with less than 20 bytes per second. */
const SLOWEST_MS = 30_000;
const SLOWEST_BYTES = 600;
const SMALL_BODY_BYTES = 64 * 1024;
const HALF_A_HEAD = 'HTTP/1.1 200 OK\r\nContent-Ty';
/** A bandwidth limit sends the bytes of this many seconds at a time. */
const PIECE_S = 0.25;
const LINGER_MS = 2000;
const LINGER_BYTES_MAX = 64 * 1024 * 1024;
/** Any web origin may read any response (docs/service.md 2.2). */
const COMMON_HEADERS = { 'Access-Control-Allow-Origin': '*', Server: 'cfs-serve' };

/** Whether a value of Accept-Encoding names gzip, and not with the weight 0 (RFC 9110, 12.5.3). */
function acceptsGzip(accepted: string | string[] | undefined): boolean {
  return [accepted ?? []].flat().some((value) => /(^|,)\s*gzip\s*(;\s*q=(?!0(\.0*)?\s*(,|$))|,|$)/i.test(value));
}

function lengthOf(chunks: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const chunk of chunks) bytes += chunk.byteLength;
  return bytes;
}

/** The first `bytes` bytes. */
function front(chunks: readonly Uint8Array[], bytes: number): readonly Uint8Array[] {
  let left = bytes;
  if (lengthOf(chunks) <= left) return chunks;
  return chunks.flatMap((chunk) => {
    const kept = chunk.subarray(0, Math.max(0, left));
    left -= kept.byteLength;
    return kept.byteLength === 0 ? [] : [kept];
  });
}

/**
 * Resolves when the kernel has taken `bytes`, or the connection closed: Node emits neither to a queued pipelined
 * response.
 */
function written(to: Writable, line: Socket, bytes: Uint8Array, isLast = false): Promise<void> {
  if (bytes.byteLength === 0 || line.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      line.off('close', done);
      resolve();
    };
    line.on('close', done);
    if (isLast) to.end(bytes, done);
    else to.write(bytes, done);
  });
}

import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type { Clock } from '../base/clock.ts';
import { ProtocolError } from '../base/errors.ts';
import { errorPage } from '../protocol/error-page.ts';
import { type DecodeDocument, rootName } from '../protocol/xml.ts';
import type { Fault } from './fault-plan.ts';
import { malformed, Refusal } from './refusal.ts';
import { RequestBody } from './request-body.ts';

/** How a request's body ended: all of it came; the line broke; a fault stopped it; it was longer than allowed. */
export type BodyOutcome = 'complete' | 'interrupted' | 'stopped' | 'tooLong';

/**
 * One request and its answer: reads bodies with backpressure, sends the few forms of answer that the service has, counts
 * bytes, and plays the line's part of a fault.
 */
export class Exchange {
  readonly request: IncomingMessage;
  readonly fault: Fault;
  readonly #response: ServerResponse;
  readonly #body: RequestBody;
  readonly #clock: Clock;
  readonly #expectsContinue: boolean;
  readonly #bandwidth: number;
  #bytesIn = 0;
  #bytesOut = 0;
  #status = 0;
  #answerCutAt = Infinity;
  /** The last answer's text, for a listing that is to be stale one day. */
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
    this.#body = new RequestBody(deps.request);
    this.#clock = deps.clock;
    this.#expectsContinue = deps.expectsContinue;
    this.#bandwidth = Math.min(deps.bandwidth, deps.fault.bandwidthBytesPerSecond ?? Number.POSITIVE_INFINITY);
    // A line that breaks is an outcome here, not an exception.
    this.request.on('error', () => {});
    this.#response.on('error', () => {});
  }

  get bytesIn(): number {
    return this.#bytesIn;
  }

  get bytesOut(): number {
    return this.#bytesOut;
  }

  /** 0 as long as no answer was begun. */
  get status(): number {
    return this.#status;
  }

  get text(): string | null {
    return this.#text;
  }

  /** What the fault wants answered: at once, or when `acceptBytes` of the body were taken. */
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
   * Hands the body on, piece by piece; the sender is held back while `sink` is busy.
   * @param bytesMax what the body may be long at most
   */
  async receive(sink: (chunks: readonly Uint8Array[]) => Promise<void>, bytesMax: number): Promise<BodyOutcome> {
    if (this.#expectsContinue && !this.#response.headersSent) this.#response.writeContinue();
    const cutAt = this.#cutOf(this.contentLength);
    const orderedEnd = Math.min(this.fault.acceptBytes ?? Infinity, cutAt);
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

  /** The whole body, which has to be small. @throws Refusal 400 when it is longer, or does not end */
  async document(): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    const outcome = await this.receive(async (arrived) => void chunks.push(...arrived), DOCUMENT_BYTES_MAX);
    if (outcome !== 'complete') throw malformed();
    return Buffer.concat(chunks);
  }

  /** The body by one of the protocol's decoders. @throws Refusal 400 for what it does not accept */
  async decoded<T>(decode: DecodeDocument<T>): Promise<T> {
    return decodedOr400(await this.document(), decode);
  }

  /** An XML document, without a length as the service sends it (docs/service.md 2.2). */
  async sendXml(status: number, xml: string, headers: Readonly<Record<string, string>> = {}): Promise<void> {
    this.#text = xml;
    await this.#send(status, { ...headers, 'Content-Type': 'application/xml; charset=UTF-8' }, Buffer.from(xml));
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

  /** Bytes piece by piece, each used no more when the next is asked for; ends early, with the line, when the reader goes away. */
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
      // Begun answers cannot be taken back: the reader sees a body that is too short.
      this.hangUp();
    }
  }

  hangUp(): void {
    this.request.socket.destroy();
  }

  /** Keeps silent until the other side goes away. */
  async hang(): Promise<void> {
    if (!this.request.socket.destroyed) await once(this.request.socket, 'close').catch(() => {});
  }

  /** After how many bytes of a body the fault cuts the line; Infinity for one that it leaves whole, or that is empty. */
  #cutOf(bodyBytes: number | null): number {
    const { hangUpAfterBytes = Infinity } = this.fault;
    if (bodyBytes === 0) return Infinity;
    if (typeof hangUpAfterBytes === 'number') return hangUpAfterBytes;
    if (bodyBytes === null) return Infinity;
    return hangUpAfterBytes === 'half' ? Math.floor(bodyBytes / 2) : bodyBytes - 1;
  }

  /** Sends the head. @returns false when the answer is lost instead */
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
    // A request with a body is cut in that.
    this.#answerCutAt = this.contentLength === 0 ? this.#cutOf(bodyBytes) : Infinity;
    response.writeHead(status, {
      ...headers,
      ...COMMON_HEADERS,
      ...(this.#leavesBodyUnread() ? { Connection: 'close' } : {}),
    });
    return true;
  }

  async #send(status: number, headers: Readonly<Record<string, string>>, body: Uint8Array | null): Promise<void> {
    // What is small is cheaper to read than a new line.
    if (this.#leavesBodyUnread() && (this.contentLength ?? Infinity) <= SMALL_BODY_BYTES && !this.#expectsContinue) {
      await this.#letSenderFinish();
    }
    // Decided before the head is sent: it says whether the line stays open.
    const leavesBodyUnread = this.#leavesBodyUnread();
    if (!(await this.#begin(status, headers, body?.byteLength ?? 0))) return;
    if (body !== null && !this.#isHead && !(await this.#write(body))) return;
    if (leavesBodyUnread) await this.#letSenderFinish();
    this.#response.end();
  }

  /**
   * Whether nobody is left to write to. Asked of the line: a response that waits behind another one on the same line has no line yet, and
   * never hears that it is gone.
   */
  get #isGone(): boolean {
    return this.request.socket.destroyed;
  }

  /** Asked for what is said of a body, and not for that. */
  get #isHead(): boolean {
    return this.request.method === 'HEAD';
  }

  #leavesBodyUnread(): boolean {
    return this.contentLength !== 0 && !this.#body.isComplete;
  }

  /**
   * Reads on for a while though nobody wants it: a line closed under a sender resets it, and the answer is lost with it.
   */
  async #letSenderFinish(): Promise<void> {
    const limit = new AbortController();
    await Promise.race([this.#body.discard(LINGER_BYTES_MAX), this.#clock.sleep(LINGER_MS, limit.signal)]);
    limit.abort();
  }

  /** Resolves when the kernel has the bytes; of a slow line, as it comes out of one. @returns false when there is nobody left to write to */
  async #write(chunk: Uint8Array): Promise<boolean> {
    const pieceBytes = Math.max(1, Math.ceil(this.#bandwidth * PIECE_S));
    if (chunk.byteLength <= pieceBytes) return await this.#writePiece(chunk);
    for (let at = 0; at < chunk.byteLength; at += pieceBytes)
      if (!(await this.#writePiece(chunk.subarray(at, at + pieceBytes)))) return false;
    return true;
  }

  async #writePiece(chunk: Uint8Array): Promise<boolean> {
    const response = this.#response;
    if (this.#isGone) return false;
    const room = this.#answerCutAt - this.#bytesOut;
    const sent = chunk.byteLength <= room ? chunk : chunk.subarray(0, room);
    this.#bytesOut += sent.byteLength;
    const leaving = written(response, this.request.socket, sent);
    const isCut = this.#bytesOut === this.#answerCutAt;
    if (!isCut && this.#bandwidth !== Infinity) await this.#clock.sleep((sent.byteLength / this.#bandwidth) * 1000);
    // Also before the line is cut: destroying throws away what is still queued.
    await leaving;
    if (isCut) this.hangUp();
    return !isCut && !this.#isGone;
  }
}

/** @throws Refusal 400 instead of ProtocolError */
export function decodedOr400<T>(body: Uint8Array, decode: DecodeDocument<T>): T {
  return or400(() => decode(body));
}

/** Which document a body is. @throws Refusal 400 instead of ProtocolError */
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

const DOCUMENT_BYTES_MAX = 256 * 1024;
const SMALL_BODY_BYTES = 64 * 1024;
const HALF_A_HEAD = 'HTTP/1.1 200 OK\r\nContent-Ty';
/** What a slow line brings in this time, seconds, comes out of it at once. */
const PIECE_S = 0.25;
const LINGER_MS = 2000;
const LINGER_BYTES_MAX = 64 * 1024 * 1024;
/** Any origin may read any answer (docs/service.md 2.2). */
const COMMON_HEADERS = { 'Access-Control-Allow-Origin': '*', Server: 'cfs-serve' };

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

/** Resolves when the kernel has taken `bytes`, or the line is gone: Node tells neither to a response that waits for its turn on it. */
function written(to: Writable, line: Socket, bytes: Uint8Array): Promise<void> {
  if (bytes.byteLength === 0 || line.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const done = (): void => {
      line.off('close', done);
      resolve();
    };
    line.on('close', done);
    to.write(bytes, done);
  });
}

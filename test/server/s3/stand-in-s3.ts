import { createHash, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { systemClock } from '../../../src/base/clock.ts';
import { s3Location } from '../../../src/server/s3/s3-location.ts';
import { S3Store } from '../../../src/server/s3/s3-store.ts';

/** A fault of the store: in the `times` requests from the `nth` matching one on. */
export interface StoreFault {
  /** `PUT key`, `PUT part`, `POST uploads`, `POST complete`, `GET key`, `HEAD key`, `DELETE key`. */
  readonly on: string;
  readonly nth?: number;
  readonly times?: number;
  /**
   * `slowDown`: 503, not done · `reset`: the connection ends, not done · `loseAnswer`: done, then the connection ends ·
   * `errorInBody`: 200 with an error document, not done · `doneAndErrorInBody` · `cut`: half of the body · `denied`: 403
   */
  readonly then: 'slowDown' | 'reset' | 'loseAnswer' | 'errorInBody' | 'doneAndErrorInBody' | 'cut' | 'denied';
}

interface StandInObject {
  readonly bytes: Buffer;
  readonly etag: string;
}

const BUCKET = 'cfs-test';
const PART_BYTES_MIN = 5 * 1024 * 1024;

/** An S3 store in memory that fails on request. What it does without a fault is checked against a real one (radosgw). */
export class StandInS3 {
  /** By key. */
  readonly objects = new Map<string, StandInObject>();
  /** Parts by upload id. */
  readonly uploads = new Map<string, { readonly key: string; readonly parts: Map<number, StandInObject> }>();
  faults: readonly StoreFault[] = [];
  /** Kinds of all requests. */
  readonly requests: string[] = [];
  readonly #server: Server;
  readonly #counts = new Map<StoreFault, number>();

  private constructor() {
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch(() => response.destroy());
    });
  }

  static async start(): Promise<StandInS3> {
    const store = new StandInS3();
    await new Promise<void>((resolve) => store.#server.listen(0, '127.0.0.1', resolve));
    return store;
  }

  get url(): string {
    return `s3://${BUCKET}?endpoint=http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** A client of this store; it waits little between its attempts. */
  open(): S3Store {
    const credentials = { accessKeyId: 'key', secretAccessKey: 'secret' };
    const clock = { ...systemClock, sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(ms / 100, signal) };
    return new S3Store({ location: s3Location(this.url), credentials, clock });
  }

  /** Keys of the data: without the marker of the installation. */
  get keys(): readonly string[] {
    return [...this.objects.keys()].filter((key) => key.includes('/')).sort();
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '', 'http://store');
    const [, bucket, ...segments] = decodeURIComponent(url.pathname).split('/');
    const [key, query] = [segments.join('/'), url.searchParams];
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const kind = kindOf(request.method ?? '', key, query);
    this.requests.push(kind);
    const hash = createHash('sha256').update(body).digest('hex');
    if (!/^AWS4-HMAC-SHA256 Credential=key\//.test(request.headers.authorization ?? '') || bucket !== BUCKET)
      return refuse(response, 403, 'AccessDenied');
    if (request.headers['x-amz-content-sha256'] !== hash) return refuse(response, 400, 'XAmzContentSHA256Mismatch');
    const fault = this.#faultOf(kind);
    if (fault === 'slowDown') return refuse(response, 503, 'SlowDown');
    if (fault === 'denied') return refuse(response, 403, 'AccessDenied');
    if (fault === 'reset') return void request.socket.destroy();
    if (fault === 'errorInBody') return send(response, 200, errorDocument('InternalError'));
    const answer = this.#carriedOut(kind, key, query, body, request.headers);
    if (fault === 'loseAnswer') return void request.socket.destroy();
    if (fault === 'doneAndErrorInBody') return send(response, 200, errorDocument('InternalError'));
    const { status, headers = {}, bytes = Buffer.of() } = answer;
    response.writeHead(status, { 'content-length': bytes.byteLength, ...headers });
    if (fault !== 'cut') return void response.end(bytes);
    response.write(bytes.subarray(0, bytes.byteLength / 2), () => request.socket.destroy());
  }

  #faultOf(kind: string): StoreFault['then'] | null {
    for (const fault of this.faults) {
      if (fault.on !== kind) continue;
      const count = (this.#counts.get(fault) ?? 0) + 1;
      this.#counts.set(fault, count);
      const { nth = 1, times = 1 } = fault;
      if (count >= nth && count < nth + times) return fault.then;
    }
    return null;
  }

  #carriedOut(
    kind: string,
    key: string,
    query: URLSearchParams,
    body: Buffer,
    headers: IncomingMessage['headers'],
  ): Answer {
    const uploadId = query.get('uploadId') ?? '';
    switch (kind) {
      case 'PUT key': {
        const object = objectOf(body);
        this.objects.set(key, object);
        return { status: 200, headers: { etag: object.etag } };
      }
      case 'POST uploads': {
        const id = randomBytes(8).toString('hex');
        this.uploads.set(id, { key, parts: new Map() });
        return document(`<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
      }
      case 'PUT part': {
        const upload = this.uploads.get(uploadId);
        if (upload === undefined) return refusal(404, 'NoSuchUpload');
        const part = objectOf(body);
        upload.parts.set(Number(query.get('partNumber')), part);
        return { status: 200, headers: { etag: part.etag } };
      }
      case 'POST complete':
        return this.#completed(uploadId, body.toString());
      case 'DELETE upload':
        return this.uploads.delete(uploadId) ? { status: 204 } : refusal(404, 'NoSuchUpload');
      case 'GET uploads': {
        const prefix = query.get('prefix') ?? '';
        const ids = [...this.uploads].filter(([, upload]) => upload.key.startsWith(prefix));
        const listed = ids.map(([id, upload]) => `<Upload><Key>${upload.key}</Key><UploadId>${id}</UploadId></Upload>`);
        return document(`<ListMultipartUploadsResult>${listed.join('')}</ListMultipartUploadsResult>`);
      }
      case 'DELETE key':
        this.objects.delete(key);
        return { status: 204 };
      default:
        return this.#read(kind, key, headers);
    }
  }

  #completed(uploadId: string, list: string): Answer {
    const upload = this.uploads.get(uploadId);
    if (upload === undefined) return refusal(404, 'NoSuchUpload');
    const named = [...list.matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>(.*?)<\/ETag>/g)];
    const parts = named.map(([, number, etag]) => {
      const part = upload.parts.get(Number(number));
      return part?.etag === etag?.replaceAll('&quot;', '"') ? part : undefined;
    });
    if (parts.length === 0 || parts.includes(undefined)) return refusal(400, 'InvalidPart');
    const bytes = (parts as StandInObject[]).map((part) => part.bytes);
    if (bytes.slice(0, -1).some((part) => part.byteLength < PART_BYTES_MIN)) return refusal(400, 'EntityTooSmall');
    const object = { ...objectOf(Buffer.concat(bytes)), etag: `"${uploadId}-${parts.length}"` };
    this.objects.set(upload.key, object);
    this.uploads.delete(uploadId);
    const etag = object.etag.replaceAll('"', '&quot;');
    return document(`<CompleteMultipartUploadResult><ETag>${etag}</ETag></CompleteMultipartUploadResult>`);
  }

  #read(kind: string, key: string, headers: IncomingMessage['headers']): Answer {
    const object = this.objects.get(key);
    if (object === undefined) return refusal(404, 'NoSuchKey');
    if (headers['if-match'] !== undefined && headers['if-match'] !== object.etag)
      return refusal(412, 'PreconditionFailed');
    const { bytes, etag } = object;
    if (kind === 'HEAD key') return { status: 200, headers: { etag, 'content-length': `${bytes.byteLength}` } };
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '') ?? [];
    if (first === undefined) return { status: 200, headers: { etag }, bytes };
    if (Number(first) >= bytes.byteLength) return refusal(416, 'InvalidRange');
    const part = bytes.subarray(Number(first), Number(last) + 1);
    const range = `bytes ${first}-${Number(first) + part.byteLength - 1}/${bytes.byteLength}`;
    return { status: 206, headers: { etag, 'content-range': range }, bytes: part };
  }
}

interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly bytes?: Buffer;
}

function kindOf(method: string, key: string, query: URLSearchParams): string {
  if (query.has('uploads')) return `${method} uploads`;
  if (query.has('partNumber')) return `${method} part`;
  if (query.has('uploadId')) return `${method} ${method === 'POST' ? 'complete' : 'upload'}`;
  return `${method} ${key === '' ? 'bucket' : 'key'}`;
}

function objectOf(bytes: Buffer): StandInObject {
  return { bytes, etag: `"${createHash('md5').update(bytes).digest('hex')}"` };
}

function errorDocument(code: string): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>by the test</Message></Error>`;
}

function document(text: string): Answer {
  return { status: 200, bytes: Buffer.from(text) };
}

function refusal(status: number, code: string): Answer {
  return { status, bytes: Buffer.from(errorDocument(code)) };
}

function refuse(response: ServerResponse, status: number, code: string): void {
  send(response, status, errorDocument(code));
}

function send(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-length': Buffer.byteLength(text) });
  response.end(text);
}

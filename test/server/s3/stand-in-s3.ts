import { createHash, randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { systemClock } from '../../../src/base/clock.ts';
import { s3Location } from '../../../src/server/s3/s3-location.ts';
import { S3Store } from '../../../src/server/s3/s3-store.ts';
import { answerWith, kindOf, refusal, type StoreAnswer, type StoreFault, StoreFaults, send } from './store-faults.ts';

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
  readonly plan = new StoreFaults();
  readonly #server: Server;

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

  set faults(faults: readonly StoreFault[]) {
    this.plan.list = faults;
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
    const fault = this.plan.next(kind);
    const hash = createHash('sha256').update(body).digest('hex');
    if (!/^AWS4-HMAC-SHA256 Credential=key\//.test(request.headers.authorization ?? '') || bucket !== BUCKET)
      return send(response, refusal(403, 'AccessDenied'));
    if (request.headers['x-amz-content-sha256'] !== hash)
      return send(response, refusal(400, 'XAmzContentSHA256Mismatch'));
    await answerWith(fault, response, () => this.#carriedOut(kind, key, query, body, request.headers));
  }

  #carriedOut(
    kind: string,
    key: string,
    query: URLSearchParams,
    body: Buffer,
    headers: IncomingMessage['headers'],
  ): StoreAnswer {
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

  #completed(uploadId: string, list: string): StoreAnswer {
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

  #read(kind: string, key: string, headers: IncomingMessage['headers']): StoreAnswer {
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

function objectOf(bytes: Buffer): StandInObject {
  return { bytes, etag: `"${createHash('md5').update(bytes).digest('hex')}"` };
}

function document(text: string): StoreAnswer {
  return { status: 200, bytes: Buffer.from(text) };
}

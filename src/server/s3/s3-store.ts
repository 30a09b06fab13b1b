import { createHash, hash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { Pool } from 'undici';
import type { Clock } from '../../base/clock.ts';
import { ProtocolError } from '../../base/errors.ts';
import type { DecodeDocument } from '../../protocol/xml.ts';
import {
  DamagedFileError,
  type HashedBytes,
  type HashedFile,
  type ObjectBytes,
  type ObjectStore,
  type StoredObject,
  StoreError,
} from '../object-store.ts';
import type { S3Credentials } from './s3-credentials.ts';
import {
  decodeBegunUpload,
  decodeCompletedUpload,
  decodeUploads,
  encodePartList,
  errorCodeIn,
} from './s3-documents.ts';
import type { S3Location } from './s3-location.ts';
import { S3Reader } from './s3-reader.ts';
import { S3Refusal, S3Requests } from './s3-requests.ts';

const MIB = 1024 * 1024;
/** Longer files are sent in parts of this size. The store takes no shorter parts than 5 MiB, but the last. */
const PART_BYTES = 8 * MIB;
/** The limit of S3. */
const PARTS_MAX = 10_000;
/** How often the completion of a multipart upload is repeated; after each failure the object is looked for first. */
const COMPLETIONS_MAX = 4;
/** A store that accepts a connection and stays silent. Assembling a large object takes a store minutes. */
const SILENCE_MAX_MS = 300_000;

/** A bucket of an S3-compatible store. */
export class S3Store implements ObjectStore {
  readonly name: string;
  readonly #requests: S3Requests;
  /** For files that are sent in one request. Garbage of this size would wait in memory for its collection. */
  readonly #spare: Buffer[] = [];

  constructor({ location, credentials, clock }: { location: S3Location; credentials: S3Credentials; clock: Clock }) {
    this.name = location.name;
    const pool = new Pool(location.origin, {
      connect: { timeout: 10_000 },
      headersTimeout: SILENCE_MAX_MS,
      bodyTimeout: 60_000,
      pipelining: 1,
      // Downloads by slow clients hold one each; the server limits its own connections.
      connections: null,
    });
    this.#requests = new S3Requests({ location, credentials, clock, pool });
  }

  put(key: string, content: HashedBytes | HashedFile, signal: AbortSignal): Promise<string> {
    return 'path' in content
      ? this.#putFile(key, content, signal)
      : this.#putBytes(key, content.bytes, content.sha256, signal);
  }

  async #putFile(key: string, file: HashedFile, signal: AbortSignal): Promise<string> {
    const handle = await open(file.path, 'r');
    try {
      const { size } = await handle.stat();
      if (size !== file.sizeBytes) throw damaged(file, `it has ${size} bytes instead of ${file.sizeBytes}`);
      return await (size <= PART_BYTES
        ? this.#putWhole(key, handle, file, signal)
        : this.#putParts(key, handle, file, signal));
    } finally {
      await handle.close();
    }
  }

  read(object: StoredObject, start: number, end: number): Promise<ObjectBytes> {
    return new S3Reader(this.#requests, object, start, end).open();
  }

  async remove(key: string, mayBePartial: boolean, signal: AbortSignal): Promise<void> {
    if (mayBePartial) await this.#abortUploads(key, signal);
    await this.#unlessMissing(this.#requests.send({ method: 'DELETE', key, signal }));
  }

  async readText(key: string): Promise<string | null> {
    return (await this.#unlessMissing(this.#requests.send({ method: 'GET', key })))?.text ?? null;
  }

  async writeText(key: string, text: string): Promise<void> {
    await this.#requests.send({ method: 'PUT', key, body: Buffer.from(text) });
  }

  close(): Promise<void> {
    return this.#requests.close();
  }

  async #putWhole(key: string, handle: FileHandle, file: HashedFile, signal: AbortSignal): Promise<string> {
    const buffer = this.#spare.pop() ?? Buffer.allocUnsafeSlow(PART_BYTES);
    try {
      const body = buffer.subarray(0, file.sizeBytes);
      await fill(body, handle, 0);
      if (hash('sha256', body, 'hex') !== file.sha256) throw damaged(file, 'its SHA-256 is another one');
      return await this.#putBytes(key, body, file.sha256, signal);
    } finally {
      this.#spare.push(buffer);
    }
  }

  async #putBytes(key: string, body: Uint8Array, sha256: string, signal: AbortSignal): Promise<string> {
    const { headers } = await this.#requests.send({ method: 'PUT', key, body, sha256, signal });
    return etagOf(headers.etag, key);
  }

  async #putParts(key: string, handle: FileHandle, file: HashedFile, signal: AbortSignal): Promise<string> {
    const partBytes = partBytesOf(file.sizeBytes);
    // A repeated request might begin a second upload.
    const begun = await this.#requests.send({ method: 'POST', key, query: { uploads: '' }, triesMax: 1, signal });
    const { uploadId } = documentOf(begun.text, decodeBegunUpload, `POST ${key}?uploads`);
    const sha256 = createHash('sha256');
    const etags: string[] = [];
    const buffer = Buffer.allocUnsafeSlow(partBytes);
    for (let at = 0; at < file.sizeBytes; at += partBytes) {
      const body = buffer.subarray(0, Math.min(partBytes, file.sizeBytes - at));
      await fill(body, handle, at);
      sha256.update(body);
      const query = { partNumber: `${etags.length + 1}`, uploadId };
      const { headers } = await this.#requests.send({ method: 'PUT', key, query, body, signal });
      etags.push(etagOf(headers.etag, key));
    }
    if (sha256.digest('hex') !== file.sha256) throw damaged(file, 'its SHA-256 is another one');
    return this.#complete(key, uploadId, etags, file.sizeBytes, signal);
  }

  /**
   * Completes a multipart upload. A store may answer 200 and put an error into the body; it may complete the upload and
   * lose the answer, and then knows no such upload. So every failure asks for the object: keys are used once.
   */
  async #complete(
    key: string,
    uploadId: string,
    etags: readonly string[],
    sizeBytes: number,
    signal: AbortSignal,
  ): Promise<string> {
    const body = Buffer.from(encodePartList({ parts: etags.map((etag, index) => ({ number: index + 1, etag })) }));
    for (let failures = 1; ; failures += 1) {
      try {
        const request = { method: 'POST', key, query: { uploadId }, body, triesMax: 1, signal } as const;
        const { status, text } = await this.#requests.send(request);
        const code = errorCodeIn(text);
        if (code !== null) throw new S3Refusal(`POST ${key}?uploadId`, status, code);
        return documentOf(text, decodeCompletedUpload, `POST ${key}?uploadId`).etag;
      } catch (error) {
        const object = await this.#unlessMissing(this.#requests.send({ method: 'HEAD', key, signal }));
        if (object !== null && Number(object.headers['content-length']) === sizeBytes)
          return etagOf(object.headers.etag, key);
        if (!(error instanceof StoreError && error.isPassing) || failures >= COMPLETIONS_MAX) throw error;
      }
    }
  }

  /** Parts of an unfinished upload cost as much as an object, and no listing of objects shows them. */
  async #abortUploads(key: string, signal: AbortSignal): Promise<void> {
    const prefix = this.#requests.pathOf(key);
    const list = await this.#requests.send({ method: 'GET', query: { uploads: '', prefix }, signal });
    const { uploads } = documentOf(list.text, decodeUploads, `GET ${key}?uploads`);
    for (const { uploadId } of uploads)
      await this.#unlessMissing(this.#requests.send({ method: 'DELETE', key, query: { uploadId }, signal }));
  }

  async #unlessMissing<T>(answer: Promise<T>): Promise<T | null> {
    try {
      return await answer;
    } catch (error) {
      // A missing bucket is none: its objects are not gone.
      if (error instanceof S3Refusal && error.status === 404 && error.code !== 'NoSuchBucket') return null;
      throw error;
    }
  }
}

/** @throws StoreError for another document */
function documentOf<T>(text: string, decode: DecodeDocument<T>, request: string): T {
  try {
    return decode(text);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    throw new StoreError(`${request}: ${error.message}`, { isPassing: false, cause: error });
  }
}

/** The size of all parts of a file but the last: more than usual for a file that would have too many. */
export function partBytesOf(sizeBytes: number): number {
  return Math.max(PART_BYTES, Math.ceil(sizeBytes / PARTS_MAX / MIB) * MIB);
}

async function fill(buffer: Uint8Array, handle: FileHandle, start: number): Promise<void> {
  for (let filled = 0; filled < buffer.byteLength; ) {
    const { bytesRead } = await handle.read(buffer, filled, buffer.byteLength - filled, start + filled);
    if (bytesRead === 0) throw new DamagedFileError(`a file ends at ${start + filled}`);
    filled += bytesRead;
  }
}

function etagOf(etag: string | string[] | undefined, key: string): string {
  if (typeof etag !== 'string' || etag === '') throw new StoreError(`${key}: no ETag`, { isPassing: false });
  return etag;
}

function damaged({ path }: HashedFile, why: string): DamagedFileError {
  return new DamagedFileError(`${path} is damaged: ${why}`);
}

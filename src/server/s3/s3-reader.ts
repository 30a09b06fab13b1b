import type { Readable } from 'node:stream';
import { type ObjectBytes, type StoredObject, StoreError } from '../object-store.ts';
import type { S3Requests } from './s3-requests.ts';

/**
 * A range of an object. A response that breaks off is continued by a further request at the same byte. `If-Match` makes
 * sure that all of them are answered from the object that was stored.
 */
export class S3Reader implements ObjectBytes {
  readonly #requests: S3Requests;
  readonly #object: StoredObject;
  readonly #end: number;
  #at: number;
  #body: Readable | null = null;
  #chunks: AsyncIterator<Uint8Array, undefined> | null = null;
  /** Responses in a row that brought no byte. */
  #failures = 0;

  constructor(requests: S3Requests, object: StoredObject, start: number, end: number) {
    this.#requests = requests;
    this.#object = object;
    this.#at = start;
    this.#end = end;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Sends the request for the rest. @throws StoreError */
  async open(): Promise<this> {
    await this.#opened();
    return this;
  }

  async #opened(): Promise<AsyncIterator<Uint8Array, undefined>> {
    const { key, etag, sizeBytes } = this.#object;
    const range = `bytes=${this.#at}-${this.#end - 1}`;
    const answer = await this.#requests.open({ method: 'GET', key, headers: { range, 'if-match': etag } });
    this.#body = answer.body;
    const expected = `bytes ${this.#at}-${this.#end - 1}/${sizeBytes}`;
    if (answer.statusCode !== 206 || answer.headers['content-range'] !== expected) {
      this.#close();
      const got = `${answer.statusCode} ${answer.headers['content-range']}`;
      throw new StoreError(`GET ${key}: expected 206 ${expected}, got ${got}`, { isPassing: false });
    }
    this.#chunks = answer.body[Symbol.asyncIterator]();
    return this.#chunks;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    while (this.#at < this.#end) {
      try {
        const { value, done } = await (this.#chunks ?? (await this.#opened())).next();
        if (done === true) throw new Error(`the response ends at ${this.#at}, before ${this.#end}`);
        this.#at += value.byteLength;
        this.#failures = 0;
        return { value, done: false };
      } catch (error) {
        this.#close();
        this.#failures += 1;
        if (error instanceof StoreError) throw error;
        if (this.#failures < FAILURES_MAX) continue;
        throw new StoreError(`GET ${this.#object.key}: ${(error as Error).message}`, { isPassing: true, cause: error });
      }
    }
    this.#close();
    return { value: undefined, done: true };
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#close();
    this.#at = this.#end;
    return { value: undefined, done: true };
  }

  #close(): void {
    // Without a listener the destruction of a body that was not read to its end is an unhandled error.
    this.#body?.on('error', () => {}).destroy();
    this.#body = null;
    this.#chunks = null;
  }
}

const FAILURES_MAX = 4;

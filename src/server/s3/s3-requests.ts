import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher, Pool } from 'undici';
import { backoffMs } from '../../base/backoff.ts';
import type { Clock } from '../../base/clock.ts';
import { StoreError } from '../object-store.ts';
import type { S3Credentials } from './s3-credentials.ts';
import { errorCodeIn } from './s3-documents.ts';
import type { S3Location } from './s3-location.ts';
import { signed } from './s3-signature.ts';

export interface S3Request {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE';
  /** Without the prefix; absent: the bucket. */
  readonly key?: string;
  readonly query?: Readonly<Record<string, string>>;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  /** Of the body, if it is known. */
  readonly sha256?: string;
  /** How often it may be sent; a request that must not be repeated has 1. */
  readonly triesMax?: number;
  readonly signal?: AbortSignal | undefined;
}

export interface S3Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** A refusal of the store; `code` is that of its error document, or the status. */
export class S3Refusal extends StoreError {
  readonly status: number;
  readonly code: string;

  constructor(request: string, status: number, code: string) {
    super(`${request}: ${code} (${status})`, {
      isPassing: status >= 500 || status === 429 || PASSING_CODES.has(code),
    });
    this.status = status;
    this.code = code;
  }
}

/** Signed requests to one bucket. What fails for a while is repeated with back-off. */
export class S3Requests {
  readonly #location: S3Location;
  readonly #credentials: S3Credentials;
  readonly #clock: Clock;
  readonly #pool: Pool;

  constructor(deps: { location: S3Location; credentials: S3Credentials; clock: Clock; pool: Pool }) {
    this.#location = deps.location;
    this.#credentials = deps.credentials;
    this.#clock = deps.clock;
    this.#pool = deps.pool;
  }

  /** The whole answer, which is short. @throws S3Refusal for any status but 2xx · StoreError without an answer */
  send(request: S3Request): Promise<S3Answer> {
    return this.#repeated(request, async () => {
      const { statusCode, headers, body } = await this.#once(request);
      return { status: statusCode, headers, text: await body.text() };
    });
  }

  /** An answer with a long body. @throws as `send` */
  open(request: S3Request): Promise<Dispatcher.ResponseData> {
    return this.#repeated(request, () => this.#once(request));
  }

  /** The name of the object in the bucket. */
  pathOf(key: string): string {
    return `${this.#location.prefix}${key}`;
  }

  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  async #repeated<T>(request: S3Request, attempt: () => Promise<T>): Promise<T> {
    for (let failures = 1; ; failures += 1) {
      try {
        return await attempt();
      } catch (error) {
        request.signal?.throwIfAborted();
        const failure =
          error instanceof StoreError
            ? error
            : new StoreError(`${labelOf(request)}: ${(error as Error).message}`, { isPassing: true, cause: error });
        if (!failure.isPassing || failures >= (request.triesMax ?? TRIES_MAX)) throw failure;
        await this.#clock.sleep(backoffMs(failures, this.#clock.random(), BACKOFF), request.signal);
      }
    }
  }

  async #once(request: S3Request): Promise<Dispatcher.ResponseData> {
    const { origin, bucket, region } = this.#location;
    const { method, key, query = {}, headers = {}, body = NO_BYTES, sha256, signal } = request;
    const path = `/${bucket}${key === undefined ? '' : `/${this.pathOf(key)}`}`;
    const line = signed(
      { method, host: new URL(origin).host, path, query, headers, body, sha256 },
      { credentials: this.#credentials, region, nowMs: this.#clock.nowMs() },
    );
    const answer = await this.#pool.request({
      method,
      path: line.path,
      headers: line.headers,
      body: method === 'PUT' || method === 'POST' ? body : null,
      ...(signal === undefined ? {} : { signal }),
    });
    if (answer.statusCode >= 200 && answer.statusCode < 300) return answer;
    const text = await answer.body.text();
    throw new S3Refusal(labelOf(request), answer.statusCode, errorCodeIn(text) ?? `${answer.statusCode}`);
  }
}

/** Without the bucket: for log lines. */
function labelOf({ method, key, query }: S3Request): string {
  return `${method} ${key ?? 'bucket'}${Object.keys(query ?? {}).length === 0 ? '' : `?${Object.keys(query ?? {})[0]}`}`;
}

const NO_BYTES = new Uint8Array();
const TRIES_MAX = 5;
const BACKOFF = { firstMs: 200, maxMs: 5000 };
/** Codes of a passing failure whose status does not show it. */
const PASSING_CODES: ReadonlySet<string> = new Set(['RequestTimeout', 'OperationAborted', 'SlowDown', 'InternalError']);

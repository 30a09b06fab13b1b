import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';

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

/** The faults of one store, and the requests that it has received. */
export class StoreFaults {
  list: readonly StoreFault[] = [];
  /** Kinds of all requests. */
  readonly requests: string[] = [];
  readonly #counts = new Map<StoreFault, number>();

  reset(): void {
    this.list = [];
    this.requests.length = 0;
  }

  /** Records a request. @returns the fault that it meets */
  next(kind: string): StoreFault['then'] | null {
    this.requests.push(kind);
    for (const fault of this.list) {
      if (fault.on !== kind) continue;
      const count = (this.#counts.get(fault) ?? 0) + 1;
      this.#counts.set(fault, count);
      const { nth = 1, times = 1 } = fault;
      if (count >= nth && count < nth + times) return fault.then;
    }
    return null;
  }
}

export interface StoreAnswer {
  readonly status: number;
  readonly headers?: OutgoingHttpHeaders;
  readonly bytes?: Buffer;
}

/** Answers a request of a store with a fault. `carriedOut` is called only if the fault allows the request its effect. */
export async function answerWith(
  fault: StoreFault['then'] | null,
  response: ServerResponse,
  carriedOut: () => StoreAnswer | Promise<StoreAnswer>,
): Promise<void> {
  const { socket } = response;
  if (fault === 'slowDown') return send(response, refusal(503, 'SlowDown'));
  if (fault === 'denied') return send(response, refusal(403, 'AccessDenied'));
  if (fault === 'reset') return void socket?.destroy();
  const errorInBody = { status: 200, bytes: Buffer.from(errorDocument('InternalError')) };
  if (fault === 'errorInBody') return send(response, errorInBody);
  const answer = await carriedOut();
  if (fault === 'loseAnswer') return void socket?.destroy();
  if (fault === 'doneAndErrorInBody') return send(response, errorInBody);
  if (fault !== 'cut') return send(response, answer);
  const { status, headers = {}, bytes = Buffer.of() } = answer;
  response.writeHead(status, { 'content-length': bytes.byteLength, ...headers });
  response.write(bytes.subarray(0, bytes.byteLength / 2), () => socket?.destroy());
}

export function refusal(status: number, code: string): StoreAnswer {
  return { status, bytes: Buffer.from(errorDocument(code)) };
}

export function send(response: ServerResponse, { status, headers = {}, bytes = Buffer.of() }: StoreAnswer): void {
  response.writeHead(status, { 'content-length': bytes.byteLength, ...headers });
  response.end(bytes);
}

/** @param key empty for the bucket */
export function kindOf(method: string, key: string, query: URLSearchParams): string {
  if (query.has('uploads')) return `${method} uploads`;
  if (query.has('partNumber')) return `${method} part`;
  if (query.has('uploadId')) return `${method} ${method === 'POST' ? 'complete' : 'upload'}`;
  return `${method} ${key === '' ? 'bucket' : 'key'}`;
}

function errorDocument(code: string): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>by the test</Message></Error>`;
}

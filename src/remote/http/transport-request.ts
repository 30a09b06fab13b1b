/** A body of known length that can be sent again from its beginning. */
export interface RequestBody {
  readonly length: number;
  /**
   * A chunk may be overwritten once two more have been asked for. That is late enough: undici asks for the next one when the
   * socket's queue is below its high-water mark, which is less than a chunk.
   */
  chunks(): AsyncIterable<Uint8Array>;
}

export type Method = 'GET' | 'PUT' | 'POST' | 'DELETE';

export interface TransportRequest {
  readonly method: Method;
  /** On the service's own origin, always. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | RequestBody | null;
  readonly signal: AbortSignal | undefined;
}

import type { RequestBody } from '../contract.ts';

export type Method = 'GET' | 'PUT' | 'POST' | 'DELETE';

export interface TransportRequest {
  readonly method: Method;
  /** On the service's own origin, always. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | RequestBody | null;
  readonly signal: AbortSignal | undefined;
}

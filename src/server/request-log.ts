import type { EndpointKind } from '../protocol/endpoints.ts';

/** One request in the log. Byte counts are those of bodies. */
export interface RequestEntry {
  readonly method: string;
  /** Without the query; both are truncated if long. */
  readonly path: string;
  readonly query: string;
  readonly kind: EndpointKind | null;
  /** 0 if no response was sent. */
  readonly status: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly durationMs: number;
}

/** Filter; absent fields match all. */
export interface RequestFilter {
  readonly method?: string;
  readonly kind?: EndpointKind;
  readonly path?: string | RegExp;
  readonly status?: number;
}

/** Requests to the server, for counting in tests. Totals are exact; only the last entries are kept. */
export class RequestLog {
  readonly #entriesMax: number;
  #entries: RequestEntry[] = [];
  #total = 0;
  #bytesIn = 0;
  #bytesOut = 0;
  #durationMs = 0;
  readonly #byStatus = new Map<number, number>();

  constructor(options: { entriesMax: number }) {
    this.#entriesMax = options.entriesMax;
  }

  get entries(): readonly RequestEntry[] {
    return this.#entries;
  }

  get total(): number {
    return this.#total;
  }

  get bytesIn(): number {
    return this.#bytesIn;
  }

  get bytesOut(): number {
    return this.#bytesOut;
  }

  /** Sum of all requests. */
  get durationMs(): number {
    return this.#durationMs;
  }

  /** Number of requests. */
  get byStatus(): ReadonlyMap<number, number> {
    return this.#byStatus;
  }

  /** Counts only entries still in the log. */
  count(filter: RequestFilter): number {
    return this.filter(filter).length;
  }

  filter(filter: RequestFilter): RequestEntry[] {
    return this.#entries.filter(
      (entry) =>
        (filter.method === undefined || entry.method === filter.method) &&
        (filter.kind === undefined || entry.kind === filter.kind) &&
        (filter.status === undefined || entry.status === filter.status) &&
        (filter.path === undefined ||
          (typeof filter.path === 'string' ? entry.path === filter.path : filter.path.test(entry.path))),
    );
  }

  clear(): void {
    this.#entries = [];
    this.#total = 0;
    this.#bytesIn = 0;
    this.#bytesOut = 0;
    this.#durationMs = 0;
    this.#byStatus.clear();
  }

  add(entry: RequestEntry): void {
    this.#total += 1;
    this.#bytesIn += entry.bytesIn;
    this.#bytesOut += entry.bytesOut;
    this.#durationMs += entry.durationMs;
    this.#byStatus.set(entry.status, (this.#byStatus.get(entry.status) ?? 0) + 1);
    this.#entries.push({ ...entry, path: front(entry.path), query: front(entry.query) });
    // Trim in batches: shifting an array per request would cost more than the request.
    if (this.#entries.length > this.#entriesMax * 2) this.#entries = this.#entries.slice(-this.#entriesMax);
  }
}

/**
 * Limit for path and query, longer than any valid URL. A head may be 32 KiB, and unauthenticated clients can send one.
 */
const TEXT_CHARS_MAX = 512;

/** A copy: a slice would retain the whole text. */
function front(text: string): string {
  return Buffer.from(text.slice(0, TEXT_CHARS_MAX)).toString();
}

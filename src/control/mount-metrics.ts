/** The counters of a mount since its start, as plain data for `cfs metrics`. */
export interface MountMetrics {
  readonly uptimeMs: number;
  readonly isOnline: boolean;
  readonly operations: readonly OperationMetrics[];
  /** Operations that are waiting for their answer. */
  readonly operationsWaiting: number;
  /** Reads of programs: answered from the cache, or after a fetch. */
  readonly reads: { readonly hits: number; readonly misses: number };
  /** Bodies only, since the start. */
  readonly bytes: { readonly fetched: number; readonly pushed: number };
  /** Requests to the service, and repeated ones among them. */
  readonly requests: { readonly sent: number; readonly repeated: number };
  readonly queue: {
    /** Not parked. */
    readonly pending: number;
    readonly pendingBytes: number;
    readonly parked: number;
    /** Pushes that failed and were postponed, since the start. */
    readonly postponed: number;
    readonly transfersRunning: number;
    readonly transfersWaiting: number;
  };
  readonly cache: { readonly usedBytes: number; readonly limitBytes: number; readonly unsyncedBytes: number };
  readonly quota: { readonly limitBytes: number; readonly usedBytes: number } | null;
}

/** One kind of operation of the kernel. */
export interface OperationMetrics {
  readonly operation: string;
  readonly count: number;
  readonly failures: number;
  readonly totalUs: number;
  /** [i]: the number that took at least 2^(i-1) and less than 2^i microseconds; the last one counts all longer ones. */
  readonly latencyLog2Us: readonly number[];
}

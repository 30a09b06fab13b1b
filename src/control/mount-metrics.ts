/** What a mount counted since its start, plain data: `cfs metrics` renders it. Bytes are bytes, times are named. */
export interface MountMetrics {
  readonly uptimeMs: number;
  readonly isOnline: boolean;
  readonly operations: readonly OperationMetrics[];
  /** Operations that wait for their answer now. */
  readonly operationsWaiting: number;
  /** Reads of programs: answered with what is here, or after asking the service for what is not. */
  readonly reads: { readonly hits: number; readonly misses: number };
  /** Bodies only, since the start. */
  readonly bytes: { readonly fetched: number; readonly pushed: number };
  /** Requests to the service, and those that were sent again after a failure. */
  readonly requests: { readonly sent: number; readonly repeated: number };
  readonly queue: {
    /** Not parked. */
    readonly pending: number;
    readonly pendingBytes: number;
    readonly parked: number;
    /** Pushes that failed and were put off, since the start. */
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
  /** [i]: how many took less than 2^i microseconds and not less than 2^(i-1); the last one holds the rest. */
  readonly latencyLog2Us: readonly number[];
}

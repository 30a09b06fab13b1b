import type { Clock } from '../base/clock.ts';
import { type Errno, type FsError, toFsError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { FileSystemOps } from './binding.ts';
import type { CallerState } from './caller-signals.ts';

/**
 * Shared by all operations: errors become errnos (the only caller of `toFsError`), one log line per failure, metrics, and a deadline for
 * every operation that does not answer immediately.
 */

export type OpName = Exclude<keyof FileSystemOps, 'init' | 'destroy' | 'placeOf' | 'validated' | 'made'>;

/** Ordinary refusals: a shell looks for `.git` in every folder that it enters. */
const EXPECTED: ReadonlySet<Errno> = new Set<Errno>([
  ...(['ENOENT', 'EEXIST', 'ENOTEMPTY', 'EINTR', 'ENODATA', 'ENOTDIR', 'EISDIR', 'ENXIO', 'ERANGE'] as const),
  ...([
    'EACCES',
    'EPERM',
    'EROFS',
    'EXDEV',
    'EINVAL',
    'ENOTSUP',
    'EOPNOTSUPP',
    'ENAMETOOLONG',
    'EILSEQ',
    'ELOOP',
  ] as const),
]);

/** These wait for local disks only, and report durability: never cut short. */
const WITHOUT_DEADLINE: ReadonlySet<OpName> = new Set<OpName>([
  'flush',
  'fsync',
  'fsyncdir',
  'release',
  'releasedir',
  'forget',
]);

const LATENCY_BUCKETS = 26;
/** The interval for checking a caller that got a signal. */
const INTERRUPTED_SWEEP_MS = 100;

export interface OpMetrics {
  operations: number;
  failures: number;
  /** Total duration of all operations. */
  totalUs: number;
  /** [i]: how many took less than 2^i microseconds and not less than 2^(i-1); the last one holds the rest. */
  readonly latencyLog2Us: number[];
}

/** One operation that has not been answered yet. */
export interface PendingOp {
  readonly op: OpName;
  readonly startedMs: number;
  /** Reaches the file system through `OpContext.signal`. */
  abort(reason: Error): void;
  /** For the log line. */
  fields(): Record<string, unknown>;
}

export interface PendingOutcome<T> {
  answered(value: T): void;
  refused(error: FsError): void;
  /** The answer came after the refusal: its lookups and handles must be undone. */
  late(value: T): void;
}

interface Watched {
  readonly pending: PendingOp;
  readonly refuse: (error: Error) => void;
  /** Set once the kernel reported a signal of the caller. */
  look: (() => CallerState) | null;
}

export class OpBoundary {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #deadlineMs: number;
  readonly #bytesCameMs: () => number;
  readonly #sweepMs: number;
  readonly #metrics = new Map<OpName, OpMetrics>();
  readonly #watched = new Map<PendingOp, Watched>();
  /** The next sweep; null if none is planned. */
  #sweeping: { readonly atMs: number; readonly cancel: () => void } | null = null;
  #closed = false;

  /** @param deps `bytesCameMs`: when bytes of files last arrived, by `elapsedMs`: no read times out while some do */
  constructor(deps: { log: Logger; clock: Clock; deadlineMs: number; bytesCameMs?: (() => number) | undefined }) {
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#deadlineMs = deps.deadlineMs;
    this.#bytesCameMs = deps.bytesCameMs ?? (() => Number.NEGATIVE_INFINITY);
    this.#sweepMs = Math.min(1000, Math.max(5, deps.deadlineMs / 10));
  }

  nowMs(): number {
    return this.#clock.elapsedMs();
  }

  /** Counters since the start, by operation. */
  metrics(): ReadonlyMap<OpName, Readonly<OpMetrics>> {
    return this.#metrics;
  }

  /** The number of pending operations. */
  get pendingCount(): number {
    return this.#watched.size;
  }

  succeeded(op: OpName, startedMs: number): void {
    this.#count(op, startedMs).operations++;
  }

  /** Counts and logs a failure. @returns the errno of the reply */
  failed(op: OpName, thrown: unknown, startedMs: number, fields: Record<string, unknown>): FsError {
    const error = toFsError(thrown);
    const metrics = this.#count(op, startedMs);
    metrics.operations++;
    metrics.failures++;
    const level = EXPECTED.has(error.errno) ? 'debug' : 'warn';
    const durationMs = Math.round(this.#clock.elapsedMs() - startedMs);
    this.#log[level](
      { ...fields, op, errno: error.errno, durationMs, err: level === 'warn' ? error : undefined },
      'operation failed',
    );
    return error;
  }

  /**
   * Waits for `promise` on behalf of `pending`, until the deadline or `interrupt` at the latest. Exactly one of `answered` and `refused` is
   * called; `late` may follow `refused`.
   */
  watch<T>(pending: PendingOp, promise: PromiseLike<T>, outcome: PendingOutcome<T>): void {
    let open = true;
    const refuse = (thrown: unknown): void => {
      if (!open || this.#closed) return;
      open = false;
      this.#watched.delete(pending);
      outcome.refused(this.failed(pending.op, thrown, pending.startedMs, pending.fields()));
    };
    this.#watched.set(pending, { pending, refuse, look: null });
    promise.then((value) => {
      if (this.#closed) return;
      if (!open) return outcome.late(value);
      open = false;
      this.#watched.delete(pending);
      this.succeeded(pending.op, pending.startedMs);
      outcome.answered(value);
    }, refuse);
    this.#sweepWithin(this.#sweepMs);
  }

  /**
   * The caller got a signal. A caller that is being killed gets EINTR immediately, even if the file system still works: a slow server must
   * not make a process unkillable. For one that may want to stop, the file system decides, through `OpContext.signal`. The kernel reports
   * this only once, so every sweep checks the caller again.
   */
  interrupt(pending: PendingOp, look: () => CallerState): void {
    const watched = this.#watched.get(pending);
    if (watched === undefined) return;
    watched.look = look;
    this.#lookAt(watched);
    if (!this.#watched.has(pending)) return;
    this.#sweepWithin(INTERRUPTED_SWEEP_MS);
  }

  #lookAt(watched: Watched): void {
    const state = watched.look?.() ?? 'idle';
    if (state === 'idle') return;
    const reason = new DOMException('interrupted by a signal', 'AbortError');
    watched.pending.abort(reason);
    if (state === 'killed') watched.refuse(reason);
  }

  /** Ends the sweep and aborts pending operations: no caller is left. */
  close(): void {
    this.#closed = true;
    this.#sweeping?.cancel();
    this.#sweeping = null;
    for (const { pending } of this.#watched.values()) pending.abort(new DOMException('unmounted', 'AbortError'));
    this.#watched.clear();
  }

  /** One sweep over all pending operations, not a timer each. */
  #sweep(): void {
    this.#sweeping = null;
    const now = this.#clock.elapsedMs();
    let interrupted = false;
    for (const watched of [...this.#watched.values()]) {
      const { pending, refuse } = watched;
      if (watched.look !== null) {
        interrupted = true;
        this.#lookAt(watched);
      }
      const sinceMs = pending.op === 'read' ? Math.max(pending.startedMs, this.#bytesCameMs()) : pending.startedMs;
      if (now - sinceMs < this.#deadlineMs || WITHOUT_DEADLINE.has(pending.op)) continue;
      const reason = new DOMException('the deadline was exceeded', 'TimeoutError');
      pending.abort(reason);
      refuse(reason);
    }
    if (this.#watched.size === 0) return;
    this.#sweepWithin(interrupted ? INTERRUPTED_SWEEP_MS : this.#sweepMs);
  }

  /** Never later than already planned: repeated signals would otherwise postpone every deadline. */
  #sweepWithin(ms: number): void {
    const atMs = this.#clock.elapsedMs() + ms;
    if (this.#sweeping !== null && this.#sweeping.atMs <= atMs) return;
    this.#sweeping?.cancel();
    this.#sweeping = { atMs, cancel: this.#clock.after(ms, () => this.#sweep()) };
  }

  #count(op: OpName, startedMs: number): OpMetrics {
    let metrics = this.#metrics.get(op);
    if (metrics === undefined) {
      metrics = { operations: 0, failures: 0, totalUs: 0, latencyLog2Us: new Array<number>(LATENCY_BUCKETS).fill(0) };
      this.#metrics.set(op, metrics);
    }
    const tookUs = (this.#clock.elapsedMs() - startedMs) * 1000;
    metrics.totalUs += tookUs;
    const bucket = Math.min(LATENCY_BUCKETS - 1, 32 - Math.clz32(tookUs));
    metrics.latencyLog2Us[bucket] = (metrics.latencyLog2Us[bucket] ?? 0) + 1;
    return metrics;
  }
}

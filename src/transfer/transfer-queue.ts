import type { Clock } from '../base/clock.ts';

export type TransferKind = 'download' | 'upload';

/** One transfer, for `cfs status`. */
export interface TransferState {
  readonly kind: TransferKind;
  /** The transferred version or file. */
  readonly url: string;
  readonly bytesDone: number;
  readonly bytesTotal: number;
  /** Average since the start of the transfer. */
  readonly bytesPerSecond: number;
}

/** Parallel transfers: the number of data connections of the transport. */
const TRANSFERS_MAX = 8;
/** Share of the places for uploads: the rest stays free, because a process may be waiting for a download. */
const UPLOADS_SHARE = 0.75;
/**
 * Uploads up to this size end within a round trip, and may also use the places reserved for downloads, except the last one: the time of many
 * small files is round trips. One other upload may do the same. Otherwise it would wait behind thousands of small ones.
 */
const BRIEF_BYTES_MAX = 32 * 1024;

interface Waiting {
  readonly kind: TransferKind;
  readonly isBrief: boolean;
  readonly isAhead: boolean;
  readonly start: () => void;
}

interface Running {
  readonly kind: TransferKind;
  readonly url: string;
  readonly startedMs: number;
  bytesDone: number;
  bytesTotal: number;
}

/** What a running transfer reports. */
export interface TransferMeter {
  /** Bytes transferred since the last call. */
  moved(bytes: number): void;
  /** The transfer has more bytes than requested. */
  expects(bytesTotal: number): void;
}

/**
 * Limits the number of parallel transfers. Reads go before read-ahead, read-ahead before uploads except one. Equals go in the order of
 * arrival.
 */
export class TransferQueue {
  readonly #clock: Clock;
  readonly #transfersMax: number;
  readonly #uploadsMax: number;
  readonly #briefUploadsMax: number;
  readonly #waiting: Waiting[] = [];
  readonly #running = new Set<Running>();
  /**
   * INVARIANT: `#taken` counts the transfers that have a place, from `#take` until `#leave`; `#uploads` the uploads among them,
   * `#longUploads` those that are not brief.
   */
  #taken = 0;
  #uploads = 0;
  #longUploads = 0;
  #lastTaken: TransferKind = 'download';
  readonly #bytes = { download: 0, upload: 0 };

  /** @param options.transfers parallel transfers; 8. `uploads`: parallel uploads among them; no limit */
  constructor(options: { clock: Clock; transfers?: number; uploads?: number }) {
    const { clock, transfers = TRANSFERS_MAX, uploads = Number.POSITIVE_INFINITY } = options;
    this.#clock = clock;
    this.#transfersMax = transfers;
    this.#uploadsMax = Math.max(1, Math.min(uploads, Math.floor(transfers * UPLOADS_SHARE)));
    this.#briefUploadsMax = Math.max(1, Math.min(uploads, transfers - 1));
  }

  /** Runs `transfer` when it gets a place. Rejects with the signal's reason if the wait is aborted. */
  async run<T>(
    transfer: {
      readonly kind: TransferKind;
      readonly url: string;
      readonly bytesTotal: number;
      /** No reader waits for it. */
      readonly isAhead?: boolean;
    },
    signal: AbortSignal,
    work: (meter: TransferMeter) => Promise<T>,
  ): Promise<T> {
    const { kind, url, bytesTotal, isAhead = false } = transfer;
    const isBrief = bytesTotal <= BRIEF_BYTES_MAX;
    await this.#turn(kind, isBrief, isAhead, signal);
    const running: Running = { kind, url, bytesTotal, startedMs: this.#clock.elapsedMs(), bytesDone: 0 };
    this.#running.add(running);
    try {
      return await work({
        moved: (bytes) => {
          running.bytesDone += bytes;
          this.#bytes[transfer.kind] += bytes;
        },
        expects: (bytesTotal) => {
          running.bytesTotal = bytesTotal;
        },
      });
    } finally {
      this.#running.delete(running);
      this.#leave(kind, isBrief);
    }
  }

  get running(): readonly TransferState[] {
    const nowMs = this.#clock.elapsedMs();
    return [...this.#running].map(({ kind, url, bytesDone, bytesTotal, startedMs }) => {
      const seconds = (nowMs - startedMs) / 1000;
      return { kind, url, bytesDone, bytesTotal, bytesPerSecond: seconds > 0 ? bytesDone / seconds : 0 };
    });
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Since the start; bodies only. */
  get bytesMoved(): { readonly downloaded: number; readonly uploaded: number } {
    return { downloaded: this.#bytes.download, uploaded: this.#bytes.upload };
  }

  #mayStart(kind: TransferKind, isBrief: boolean): boolean {
    if (this.#taken >= this.#transfersMax) return false;
    const mayTakeMore = isBrief || this.#longUploads === 0;
    return kind === 'download' || this.#uploads < (mayTakeMore ? this.#briefUploadsMax : this.#uploadsMax);
  }

  #take(kind: TransferKind, isBrief: boolean): void {
    this.#lastTaken = kind;
    this.#count(kind, isBrief, 1);
  }

  #leave(kind: TransferKind, isBrief: boolean): void {
    this.#count(kind, isBrief, -1);
    this.#startNext();
  }

  #count(kind: TransferKind, isBrief: boolean, by: 1 | -1): void {
    this.#taken += by;
    if (kind !== 'upload') return;
    this.#uploads += by;
    if (!isBrief) this.#longUploads += by;
  }

  #startNext(): void {
    // One place is reserved for an upload while one waits, because downloads may take hours and more may always be waiting. A single place is
    // used by both in turn.
    if (this.#uploads === 0 && (this.#transfersMax > 1 || this.#lastTaken === 'download')) this.#startOne('upload');
    for (const kind of ['download', 'upload'] as const) while (this.#startOne(kind));
  }

  /** @returns whether a waiting transfer of this kind could start */
  #startOne(kind: TransferKind): boolean {
    const may = (waiting: Waiting): boolean => waiting.kind === kind && this.#mayStart(kind, waiting.isBrief);
    const wanted = this.#waiting.findIndex((waiting) => !waiting.isAhead && may(waiting));
    const index = wanted === -1 ? this.#waiting.findIndex(may) : wanted;
    if (index === -1) return false;
    const [next] = this.#waiting.splice(index, 1) as [Waiting];
    this.#take(kind, next.isBrief);
    next.start();
    return true;
  }

  #turn(kind: TransferKind, isBrief: boolean, isAhead: boolean, signal: AbortSignal): Promise<void> | void {
    if (signal.aborted) throw signal.reason;
    if (this.#mayStart(kind, isBrief)) {
      this.#take(kind, isBrief);
      return;
    }
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        kind,
        isBrief,
        isAhead,
        start: () => {
          signal.removeEventListener('abort', aborted);
          resolve();
        },
      };
      const aborted = () => {
        const index = this.#waiting.indexOf(waiting);
        if (index !== -1) this.#waiting.splice(index, 1);
        reject(signal.reason);
      };
      signal.addEventListener('abort', aborted, { once: true });
      this.#waiting.push(waiting);
    });
  }
}

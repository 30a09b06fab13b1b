import type { RootDatabase } from 'lmdb';
import type { Clock } from '../base/clock.ts';
import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { openRow, sealRow } from './checked-row.ts';
import type { IndexRoom } from './index-room.ts';
import type { Row } from './overlay.ts';
import { encodeKey } from './row-key.ts';

/** The rows of one journal record that LMDB does not hold yet. */
export interface PendingRecord {
  readonly sequence: number;
  readonly rows: readonly Row[];
  /** Estimated memory, bytes. */
  readonly bytes: number;
}

export interface CheckpointOptions {
  readonly database: RootDatabase<Buffer, Buffer>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Whether the disk under the store is (almost) full: LMDB reports EIO then. Never throws. */
  readonly isDiskFull: () => boolean;
  /** Reserves disk space for a batch before LMDB writes it. */
  readonly room: Pick<IndexRoom, 'rowsMax' | 'makeFor' | 'close'>;
  /** Rewrites LMDB's file with its present bytes. @throws StorageError (rejects) */
  readonly rewrite: () => Promise<void>;
  /** These rows can be read from LMDB now. */
  readonly committed: (records: readonly PendingRecord[]) => void;
  /** LMDB holds everything up to `sequence` on the disk. */
  readonly flushed: (sequence: number) => void;
}

/** Small batches keep each turn of the event loop short: a put costs 1–2 µs on this thread. LMDB's own thread does the rest. */
const BATCH_ROWS_MAX = 500;
/** With a long queue, a turn may take some milliseconds: small batches would delay throttled writers for longer. */
const BACKLOG_BYTES = 8 * 1024 * 1024;
const BACKLOG_BATCH_ROWS_MAX = 3000;
const BATCH_DELAY_MS = 50;
const RETRY_DELAY_MS = 1000;
/** A batch that found no room is retried with half of its rows: a smaller one may fit, and frees journal files. */
const SMALLER_SHARE = 0.5;
const COMMIT_ERROR_WAIT_MS = 1000;
const CLOSE_WAIT_MS = 200;

/**
 * Transfers records from the journal to LMDB, in order, in asynchronous batches. No reply waits for them. A batch is one LMDB
 * transaction: whole records, and the sequence number of the last one.
 */
export class Checkpoint {
  readonly #options: CheckpointOptions;
  #pending: PendingRecord[] = [];
  #rows = 0;
  #bytes = 0;
  #running: Promise<void> | null = null;
  #cancelTimer: (() => void) | null = null;
  #failure: StorageError | null = null;
  /** The sync of a visible commit failed: the kernel reports that once, and treats the unwritten pages as clean afterwards (fsync(2)). */
  #isUnsynced = false;
  /** Limit of a batch while the disk is almost full. */
  #rowsMax = Number.POSITIVE_INFINITY;
  #closed = false;

  constructor(options: CheckpointOptions) {
    this.#options = options;
  }

  /** Memory of the records that LMDB does not have yet, bytes. */
  get pendingBytes(): number {
    return this.#bytes;
  }

  /** Why the last batch failed; null if it did not. It is retried every second. */
  get failure(): StorageError | null {
    return this.#failure;
  }

  add(record: PendingRecord): void {
    this.#pending.push(record);
    this.#rows += record.rows.length;
    this.#bytes += record.bytes;
    if (this.#running !== null || this.#failure !== null || this.#closed) return;
    if (this.#rows >= BATCH_ROWS_MAX) this.#start();
    else this.#cancelTimer ??= this.#options.clock.after(BATCH_DELAY_MS, () => this.#start());
  }

  /** Resolves when LMDB holds every record added so far on the disk. @throws StorageError */
  async drain(): Promise<void> {
    while (this.#pending.length > 0) {
      if (this.#running === null) this.#start();
      await this.#running;
      if (this.#failure !== null) throw this.#failure;
    }
    await this.#options.database.flushed;
  }

  /** Stops and closes the database. Pending records stay in the journal. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancelTimer?.();
    await this.#running;
    this.#options.room.close();
    const closing = this.#options.database.close();
    // lmdb-js waits for the flush of a commit that failed, which never comes.
    if (this.#failure === null) await closing;
    else await Promise.race([closing.catch(() => {}), this.#options.clock.sleep(CLOSE_WAIT_MS)]);
  }

  #start(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    if (this.#running !== null) return;
    this.#running = this.#run().finally(() => {
      this.#running = null;
      if (this.#closed || this.#pending.length === 0) return;
      if (this.#failure !== null) {
        this.#cancelTimer ??= this.#options.clock.after(RETRY_DELAY_MS, () => this.#start());
      } else if (this.#rows >= BATCH_ROWS_MAX) {
        this.#start();
      } else {
        this.#cancelTimer ??= this.#options.clock.after(BATCH_DELAY_MS, () => this.#start());
      }
    });
  }

  async #run(): Promise<void> {
    const { database, committed, flushed, log } = this.#options;
    const records = this.#nextBatch();
    const rows = newestOf(records);
    const last = records.at(-1)?.sequence;
    if (last === undefined) return;
    try {
      if (this.#isUnsynced) await this.#options.rewrite();
      this.#isUnsynced = false;
      if (!this.#options.room.makeFor(rows)) throw new StorageError('no room for the index', { full: true });
      try {
        await this.#committed(this.#put(rows, last));
      } catch (error) {
        this.#isUnsynced = this.#isThere(last);
        throw error;
      }
    } catch (error) {
      const isNew = this.#failure === null;
      this.#failure = this.#failureOf(error);
      if (this.#failure.full) this.#rowsMax = Math.max(1, rowsOf(records) * SMALLER_SHARE);
      if (!isNew) log.debug({ err: error }, 'index still not written');
      else if (this.#failure.full)
        log.error({ err: error }, 'no room for the index: changes are accepted only while the journal has room');
      else log.error({ err: error }, 'index not written: changes are refused until it is');
      return;
    }
    if (this.#failure !== null) log.info({}, 'index written again');
    this.#failure = null;
    this.#rowsMax /= SMALLER_SHARE;
    this.#pending.splice(0, records.length);
    for (const record of records) {
      this.#rows -= record.rows.length;
      this.#bytes -= record.bytes;
    }
    database.resetReadTxn(); // reads must see the batch before the overlay drops it
    committed(records);
    database.flushed.then(
      () => flushed(last),
      () => {}, // a later batch failed to commit: the journal keeps the files of both
    );
  }

  #nextBatch(): PendingRecord[] {
    const wanted = this.#bytes > BACKLOG_BYTES ? BACKLOG_BATCH_ROWS_MAX : BATCH_ROWS_MAX;
    const rowsMax = Math.min(wanted, this.#rowsMax, this.#options.room.rowsMax());
    let rows = 0;
    let count = 0;
    for (const record of this.#pending) {
      if (count > 0 && rows + record.rows.length > rowsMax) break;
      rows += record.rows.length;
      count++;
    }
    return this.#pending.slice(0, count);
  }

  #put(rows: readonly Row[], last: number): Promise<boolean> {
    const { database } = this.#options;
    const commit = database.batch(() => {
      for (const row of rows) {
        if (row.valueBytes === null) void database.remove(row.keyBytes);
        else void database.put(row.keyBytes, row.valueBytes as Buffer);
      }
      void database.put(APPLIED_KEY, encodeApplied(last));
    });
    // lmdb-js creates a second promise for the same commit at the end of this turn. Without a handler its rejection ends the process.
    setImmediate(() =>
      database.committed.then(
        () => {},
        () => {},
      ),
    );
    return commit;
  }

  /** Whether a failed commit is visible nevertheless: LMDB makes a transaction visible before it syncs it. */
  #isThere(last: number): boolean {
    const { database } = this.#options;
    database.resetReadTxn();
    return readApplied(database) >= last;
  }

  #failureOf(error: unknown): StorageError {
    if (error instanceof StorageError) return error;
    const text = String((error as Error | null)?.message ?? error);
    const full = /no space|quota exceeded|ENOSPC|MDB_MAP_FULL/i.test(text) || this.#options.isDiskFull();
    return new StorageError('the index of the store could not be written', { cause: error, full });
  }

  /**
   * Waits for a commit. A failed one rejects a second promise, `commitError`, with the reason. It must be handled here: an unhandled
   * rejection ends the process. If it never settles, the first error is reported.
   */
  async #committed(commit: Promise<boolean>): Promise<void> {
    try {
      await commit;
    } catch (error) {
      const why = (error as { commitError?: Promise<never> }).commitError;
      if (why === undefined) throw error;
      await Promise.race([why, this.#options.clock.sleep(COMMIT_ERROR_WAIT_MS)]);
      throw error;
    }
  }
}

/** Drops rows that a later record of the same batch overwrites: the batch is one transaction. */
function newestOf(records: readonly PendingRecord[]): readonly Row[] {
  const [first, second] = records;
  // A record has each row once.
  if (first !== undefined && second === undefined) return first.rows;
  const newest = new Map<string, Row>();
  for (const { rows } of records) for (const row of rows) newest.set(row.keyBytes.toString('latin1'), row);
  return [...newest.values()];
}

function rowsOf(records: readonly PendingRecord[]): number {
  return records.reduce((sum, { rows }) => sum + rows.length, 0);
}

/**
 * Sequence number of the last journal record that LMDB holds: u64 big endian, in a checked row. Before layout 3 it had no checksum.
 * Written in the same transaction as the record's rows.
 */
export const APPLIED_KEY = encodeKey('meta', 'applied');

const COUNT_BYTES = 8;

export function encodeApplied(count: number): Buffer {
  const bytes = Buffer.alloc(COUNT_BYTES);
  bytes.writeBigUInt64BE(BigInt(count));
  return sealRow(APPLIED_KEY, bytes);
}

/** 0 for a new database. @throws StorageError for a damaged row: it is unknown then which journal records are still to be applied */
export function readApplied(database: Pick<RootDatabase<Buffer, Buffer>, 'getBinary'>): number {
  const stored = database.getBinary(APPLIED_KEY);
  if (stored === undefined) return 0;
  const bytes = stored.byteLength === COUNT_BYTES ? stored : openRow(APPLIED_KEY, stored);
  if (bytes?.byteLength !== COUNT_BYTES) throw new StorageError('the index of the store is damaged');
  return Number(Buffer.from(bytes).readBigUInt64BE());
}

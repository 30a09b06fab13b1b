import { randomUUID } from 'node:crypto';
import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import { systemCodeOf } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Blobs } from './blobs.ts';
import type { Database } from './database.ts';
import type { Histories } from './histories.ts';
import { DamagedFileError, type ObjectStore } from './object-store.ts';
import type { VersionRow } from './rows.ts';

/**
 * Moves the bytes of complete, hashed versions from the disk to the object store. No response waits for the store: what
 * it does not take stays on the disk.
 *
 * Order: the key (`arriving`), the bytes, the row of the blob, the removal of the file. After a crash in between, the
 * file is still there and is moved again under another key; the collector deletes the first object (`object-collector.ts`).
 */
export class ObjectMover {
  readonly #store: ObjectStore;
  readonly #database: Database;
  readonly #blobs: Blobs;
  readonly #histories: Histories;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #closing = new AbortController();
  readonly #queue: VersionRow[] = [];
  /** Blobs in the queue or being moved. */
  readonly #waiting = new Set<string>();
  /** The queue was full, or the server has just started: versions are on the disk that are not in the queue. */
  #isIncomplete = true;
  #scan: Promise<void> | null = null;
  readonly #lanes = new Set<Promise<void>>();
  #moved = 0;
  #failed = 0;
  /** Failures in a row, of any version. */
  #failures = 0;

  constructor(deps: {
    store: ObjectStore;
    database: Database;
    blobs: Blobs;
    histories: Histories;
    clock: Clock;
    log: Logger;
  }) {
    this.#store = deps.store;
    this.#database = deps.database;
    this.#blobs = deps.blobs;
    this.#histories = deps.histories;
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  /** Queues what an earlier process left. */
  start(): void {
    this.#next();
  }

  /** Versions that wait, or are being moved. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Versions moved since the start, and failed attempts. */
  get counts(): { readonly moved: number; readonly failed: number } {
    return { moved: this.#moved, failed: this.#failed };
  }

  /** Queues a complete version, unless its bytes are in the database or in the store. */
  add(version: VersionRow): void {
    if (this.#closing.signal.aborted || !this.#isMovable(version)) return;
    if (this.#queue.length >= QUEUED_MAX) {
      this.#isIncomplete = true;
      return;
    }
    this.#waiting.add(version.blob);
    this.#queue.push(version);
    this.#next();
  }

  /** Interrupts moves; the next start finds the versions again. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#scan;
    await Promise.all(this.#lanes);
  }

  #isMovable({ blob, complete, sha256 }: VersionRow): boolean {
    return (
      complete &&
      sha256 !== null &&
      !this.#waiting.has(blob) &&
      !this.#database.smallBlobs.doesExist(blob) &&
      !this.#blobs.isStored(blob)
    );
  }

  #next(): void {
    if (this.#closing.signal.aborted) return;
    while (this.#lanes.size < Math.min(LANES, this.#queue.length)) {
      const lane = this.#lane().finally(() => {
        this.#lanes.delete(lane);
        this.#next();
      });
      this.#lanes.add(lane);
    }
    if (this.#queue.length > 0 || this.#scan !== null || !this.#isIncomplete) return;
    this.#isIncomplete = false;
    this.#scan = this.#queueAll()
      .catch((err: unknown) => this.#log.warn({ err }, 'versions on the disk not queued'))
      .finally(() => {
        this.#scan = null;
        this.#next();
      });
  }

  /** Queues what is on the disk, until the queue is full: the rest follows when it is empty. */
  async #queueAll(): Promise<void> {
    for await (const rows of this.#histories.inPieces()) {
      for (const row of rows) this.add(row);
      if (this.#isIncomplete || this.#closing.signal.aborted) return;
    }
  }

  async #lane(): Promise<void> {
    for (let version = this.#queue.shift(); version !== undefined; version = this.#queue.shift()) {
      const { blob } = version;
      try {
        await this.#move(version);
        this.#failures = 0;
        this.#waiting.delete(blob);
      } catch (err) {
        if (this.#closing.signal.aborted) return;
        this.#failed += 1;
        if (err instanceof DamagedFileError) {
          // The next start tries again. Until then `cfs serve --check` names the version.
          this.#log.error({ err, version: version.version }, 'damaged version not moved to the object store');
          continue;
        }
        this.#failures += 1;
        this.#log.warn({ err, version: version.version }, 'version not moved to the object store');
        this.#queue.push(version);
        await this.#clock
          .sleep(backoffMs(this.#failures, this.#clock.random(), BACKOFF), this.#closing.signal)
          .catch(() => {});
        if (this.#closing.signal.aborted) return;
      }
    }
  }

  async #move(version: VersionRow): Promise<void> {
    const { blob, sizeBytes, sha256 } = version;
    if (sha256 === null || !this.#histories.has(version)) return;
    const { objects } = this.#database;
    const name = randomUUID().replaceAll('-', '');
    const key = `${name.slice(0, 2)}/${name}`;
    await this.#database.changeTogether(() => objects.begin(key));
    let isStored = false;
    try {
      const etag = await this.#store.put(
        key,
        { path: this.#blobs.pathOf(blob), sizeBytes, sha256 },
        this.#closing.signal,
      );
      isStored = await this.#database.changeTogether(() => {
        if (!this.#histories.has(version)) return false;
        objects.finish(blob, { key, sizeBytes, etag });
        return true;
      });
    } catch (error) {
      // A version that was deleted meanwhile has no file.
      if (systemCodeOf(error) !== 'ENOENT' || this.#histories.has(version)) throw error;
    } finally {
      if (!isStored) await this.#database.changeTogether(() => objects.abandon(key));
    }
    if (!isStored) return;
    this.#moved += 1;
    await this.#blobs.remove([blob]);
  }
}

/** Versions moved at a time. Each holds a part of 8 MiB in memory. */
const LANES = 8;
/** The queue is in memory: of a million versions that wait, the first ones are enough. */
const QUEUED_MAX = 10_000;
const BACKOFF = { firstMs: 1000, maxMs: 60_000 };

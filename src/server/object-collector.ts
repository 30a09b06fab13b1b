import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Database } from './database.ts';
import type { ObjectStore } from './object-store.ts';

/** Deletes objects without a reference from the object store: soon after their last one, and after interrupted moves. */
export class ObjectCollector {
  readonly #store: ObjectStore;
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #closing = new AbortController();
  /** Objects that were without a reference at the last collection already. */
  #seen: ReadonlySet<string> = new Set();
  #running: Promise<unknown> = Promise.resolve();

  constructor(deps: { store: ObjectStore; database: Database; clock: Clock; log: Logger }) {
    this.#store = deps.store;
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  /** Takes every object that is arriving for interrupted: call it before anything is moved. */
  start(): void {
    const { objects } = this.#database;
    const arriving = [...objects.pending()].filter(([, state]) => state === 'arriving');
    if (arriving.length > 0)
      this.#database.change(() => {
        for (const [key] of arriving) objects.abandon(key);
      });
    this.#schedule();
  }

  /** Ends the collection that is running. Then the store is closed. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#running;
    await this.#store.close();
  }

  /**
   * Deletes the objects that lost their last reference before the previous call: a download may just have read the row
   * of a later one.
   * @returns how many were deleted
   */
  async collect(): Promise<number> {
    const { objects } = this.#database;
    const unreferenced = [...objects.pending()].filter(([, state]) => state !== 'arriving');
    const due = unreferenced.filter(([key]) => this.#seen.has(key));
    this.#seen = new Set(unreferenced.map(([key]) => key));
    let deleted = 0;
    const lane = async (): Promise<void> => {
      for (let next = due.pop(); next !== undefined; next = due.pop()) {
        const [key, state] = next;
        await this.#store.remove(key, state === 'broken', this.#closing.signal);
        await this.#database.changeTogether(() => objects.forget(key));
        deleted += 1;
      }
    };
    await Promise.all(Array.from({ length: LANES }, lane));
    return deleted;
  }

  #schedule(): void {
    this.#clock.after(INTERVAL_MS, () => {
      if (this.#closing.signal.aborted) return;
      this.#running = this.collect()
        .catch((err: unknown) => {
          if (!this.#closing.signal.aborted) this.#log.warn({ err }, 'objects not deleted from the object store');
        })
        .finally(() => this.#schedule());
    });
  }
}

const INTERVAL_MS = 60_000;
/** Deletions at a time. */
const LANES = 4;

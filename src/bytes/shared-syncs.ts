interface RunningSync {
  ended: Promise<void>;
  /** Changes made before the sync has begun are covered by it. */
  hasBegun: boolean;
  /** Something changed since it began. */
  isOutdated: boolean;
}

/**
 * Shares fsync calls on objects of one kind (files, folders): callers share one sync, running or ended, until the object changes. Syncs of
 * earlier runs do not count: those runs may have been killed before them.
 */
export class SharedSyncs<K> {
  readonly #synced = new Set<K>();
  /** The newest sync of each object. */
  readonly #running = new Map<K, RunningSync>();

  /** The object changed after its last sync. */
  changed(key: K): void {
    this.#synced.delete(key);
    const running = this.#running.get(key);
    if (running?.hasBegun) running.isOutdated = true;
  }

  /** Resolves when the object's state at the call is on the disk; calls `sync` if necessary. */
  async of(key: K, sync: () => Promise<void>): Promise<void> {
    if (this.#synced.has(key)) return;
    const running = this.#running.get(key);
    await (running === undefined || running.isOutdated ? this.#begin(key, sync, running) : running).ended;
  }

  /** One sync at a time: of two concurrent ones Linux reports lost bytes to only one. */
  #begin(key: K, sync: () => Promise<void>, before: RunningSync | undefined): RunningSync {
    const running: RunningSync = { ended: Promise.resolve(), hasBegun: false, isOutdated: false };
    const run = async (): Promise<void> => {
      await before?.ended.catch(() => {}); // the callers that wait for that sync get its error
      running.hasBegun = true;
      try {
        await sync();
        if (!running.isOutdated) this.#synced.add(key);
      } finally {
        if (this.#running.get(key) === running) this.#running.delete(key);
      }
    };
    this.#running.set(key, running);
    running.ended = run();
    return running;
  }
}

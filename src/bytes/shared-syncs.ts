interface RunningSync {
  ended: Promise<void>;
  /** What changes before that is in it. */
  hasBegun: boolean;
  /** Something changed since it began. */
  isOutdated: boolean;
}

/**
 * Which things of one kind (files, folders) are on the disk as they are now. Whoever needs that shares one sync, under way or ended,
 * until the thing changes. What earlier runs synced is not known: they may have been killed before they did.
 */
export class SharedSyncs<K> {
  readonly #synced = new Set<K>();
  /** The newest of each. */
  readonly #running = new Map<K, RunningSync>();

  /** What was synced of it is not all of it any more. */
  changed(key: K): void {
    this.#synced.delete(key);
    const running = this.#running.get(key);
    if (running?.hasBegun) running.isOutdated = true;
  }

  /** Resolves when all of it is on the disk that was there at the call; `sync` is called if need be. */
  async of(key: K, sync: () => Promise<void>): Promise<void> {
    if (this.#synced.has(key)) return;
    const running = this.#running.get(key);
    await (running === undefined || running.isOutdated ? this.#begin(key, sync, running) : running).ended;
  }

  /** One after another: of two at once Linux tells only one that bytes were lost. */
  #begin(key: K, sync: () => Promise<void>, before: RunningSync | undefined): RunningSync {
    const running: RunningSync = { ended: Promise.resolve(), hasBegun: false, isOutdated: false };
    const run = async (): Promise<void> => {
      await before?.ended.catch(() => {}); // told to those who wait for it
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

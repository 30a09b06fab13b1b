import type { SyncLeft } from '../sync/sync-request.ts';

/** The syncs that run now, by their numbers, for reports of progress. */
export class RunningSyncs {
  readonly #left = new Map<number, () => SyncLeft>();

  /** Runs a sync; `left(id)` returns its remaining work meanwhile. */
  async run<T>(id: number, push: (onBegin: (left: () => SyncLeft) => void) => Promise<T>): Promise<T> {
    try {
      return await push((left) => this.#left.set(id, left));
    } finally {
      this.#left.delete(id);
    }
  }

  /** Null if it is not running. */
  left(id: number): SyncLeft | null {
    return this.#left.get(id)?.() ?? null;
  }
}

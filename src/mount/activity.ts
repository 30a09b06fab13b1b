import type { Clock } from '../base/clock.ts';

/** Whether something happened since a moment that may show in the status of a mount. Its followers wait for it, and read nothing meanwhile. */
export class Activity {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #waiting = new Set<() => void>();
  #count = 0;

  constructor({ clock }: { readonly clock: Pick<Clock, 'after'> }) {
    this.#clock = clock;
  }

  /** A moment, for `since`. */
  get count(): number {
    return this.#count;
  }

  happened(): void {
    this.#count += 1;
    for (const wake of [...this.#waiting]) wake();
  }

  /** Resolves when something has happened after the moment `count`, when `signal` is aborted, and after `ms` in any case. */
  since(count: number, ms: number, signal: AbortSignal): Promise<void> {
    if (count !== this.#count || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = (): void => {
        cancel();
        this.#waiting.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      const cancel = this.#clock.after(ms, wake);
      this.#waiting.add(wake);
      signal.addEventListener('abort', wake, { once: true });
    });
  }
}

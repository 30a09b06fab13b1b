import type { Clock } from '../../base/clock.ts';

/** How long a check may wait before a notice names it. */
const SILENT_MS_MAX = 2_000;

/** Says which check a command waits for, once for each check that takes longer than two seconds. */
export class WaitNotice {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #warn: (text: string) => void;

  constructor(deps: { readonly clock: Pick<Clock, 'after'>; readonly warn: (text: string) => void }) {
    this.#clock = deps.clock;
    this.#warn = deps.warn;
  }

  /** @param what follows "waiting for" */
  async during<T>(what: string, work: () => Promise<T>): Promise<T> {
    const cancel = this.#clock.after(SILENT_MS_MAX, () => this.#warn(`waiting for ${what}\n`));
    try {
      return await work();
    } finally {
      cancel();
    }
  }
}

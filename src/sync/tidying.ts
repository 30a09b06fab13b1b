import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Contents } from '../bytes/contents.ts';
import type { MadeHere } from './made-here.ts';

/**
 * What has time until nothing is being pushed: versions get their names where room is needed, take over what they still have in
 * their bases, and contents that nothing refers to any more give their space back. Asked for after changes, done a moment later, in small portions; when
 * nothing changes nothing happens.
 */
export class Tidying {
  readonly #deps: TidyingDeps;
  readonly #stopped = new AbortController();
  #cancel: (() => void) | null = null;
  /** Of the run that asks for names again. A timer of its own: a change in the meantime is not to wait for it. */
  #cancelNaming: (() => void) | null = null;
  #isRunning = false;

  constructor(deps: TidyingDeps) {
    this.#deps = deps;
  }

  /** Something changed. Cheap: to be called in the path of an operation. */
  soon(afterMs = PAUSE_MS): void {
    if (this.#cancel !== null || this.#stopped.signal.aborted) return;
    this.#cancel = this.#deps.clock.after(afterMs, () => {
      this.#cancel = null;
      void this.#run();
    });
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = null;
    this.#cancelNaming?.();
    this.#cancelNaming = null;
    this.#stopped.abort(new DOMException('the mount stops', 'AbortError'));
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    const { contents, madeHere, isBusy, log } = this.#deps;
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      const isQuiet = !isBusy();
      if (isQuiet) await madeHere.nameVersions(this.#stopped.signal);
      if (madeHere.isNeeded) this.#nameIn(madeHere.pauseMs);
      if (!isBusy()) await contents.mergeLayers(this.#stopped.signal);
      if (this.#stopped.signal.aborted) return;
      // What is leased waits for the next change; a long row of the rest goes on in portions.
      const isMore = contents.collect();
      const isOpen = isQuiet && madeHere.pauseMs === 0;
      if ((isOpen && madeHere.isNeeded) || isMore) this.soon(PORTION_MS);
    } catch (err) {
      log.warn({ err }, 'contents not tidied');
    } finally {
      this.#isRunning = false;
    }
  }

  #nameIn(pauseMs: number): void {
    if (pauseMs === 0 || this.#stopped.signal.aborted) return;
    this.#cancelNaming ??= this.#deps.clock.after(pauseMs, () => {
      this.#cancelNaming = null;
      this.soon(PORTION_MS);
    });
  }
}

export interface TidyingDeps {
  readonly contents: Pick<Contents, 'mergeLayers' | 'collect'>;
  readonly madeHere: Pick<MadeHere, 'nameVersions' | 'isNeeded' | 'pauseMs'>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Whether something is being pushed, which goes first. */
  readonly isBusy: () => boolean;
}

const PAUSE_MS = 1_000;
const PORTION_MS = 20;

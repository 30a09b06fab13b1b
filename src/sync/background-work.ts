import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Contents } from '../bytes/contents.ts';
import type { UnidentifiedVersions } from './unidentified-versions.ts';

/**
 * Background work that waits until no push is running: unidentified versions get their names if the cache needs space, layers are merged, and
 * contents without references are removed. It runs shortly after a change, in small portions. Without changes it does nothing.
 */
export class BackgroundWork {
  readonly #deps: BackgroundWorkDeps;
  readonly #stopped = new AbortController();
  #cancel: (() => void) | null = null;
  /** The next run that asks for names. It has a timer of its own, because a change must not wait for it. */
  #cancelNaming: (() => void) | null = null;
  #isRunning = false;

  constructor(deps: BackgroundWorkDeps) {
    this.#deps = deps;
  }

  /** Something changed. Cheap, because operations call it. */
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
    const { contents, unidentifiedVersions, isBusy, log } = this.#deps;
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      const isQuiet = !isBusy();
      if (isQuiet) await unidentifiedVersions.nameVersions(this.#stopped.signal);
      if (unidentifiedVersions.isNeeded) this.#nameIn(unidentifiedVersions.pauseMs);
      if (!isBusy()) await contents.mergeLayers(this.#stopped.signal);
      if (this.#stopped.signal.aborted) return;
      // A leased content waits for the next change. The others continue in portions.
      const isMore = contents.collect();
      const isOpen = isQuiet && unidentifiedVersions.pauseMs === 0;
      if ((isOpen && unidentifiedVersions.isNeeded) || isMore) this.soon(PORTION_MS);
    } catch (err) {
      log.warn({ err }, 'maintenance of the contents failed');
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

export interface BackgroundWorkDeps {
  readonly contents: Pick<Contents, 'mergeLayers' | 'collect'>;
  readonly unidentifiedVersions: Pick<UnidentifiedVersions, 'nameVersions' | 'isNeeded' | 'pauseMs'>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Whether pushes are running. They go first. */
  readonly isBusy: () => boolean;
}

const PAUSE_MS = 1_000;
const PORTION_MS = 20;

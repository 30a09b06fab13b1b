import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Status } from '../control/status-model.ts';
import type { Quota } from '../fs/account-quota.ts';

/**
 * The account's quota as the service last told it. Asked for when a row of pushes has ended, which count towards it, and when
 * somebody looks at one that is old; nobody waits for the answer, and a question that fails is asked again by the next of these.
 */
export class QuotaWatch {
  readonly #deps: QuotaWatchDeps;
  #known: Status['quota'] = null;
  #isAsking = false;
  /** Something was pushed, and the question is to come. */
  #isDue = false;

  constructor(deps: QuotaWatchDeps) {
    this.#deps = deps;
  }

  /** `atMs`: by the wall. */
  get known(): Status['quota'] {
    return this.#known;
  }

  /** Asks now, unless a question is under way. Never rejects. */
  async ask(): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    const { question, onQuota, clock, log } = this.#deps;
    try {
      const quota = await question();
      if (quota === null) return;
      this.#known = { ...quota, atMs: clock.nowMs() };
      await onQuota(quota);
    } catch (err) {
      log.debug({ err }, 'quota not learnt');
    } finally {
      this.#isAsking = false;
    }
  }

  /** Something was pushed: asks when the row of pushes has ended, and not for each of them. */
  pushed(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    const { clock } = this.#deps;
    const sinceMs = clock.nowMs() - (this.#known?.atMs ?? 0);
    clock.after(Math.max(SETTLE_MS, PAUSE_MS - sinceMs), () => {
      this.#isDue = false;
      void this.ask();
    });
  }

  /** Somebody looks: asks where what is known is old. */
  looked(): void {
    if (this.#known === null || this.#deps.clock.nowMs() - this.#known.atMs > AGE_MS_MAX) void this.ask();
  }
}

export interface QuotaWatchDeps {
  /** Asks the service; null when it tells of none. */
  readonly question: () => Promise<Quota | null>;
  /** Whoever else has to know (statfs(2) is answered by the Worker). */
  readonly onQuota: (quota: Quota) => Promise<void>;
  readonly clock: Clock;
  readonly log: Logger;
}

const SETTLE_MS = 1_000;
const PAUSE_MS = 5_000;
/** How old a quota may be before it is asked for again, behind the back of whoever looks. */
const AGE_MS_MAX = 300_000;

import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Status } from '../control/status-model.ts';
import type { Quota } from '../fs/account-quota.ts';

/**
 * The last known quota of the account. Requested after a series of pushes, which change it, and when a status call finds it old.
 * No caller waits for the answer. The pause between requests is the same after success and failure.
 */
export class QuotaWatch {
  readonly #deps: QuotaWatchDeps;
  #known: Status['quota'] = null;
  #isAsking = false;
  /** `elapsedMs` of the last request; null for none in this run. Not the wall clock: setting it back would delay the next request. */
  #askedMs: number | null = null;
  /** The storage was nearly used up when it was reported last. */
  #isLow = false;
  /** A push has changed the quota, and the request is scheduled. */
  #isDue = false;

  constructor(deps: QuotaWatchDeps) {
    this.#deps = deps;
  }

  /** `atMs`: wall clock. */
  get known(): Status['quota'] {
    return this.#known;
  }

  /** Requests the quota now, unless a request is running. Never rejects. @param answer of a request that is already running */
  async ask(answer?: Promise<Quota | null>): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    const { question, onQuota, clock, log } = this.#deps;
    this.#askedMs = clock.elapsedMs();
    try {
      const quota = await (answer ?? question());
      if (quota === null) return;
      this.#known = { ...quota, atMs: clock.nowMs() };
      this.#warn(quota);
      await onQuota(quota);
    } catch (err) {
      log.debug({ err }, 'quota not learnt');
    } finally {
      this.#isAsking = false;
    }
  }

  /** After a push: requests the quota once the series of pushes has ended. */
  pushed(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    this.#deps.clock.after(Math.max(SETTLE_MS, PAUSE_MS - this.#sinceAskedMs), () => {
      this.#isDue = false;
      void this.ask();
    });
  }

  /** A status call: requests the quota if the last request is old. */
  looked(): void {
    if (this.#sinceAskedMs > AGE_MS_MAX) void this.ask();
  }

  /** Warns once, and again after there was room in between. */
  #warn({ limitBytes, usedBytes }: Quota): void {
    const share = limitBytes > 0 ? usedBytes / limitBytes : 0;
    if (share >= QUOTA_LOW_SHARE && !this.#isLow) {
      this.#isLow = true;
      this.#deps.onLow({ limitBytes, usedBytes });
    } else if (share < ROOM_SHARE) this.#isLow = false;
  }

  get #sinceAskedMs(): number {
    return this.#askedMs === null ? Number.POSITIVE_INFINITY : this.#deps.clock.elapsedMs() - this.#askedMs;
  }
}

export interface QuotaWatchDeps {
  /** Asks the service; null if it reports no quota. */
  readonly question: () => Promise<Quota | null>;
  /** Passes the quota on (the Worker answers statfs(2)). */
  readonly onQuota: (quota: Quota) => Promise<void>;
  /** The storage is nearly used up. */
  readonly onLow: (quota: Quota) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

const SETTLE_MS = 1_000;
const PAUSE_MS = 5_000;
/** From this share on the user is warned: small uploads still fit. */
export const QUOTA_LOW_SHARE = 0.9;
/** Below this share the next warning is due. */
const ROOM_SHARE = 0.85;
/** How old a quota may be before a status call requests it in the background. */
const AGE_MS_MAX = 300_000;

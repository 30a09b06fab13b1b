import type { Clock } from '../base/clock.ts';

/** More removals than this within `WINDOW_MS` look like a fault of the service, or like an accident, and wait for a person. */
export const REMOVALS_BELIEVED_MAX = 100;
const WINDOW_MS = 10 * 60_000;
/** Fewer nodes than this are never "half of the account". */
const HALF_MIN = 5;

/**
 * How many removals are believed without a person's word while they rest on a 404. They count together over all folders: a back end that
 * comes up empty answers for one folder after another.
 */
export class RemovalLimit {
  readonly #clock: Clock;
  readonly #countKnown: (max: number) => number;
  /** The oldest first. */
  #believed: { readonly atMs: number; readonly nodes: number }[] = [];

  /** @param deps.countKnown how many nodes the service is known to have, up to `max` */
  constructor(deps: { readonly clock: Clock; readonly countKnown: (max: number) => number }) {
    this.#clock = deps.clock;
    this.#countKnown = deps.countKnown;
  }

  /** Whether that many more may go now; `believed` counts them. */
  allows(nodes: number): boolean {
    const fromMs = this.#clock.elapsedMs() - WINDOW_MS;
    this.#believed = this.#believed.filter(({ atMs }) => atMs > fromMs);
    const before = this.#believed.reduce((sum, each) => sum + each.nodes, 0);
    const total = before + nodes;
    if (total > REMOVALS_BELIEVED_MAX) return false;
    if (total < HALF_MIN) return true;
    // Half of what was known before the first of them.
    const knownMax = 2 * total - before;
    return this.#countKnown(knownMax + 1) > knownMax;
  }

  believed(nodes: number): void {
    if (nodes > 0) this.#believed.push({ atMs: this.#clock.elapsedMs(), nodes });
  }
}

import type { Clock } from '../base/clock.ts';

/** More removals than this within `WINDOW_MS` suggest a fault or an accident, and wait for the user. */
export const REMOVALS_BELIEVED_MAX = 100;
const WINDOW_MS = 10 * 60_000;
/** Smaller numbers of nodes never count as "half of the account". */
const HALF_MIN = 5;

/**
 * Limits removals that rest on a 404 and are applied without the user's confirmation. All folders share the limit: a
 * back end that starts empty answers 404 for one folder after another.
 */
export class RemovalLimit {
  readonly #clock: Clock;
  readonly #countKnown: (max: number) => number;
  /** Oldest first. */
  #believed: { readonly atMs: number; readonly nodes: number }[] = [];

  /** @param deps.countKnown counts the nodes known to exist remotely, up to `max` */
  constructor(deps: { readonly clock: Clock; readonly countKnown: (max: number) => number }) {
    this.#clock = deps.clock;
    this.#countKnown = deps.countKnown;
  }

  /** Whether that many nodes may be removed now; `believed` counts them. */
  allows(nodes: number): boolean {
    const fromMs = this.#clock.elapsedMs() - WINDOW_MS;
    this.#believed = this.#believed.filter(({ atMs }) => atMs > fromMs);
    const before = this.#believed.reduce((sum, each) => sum + each.nodes, 0);
    const total = before + nodes;
    if (total > REMOVALS_BELIEVED_MAX) return false;
    if (total < HALF_MIN) return true;
    // Half of the number known before the first of them.
    const knownMax = 2 * total - before;
    return this.#countKnown(knownMax + 1) > knownMax;
  }

  believed(nodes: number): void {
    if (nodes > 0) this.#believed.push({ atMs: this.#clock.elapsedMs(), nodes });
  }
}

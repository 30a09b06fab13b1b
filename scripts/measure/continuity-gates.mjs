/** @import { Results } from './results.mjs' */

/** The peer that is ours with `--continuity`. */
export const CONTINUITY = 'continuity';
/** What `--continuity` may cost while nothing dies: 3 % (docs/adr/0041-a-mount-outlives-its-process.md). */
const COST_MAX = 1.03;

/**
 * Gates on the cost of `--continuity`: ours without it against ours with it, in the same run.
 *
 * @param {Results} results
 * @param {string[][]} measures [key, measure, unit]; units per time are better when larger
 */
export function continuityGates(results, measures) {
  for (const [, measure = '', unit = ''] of measures) {
    const isRate = unit === 'MB/s' || unit === 'per s';
    if (isRate) results.gate(measure, 'at most', COST_MAX, CONTINUITY);
    else results.gate(measure, 'at least', 2 - COST_MAX, CONTINUITY);
  }
}

/** What `scripts/soak.mjs` looks for. */
const MARK = 'figures: ';

/** What a long test did, in numbers: said now, and again at the end of `npm run soak`. */
export function tellFigures(text: string): void {
  console.info(`${MARK}${text}`);
}

/** The distribution of times, for a line of figures. */
export function percentiles(ms: readonly number[]): string {
  const sorted = [...ms].sort((one, other) => one - other);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return `p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, max ${at(1)} ms`;
}

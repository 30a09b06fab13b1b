/**
 * The seeds of a test that works at random: those that once failed, and as many new ones as `CFS_RUNS` says, from
 * `CFS_FIRST_SEED` on (`npm run soak`, which draws it). `CFS_SEED` runs one alone.
 */
export function seedsOf(kept: readonly number[]): readonly number[] {
  const { CFS_SEED: only, CFS_RUNS: runs = '0', CFS_FIRST_SEED: first = '1000' } = process.env;
  if (only !== undefined) return [Number(only)];
  return [...kept, ...Array.from({ length: Number(runs) }, (_, run) => Number(first) + run)];
}

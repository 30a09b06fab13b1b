// Names and sync against the model of the service. Default: 1,000,000 generated cases of the sync, 100,000 of the tree and 10,000 with the
// real store.
export const project = 'unit';
export const files = [
  'test/sync/sync-convergence.test.ts',
  'test/sync/shared-convergence.test.ts',
  'test/sync/two-machines.test.ts',
  'test/sync/saves-and-steps.test.ts',
  'test/tree/convergence.test.ts',
];

/** Eight properties share the cases, and three get half as many. */
export function environment(cases = '1000000') {
  const runs = Math.ceil(Number(cases) / 9.5);
  return {
    CFS_CASES_SEED: process.env.CFS_CASES_SEED ?? 'random',
    CFS_SYNC_RUNS: String(runs),
    CFS_SAVES_RUNS: String(Math.ceil(Number(cases) / 100)),
    CFS_TREE_RUNS: String(Math.ceil(runs / 10)),
  };
}

// A service that sends arbitrary answers, seed after seed: over HTTP, and as listings alone. And clients that send
// arbitrary documents and request heads to the server.
export const project = 'unit';
export const files = [
  'test/faults/hostile-service.test.ts',
  'test/tree/hostile-listings.test.ts',
  'test/server/hostile-requests.test.ts',
];
export const environment = (seeds = '500') => ({
  CFS_RUNS: seeds,
  CFS_TREE_RUNS: String(Number(seeds) * 200),
  CFS_CASES_SEED: process.env.CFS_CASES_SEED ?? 'random',
});

// Two mounts of one account and a web client, seed after seed, each longer than in `npm test`.
export const files = ['test/clients/clients.mount.test.ts'];
export const environment = (seeds = '200') => ({ CFS_RUNS: seeds, CFS_ROUNDS: '20' });

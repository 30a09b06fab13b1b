// Ordinary programs with the full sizes: 10,000 files for cp, tar, rsync and zip, 500 commits for git; sqlite3 killed 25 times.
export const files = [
  'test/programs/programs.mount.test.ts',
  'test/programs/sqlite-kill.mount.test.ts',
  'test/programs/big-copy.mount.test.ts',
];
export const environment = (amount = '10000') => ({ CFS_FILES: amount, CFS_COMMITS: '500', CFS_RUNS: '25' });

// Saves go on beside a server that stopped, with eight reads hanging and a listing of 100,000 entries under way: p99 of create + write + close + rename is 20 ms at most.
export const files = ['test/programs/hanging-server.mount.test.ts'];
export const environment = (entries = '100000') => ({
  CFS_ENTRIES: entries,
  CFS_P99_MS: '20',
  CFS_TEST_MS_MAX: '1800000',
});

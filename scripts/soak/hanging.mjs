// Saves beside a stopped server, eight hanging reads and a running listing of 100,000 entries: p99 of create + write + close + rename is
// at most 20 ms.
export const files = ['test/programs/hanging-server.mount.test.ts'];
export const environment = (entries = '100000') => ({
  CFS_ENTRIES: entries,
  CFS_P99_MS: '20',
  CFS_TEST_MS_MAX: '1800000',
});

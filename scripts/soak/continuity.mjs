// SIGKILL of the mount process with `--continuity`, under load with a model: no call fails or takes effect twice.
export const files = [
  'test/crash/continuity.mount.test.ts',
  'test/crash/continuity-programs.mount.test.ts',
  'test/crash/continuity-trouble.mount.test.ts',
  ...['-t', 'killed under load|is stopped'],
];
export const environment = (deaths = '300') => ({
  CFS_TEST_DEATHS: deaths,
  CFS_TEST_CALLS_BETWEEN: '5000',
  CFS_FILES: '5000',
  CFS_TEST_KILL_AFTER_MS: '2000',
  CFS_TEST_STOPPED_MS: '10000',
});

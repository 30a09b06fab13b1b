// SIGKILL of the mount process with `--continuity`, under load with a model: no call fails or takes effect twice. With the requests that the
// kernel sends again, with those that the keeper's memory has, and on a kernel that sends none again (Linux 6.1, in user-mode Linux).
export const files = [
  'test/crash/continuity.mount.test.ts',
  'test/crash/kept-requests.mount.test.ts',
  'test/crash/each-operation.mount.test.ts',
  'test/crash/continuity-programs.mount.test.ts',
  'test/crash/continuity-names.mount.test.ts',
  'test/crash/continuity-trouble.mount.test.ts',
  'test/crash/old-kernel.mount.test.ts',
  ...['-t', 'killed under load|is stopped|each operation over deaths|names over deaths|on Linux 6.1'],
];
export const environment = (deaths = '300') => ({
  CFS_TEST_DEATHS: deaths,
  CFS_TEST_CALLS_BETWEEN: '5000',
  // 13 operations, six points, both modes.
  CFS_TEST_ROUNDS: String(Math.ceil(Number(deaths) / 36)),
  CFS_TEST_OLD_KERNEL_DEATHS: String(Math.ceil(Number(deaths) / 10)),
  CFS_FILES: '5000',
  CFS_TEST_KILL_AFTER_MS: '2000',
  CFS_TEST_STOPPED_MS: '10000',
});

// Each safeguard of `--continuity` is switched off in a copy of the project, and its tests must fail. A regular expression chooses some.
export const files = ['test/crash/ablations.mount.test.ts'];
export const environment = (safeguards = '') => ({ CFS_TEST_ABLATIONS: safeguards });

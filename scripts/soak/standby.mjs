// As the part `continuity`, with a standby that waits at each death: the figures give the pause.
export const files = ['test/crash/continuity.mount.test.ts', '-t', 'killed under load'];
export const environment = (deaths = '200') => ({ CFS_TEST_DEATHS: deaths, CFS_TEST_STANDBY: 'on' });

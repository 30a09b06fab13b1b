// SIGKILL of mount, server and both, at every named step and at any moment.
export const files = ['test/crash/kill-points.mount.test.ts'];
export const environment = (kills = '1000') => ({ CFS_KILLS: kills });

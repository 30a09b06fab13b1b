// SIGKILL of mount, server and both, at every named step and at random moments: 50 for each seed. One of the seeds is fixed.
const KILLS = 50;
const KEPT = 1;
export const files = ['test/crash/kill-points.mount.test.ts'];
export const environment = (kills = '1000') => ({
  CFS_KILLS: String(KILLS),
  CFS_RUNS: String(Math.max(0, Math.ceil(Number(kills) / KILLS) - KEPT)),
});

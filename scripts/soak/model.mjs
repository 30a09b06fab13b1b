// Random operations on a mount beside a plain directory, 20,000 for each seed. Five of the seeds are fixed.
const STEPS = 20_000;
const KEPT = 5;
export const files = ['test/model/mount-model.mount.test.ts'];
export const environment = (operations = '1000000') => ({
  CFS_STEPS: String(STEPS),
  CFS_RUNS: String(Math.max(0, Math.ceil(Number(operations) / STEPS) - KEPT)),
});

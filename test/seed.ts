import fc from 'fast-check';

/**
 * Generated cases are the same in every run of the suite: a commit is judged by what it changed, not by luck. New ground is
 * covered with CFS_SEED=random (or a number, to see a failure again), and with more cases (CFS_RUNS and its like).
 */
const wanted = process.env.CFS_SEED ?? '20261120';
const seed = /^-?\d+$/.test(wanted) ? Number(wanted) : Math.floor(performance.timeOrigin % 0x7fff_ffff);
fc.configureGlobal({ ...fc.readConfigureGlobal(), seed });
if (wanted !== '20261120') console.info(`seed of generated cases: ${seed}`);

import fc from 'fast-check';

/**
 * Generated cases of fast-check start from the seed that vitest.config.ts chose and printed: a run can be repeated, and every
 * commit covers new ground.
 */
fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(process.env.CFS_CASES_SEED) });

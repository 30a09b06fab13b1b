import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { FAST_DISK } from './test/harness/fast-disk.ts';

// Seed of all generated cases: made from the commit, so that it is judged the same wherever it is tested and the next one covers
// new ground. CFS_CASES_SEED=N repeats a run, CFS_CASES_SEED=random explores.
const wanted = process.env.CFS_CASES_SEED;
const commit = spawnSync('git', ['rev-parse', '--short=7', 'HEAD'], { encoding: 'utf8' }).stdout?.trim();
const ofCommit = Number.parseInt(commit || '1', 16);
const seed = wanted === 'random' ? Math.floor(Math.random() * 0x7fff_ffff) : Number(wanted ?? ofCommit);
if (!Number.isSafeInteger(seed)) throw new Error(`CFS_CASES_SEED is neither a number nor random: ${wanted}`);
console.info(`seed of generated cases: CFS_CASES_SEED=${seed}`);
const env = { CFS_CASES_SEED: String(seed) };

// What the compiler is told belongs to what it compiled.
const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const told = createHash('sha1')
  .update(readFileSync(here('tsconfig.json')))
  .digest('hex')
  .slice(0, 12);
const fsModuleCachePath = here(`node_modules/.cache/vitest-${told}`);

// A condition is waited for, not a time: a second is nothing on a busy machine.
const POLL = { timeout: 25_000 };

// `unit` needs no build and no mount. `mount` runs the built dist/ in child processes: nothing here touches a mount from
// the thread that answers it.
export default defineConfig({
  test: {
    // Each mount file is a run of its own: what one of them compiled need not be compiled by all. Kept by content.
    experimental: { fsModuleCache: !process.argv.some((word) => word.startsWith('--coverage')), fsModuleCachePath },
    coverage: { provider: 'v8', include: ['src/**'], reporter: ['text-summary', 'lcovonly'] },
    projects: [
      {
        test: {
          name: 'unit',
          setupFiles: ['test/seed.ts'],
          // Thousands of small stores and servers; CI has them on a disk (.ci/run).
          env: { ...env, TMPDIR: process.env.TMPDIR ?? FAST_DISK },
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.mount.test.ts'],
          pool: 'threads',
          isolate: false,
          // By default one less than processors, and half of a small machine looks on. A quarter of the time is waiting.
          maxWorkers: availableParallelism() + 1,
          // Against hanging only: with a database and an object store, a busy machine needs minutes for what takes seconds.
          testTimeout: 120_000,
          hookTimeout: 120_000,
          expect: { poll: POLL },
        },
      },
      {
        test: {
          name: 'mount',
          setupFiles: ['test/seed.ts'],
          env,
          include: ['test/**/*.mount.test.ts'],
          pool: 'forks',
          fileParallelism: false,
          testTimeout: Number(process.env.CFS_TEST_MS_MAX ?? 120_000),
          // A server, a sign-in and a mount: seconds, and a minute where ten others want the processors.
          hookTimeout: 180_000,
          expect: { poll: POLL },
        },
      },
      {
        // Run inside of a second kernel, by test/nfs/kernel-client.mount.test.ts.
        test: {
          name: 'guest',
          setupFiles: ['test/seed.ts'],
          env,
          include: ['test/nfs/guest/*.ts'],
          pool: 'forks',
          fileParallelism: false,
          isolate: false, // what one file has loaded serves the next: system calls are slow there
          testTimeout: 240_000,
          hookTimeout: 300_000,
          expect: { poll: POLL },
        },
      },
    ],
  },
});

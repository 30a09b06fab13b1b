import { defineConfig, type Plugin } from 'vitest/config';
import type { Ablation } from './harness/ablation.ts';

/** Unit tests over sources in which one text has another in its place: CFS_ABLATION, of test/ablations.test.ts. */

const { file, from, to, test } = JSON.parse(process.env.CFS_ABLATION ?? '{}') as Ablation;

const ablation: Plugin = {
  name: 'ablation',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith(`/${file}`)) return undefined;
    if (code.split(from).length !== 2) throw new Error(`${file} has not exactly once: ${from}`);
    return code.replace(from, () => to);
  },
};

export default defineConfig({
  plugins: [ablation],
  test: {
    env: { CFS_CASES_SEED: '1' },
    setupFiles: ['test/seed.ts'],
    include: [test],
    pool: 'threads',
    testTimeout: 120_000,
  },
});

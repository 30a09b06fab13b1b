import { defineConfig, type Plugin } from 'vitest/config';

/** Unit tests over sources in which one text has another in its place: CFS_ABLATION, of test/ablations.test.ts. */

const { file, text, by, tests } = JSON.parse(process.env.CFS_ABLATION ?? '{}');

const ablation: Plugin = {
  name: 'ablation',
  enforce: 'pre',
  transform(code, id) {
    if (!id.endsWith(`/${file}`)) return undefined;
    if (code.split(text).length !== 2) throw new Error(`${file} has not exactly once: ${text}`);
    return code.replace(text, () => by);
  },
};

export default defineConfig({
  plugins: [ablation],
  test: {
    env: { CFS_CASES_SEED: '1' },
    setupFiles: ['test/seed.ts'],
    include: tests,
    pool: 'threads',
    testTimeout: 120_000,
  },
});

import { defineConfig } from 'vitest/config';

// `unit` needs no build and no mount. `mount` runs the built dist/ in child processes: nothing here touches a mount from
// the thread that answers it.
export default defineConfig({
  test: {
    coverage: { provider: 'v8', include: ['src/**'], reporter: ['text-summary', 'lcovonly'] },
    projects: [
      {
        test: {
          name: 'unit',
          setupFiles: ['test/seed.ts'],
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.mount.test.ts'],
          pool: 'threads',
          isolate: false,
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: 'mount',
          setupFiles: ['test/seed.ts'],
          include: ['test/**/*.mount.test.ts'],
          pool: 'forks',
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});

import { describe, expect, test } from 'vitest';
import { runGuestTests } from '../harness/guest-tests.ts';
import { titled } from '../harness/requirement.ts';
import { missingUserModeLinux } from '../harness/user-mode-linux.ts';

// Whole test files over `--binding nfs` with the NFS client of a real Linux kernel. They run in user-mode Linux, with a server and mounts of
// their own.

const missing = missingUserModeLinux();
const FILES = ['mount', 'conformance', 'model', 'kills', 'programs'] as const;
/** `npm run soak -- nfs`: all amounts are larger, and each file has a kernel of its own, so that a hanging one does not affect the others. */
const isWhole = process.env.CFS_NFS_WHOLE === '1';
const KERNELS: readonly (readonly string[])[] = isWhole ? FILES.map((file) => [file]) : [FILES];
const TIMEOUT_MS = isWhole ? 10_800_000 : 900_000;
/** 100 entries are several replies of the server for a folder. */
const ENV = isWhole
  ? { CFS_CONFORMANCE_ENTRIES: '300', CFS_NFS_STEPS: '5000', CFS_COMMITS: '20' }
  : { CFS_CONFORMANCE_ENTRIES: '100' };

describe.skipIf(missing !== null)(titled('the NFS client of a Linux kernel', missing), () => {
  test.each(KERNELS.map((files) => ({ files, names: files.join(', ') })))(
    'passes the guest files $names',
    { timeout: TIMEOUT_MS + 30_000 },
    async ({ files }) => {
      const paths = files.map((name) => `test/nfs/guest/${name}.ts`);
      const { passed, others, output } = await runGuestTests(paths, { env: ENV, timeoutMs: TIMEOUT_MS });

      expect(others, output).toEqual([]);
      expect(passed).toBeGreaterThan(0);
      for (const line of output.split('\n'))
        if (/^figures: | test\/nfs\/guest\/.* \d+ms$/.test(line)) console.info(line);
    },
  );
});

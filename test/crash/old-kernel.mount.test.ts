import { describe, expect, test } from 'vitest';
import { runGuestTests } from '../harness/guest-tests.ts';
import { titled } from '../harness/requirement.ts';
import { missingUserModeLinux } from '../harness/user-mode-linux.ts';
import { missingForContinuity } from './killed-under-load.ts';

// `--continuity` on Debian's user-mode Linux 6.1, which has no FUSE_NOTIFY_RESEND: whole test files run there, with a server and mounts of their
// own. A process takes several seconds to start in it: only `npm run soak -- continuity` has the time.

const DEATHS = process.env.CFS_TEST_OLD_KERNEL_DEATHS;
const RUN_MS_MAX = 3_600_000;
const missing =
  (DEATHS === undefined ? 'npm run soak -- continuity' : null) ?? missingUserModeLinux() ?? missingForContinuity();

describe.skipIf(missing !== null)(titled('--continuity on Linux 6.1', missing), () => {
  test.each([
    {
      file: 'kept-requests',
      names: 'killed under load',
      env: { CFS_TEST_DEATHS: DEATHS, CFS_TEST_CALLS_BETWEEN: '300' },
    },
    { file: 'continuity-programs', names: '', env: { CFS_TEST_DEATHS: DEATHS, CFS_FILES: '100' } },
    { file: 'continuity-names', names: "names over deaths on 'this kernel'", env: {} },
    { file: 'each-operation', names: "requests are 'kept'", env: { CFS_TEST_ROUNDS: '1' } },
  ])('passes the tests of $file', { timeout: RUN_MS_MAX + 30_000 }, async ({ file, names, env }) => {
    const options = { names, env: env as Record<string, string>, project: 'mount', timeoutMs: RUN_MS_MAX } as const;
    const { passed, others, output } = await runGuestTests([`test/crash/${file}.mount.test.ts`], options);

    for (const line of output.split('\n')) if (line.startsWith('figures: ')) console.info(line);
    expect(others, output).toEqual([]);
    expect(passed).toBeGreaterThan(0);
  });
});

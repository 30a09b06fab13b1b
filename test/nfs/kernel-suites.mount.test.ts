import { describe, expect, test } from 'vitest';
import { runGuestTests } from '../harness/guest-tests.ts';
import { titled } from '../harness/requirement.ts';
import { missingUserModeLinux } from '../harness/user-mode-linux.ts';

// Whole test files over `--binding nfs` with the NFS client of a real Linux kernel. They run in user-mode Linux, with a server and mounts of
// their own.

const missing = missingUserModeLinux();
const isWhole = process.env.CFS_NFS_WHOLE === '1';

describe.skipIf(missing !== null)(titled('the NFS client of a Linux kernel', missing), () => {
  test.each([
    // 300: several replies of the server for a folder.
    ['conformance', { CFS_CONFORMANCE_ENTRIES: '300' }, 900_000],
    ['model', { CFS_NFS_STEPS: isWhole ? '5000' : '300' }, isWhole ? 10_800_000 : 600_000],
    ['kills', { CFS_NFS_KILLS: isWhole ? '20' : '3' }, isWhole ? 1_800_000 : 600_000],
    ['programs', { CFS_COMMITS: isWhole ? '20' : '8' }, isWhole ? 1_800_000 : 600_000],
  ] as const)('passes test/nfs/guest/%s.ts', { timeout: 10_830_000 }, async (name, env, timeoutMs) => {
    const { passed, others, output } = await runGuestTests(`test/nfs/guest/${name}.ts`, { env, timeoutMs });

    expect(others, output).toEqual([]);
    expect(passed).toBeGreaterThan(0);
    for (const line of output.split('\n')) if (line.startsWith('figures: ')) console.info(line);
  });
});

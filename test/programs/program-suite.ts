import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, onTestFailed, test } from 'vitest';
import type { Ground } from '../harness/ground.ts';
import { PROGRAM_SCENARIOS } from './program-scenarios.ts';

/** Declares one vitest test per scenario, each in a folder of its own on one ground. */
export function programSuite(
  title: string,
  options: {
    open(): Promise<Ground>;
    close(ground: Ground): Promise<void>;
    onFailure?(ground: Ground): Promise<void>;
    /** Declares more tests on the same ground, after the programs. */
    afterwards?(ground: () => Ground): void;
    /** Without this nothing can run: all is skipped in words. */
    missing?: string | null;
  },
): void {
  const { missing = null } = options;
  describe.skipIf(missing !== null)(missing === null ? title : `${title} (needs: ${missing})`, () => {
    let ground: Ground;
    beforeAll(async () => {
      ground = await options.open();
    });
    afterAll(async () => {
      if (ground !== undefined) await options.close(ground);
    });

    for (const [index, { name, needs, script, timeoutMs = 60_000 }] of PROGRAM_SCENARIOS.entries()) {
      const absent = needs.filter((program) => !installed(program));
      if (absent.length > 0) {
        test.skip(`${name} (needs: ${absent.join(', ')})`, () => {});
        continue;
      }
      test(name, { timeout: timeoutMs + 10_000 }, async () => {
        onTestFailed(async () => options.onFailure?.(ground));
        await ground.run(`mkdir p${index}; cd p${index}; set -x; ${script}`, { timeoutMs });
      });
    }

    options.afterwards?.(() => ground);
  });
}

function installed(program: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' }).status === 0;
}

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
    /** More tests on the same ground, after the programs. */
    then?(ground: () => Ground): void;
  },
): void {
  describe(title, () => {
    let ground: Ground;
    beforeAll(async () => {
      ground = await options.open();
    });
    afterAll(async () => {
      if (ground !== undefined) await options.close(ground);
    });

    for (const [index, { name, needs, script, timeoutMs = 60_000 }] of PROGRAM_SCENARIOS.entries()) {
      const missing = needs.filter((program) => !installed(program));
      if (missing.length > 0) {
        test.skip(`${name} (needs: ${missing.join(', ')})`, () => {});
        continue;
      }
      test(name, { timeout: timeoutMs + 10_000 }, async () => {
        onTestFailed(async () => options.onFailure?.(ground));
        await ground.run(`mkdir p${index}; cd p${index}; set -x; ${script}`, { timeoutMs });
      });
    }

    options.then?.(() => ground);
  });
}

function installed(program: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' }).status === 0;
}

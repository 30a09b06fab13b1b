import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import type { Ground } from '../harness/ground.ts';
import { PROGRAM_SCENARIOS } from './program-scenarios.ts';

/** Why a scenario fails on a ground, and the message by which that shows. */
export interface ProgramLimit {
  readonly reason: string;
  readonly message: RegExp;
}

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
    /** Scenarios that fail there, by name. */
    fails?: Readonly<Record<string, ProgramLimit>>;
    /** The scenarios to run; all by default. */
    wants?(name: string): boolean;
  },
): void {
  const { missing = null, fails = {}, wants = () => true } = options;
  const unknown = Object.keys(fails).filter((name) => !PROGRAM_SCENARIOS.some((scenario) => scenario.name === name));
  if (unknown.length > 0) throw new Error(`no such scenarios: ${unknown.join('; ')}`);
  describe.skipIf(missing !== null)(missing === null ? title : `${title} (needs: ${missing})`, () => {
    let ground: Ground;
    beforeAll(async () => {
      ground = await options.open();
    });
    afterAll(async () => {
      if (ground !== undefined) await options.close(ground);
    });

    for (const [index, { name, needs, script, timeoutMs = 60_000 }] of PROGRAM_SCENARIOS.entries()) {
      if (!wants(name)) continue;
      const absent = needs.filter((program) => !installed(program));
      if (absent.length > 0) {
        test.skip(`${name} (needs: ${absent.join(', ')})`, () => {});
        continue;
      }
      const limit = fails[name];
      const title = limit === undefined ? name : `${name} — does not hold: ${limit.reason}`;
      test(title, { timeout: timeoutMs + 10_000 }, async () => {
        onTestFailed(async () => options.onFailure?.(ground));
        const run = ground.run(`mkdir p${index}; cd p${index}; set -x; ${script}`, { timeoutMs });
        if (limit === undefined) await run;
        else await expect(run, 'holds now: take it off the list').rejects.toThrow(limit.message);
      });
    }

    options.afterwards?.(() => ground);
  });
}

function installed(program: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' }).status === 0;
}

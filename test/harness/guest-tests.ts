import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { shellWord, shellWords } from '../../src/base/shell-word.ts';
import { PROJECT } from '../imports.ts';
import { runInUserModeLinux } from './user-mode-linux.ts';

interface Results {
  readonly testResults: readonly {
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

/**
 * Runs test files in user-mode Linux.
 *
 * @param options.env in addition to `CFS_…` of this process
 * @param options.project of vitest.config.ts
 * @param options.names a regular expression: only the tests with such names
 * @returns the number of passed tests, the names of the others, and what the run printed
 */
export async function runGuestTests(
  files: readonly string[],
  options: {
    readonly timeoutMs: number;
    readonly env?: Readonly<Record<string, string>>;
    readonly project?: 'guest' | 'mount';
    readonly names?: string;
  },
): Promise<{ readonly passed: number; readonly others: readonly string[]; readonly output: string }> {
  const folder = mkdtempSync(path.join(tmpdir(), 'cfs-guest-'));
  const report = path.join(folder, 'report.json');
  const own = Object.entries(process.env).filter(([name]) => name.startsWith('CFS_') || name === 'CI');
  const env = { ...Object.fromEntries(own), ...options.env, TMPDIR: '/run' };
  const { project = 'guest', names } = options;
  const words = ['run', '--project', project, '--no-color', ...(names === undefined ? [] : ['-t', names])];
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const script = [
    `cd ${shellWord(PROJECT)}`,
    ...Object.entries(env).map(([name, value]) => `export ${name}=${shellWord(value ?? '')}`),
    shellWords([process.execPath, 'node_modules/vitest/vitest.mjs', ...words, ...reporters, ...files]),
  ].join('\n');
  try {
    const { output } = await runInUserModeLinux(script, folder, options);
    return { ...counted(report, new RegExp(names ?? '')), output };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function counted(report: string, names: RegExp): { passed: number; others: readonly string[] } {
  try {
    const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as Results;
    const tests = testResults
      .flatMap(({ assertionResults }) => assertionResults)
      .filter(({ fullName }) => names.test(fullName));
    const others = tests.filter(({ status }) => status !== 'passed');
    return { passed: tests.length - others.length, others: others.map(({ fullName }) => fullName) };
  } catch {
    return { passed: 0, others: ['no results'] };
  }
}

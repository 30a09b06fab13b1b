import { spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { failuresIn } from '../harness/ablation.ts';
import { tellFigures } from '../harness/figures.ts';
import { titled } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';
import { ABLATIONS, type ContinuityAblation } from './ablations.ts';
import { missingForContinuity } from './killed-under-load.ts';

// In a copy of the project, each safeguard is switched off, and its tests must fail. Each builds the copy and runs tests of its own, some of which
// fail after half a minute: only `npm run soak -- ablations` has the time.

const ONLY = process.env.CFS_TEST_ABLATIONS;
const TEST_MS_MAX = 60_000;
const FOLDERS = ['bin', 'desktop', 'dist', 'native-deps', 'scripts', 'src', 'test'];

const missing = (ONLY === undefined ? 'npm run soak -- ablations' : null) ?? missingForContinuity();
describe.skipIf(missing !== null)(titled('ablations of --continuity', missing), () => {
  const copy = mkdtempSync(join(tmpdir(), 'cfs-ablations-'));
  beforeAll(() => {
    const files = readdirSync(PROJECT, { withFileTypes: true }).filter((entry) => entry.isFile());
    for (const name of [...FOLDERS, ...files.map((file) => file.name)])
      cpSync(join(PROJECT, name), join(copy, name), { recursive: true });
    symlinkSync(join(PROJECT, 'node_modules'), join(copy, 'node_modules'));
  });
  afterAll(() => rmSync(copy, { recursive: true, force: true }));

  const chosen = ABLATIONS.filter(({ safeguard }) => new RegExp(ONLY ?? '').test(safeguard));
  test.each(chosen)('without a safeguard a test fails: $safeguard', { timeout: 10 * TEST_MS_MAX }, async (ablation) => {
    const path = join(copy, ablation.file);
    const source = readFileSync(path, 'utf8');
    writeFileSync(
      path,
      source.replace(ablation.from, () => ablation.to),
    );
    try {
      await build(ablation);
      const failed = await failuresOf(ablation);
      tellFigures(`${ablation.safeguard}: ${failed.join('; ') || 'NO TEST FAILED'}`);
      expect(failed).not.toEqual([]);
    } finally {
      await endRest();
      writeFileSync(path, source);
      await build(ablation);
    }
  });

  /** Ends the processes of mounts that do not end without the safeguard. */
  async function endRest(): Promise<void> {
    const rest = () =>
      readdirSync('/proc')
        .filter((name) => /^\d+$/.test(name))
        .filter((pid) => commandLineOf(pid).includes(copy));
    await vi.waitUntil(
      () => {
        const pids = rest();
        for (const pid of pids) kill(Number(pid));
        return pids.length === 0;
      },
      { timeout: 30_000, interval: 50 },
    );
  }

  async function build({ file, test: path }: ContinuityAblation): Promise<void> {
    const isNative = file.endsWith('.c');
    if (!isNative && !path.endsWith('.mount.test.ts')) return; // unit tests read the sources
    const { code, output } = await run(isNative ? 'scripts/build-native.mjs' : 'scripts/bundle.mjs');
    expect(code, output).toBe(0);
  }

  async function failuresOf({ test: path, names }: ContinuityAblation): Promise<readonly string[]> {
    const report = join(copy, 'report.json');
    rmSync(report, { force: true });
    const project = path.endsWith('.mount.test.ts') ? 'mount' : 'unit';
    const words = ['--project', project, '--reporter=json', `--outputFile.json=${report}`, path];
    const { output } = await run('node_modules/vitest/vitest.mjs', 'run', ...words, '-t', names ?? '');
    expect(existsSync(report), output).toBe(true); // the file could be read
    return failuresIn(report);
  }

  async function run(...words: readonly string[]): Promise<{ code: number | null; output: string }> {
    const env = { ...process.env, CFS_TEST_MS_MAX: String(TEST_MS_MAX) };
    const limit = { timeout: 8 * TEST_MS_MAX, killSignal: 'SIGKILL' } as const;
    const child = spawn(process.execPath, words, { cwd: copy, env, stdio: ['ignore', 'pipe', 'pipe'], ...limit });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (text) => {
        output += text;
      });
    const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
    return { code, output };
  }
});

/** Empty for a process that has ended. */
function commandLineOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}

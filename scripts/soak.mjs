// `npm run soak`: the long runs. The test files of `npm test` with larger amounts; all parts in sequence, or one.
//
//   npm run soak                    everything: hours
//   npm run soak -- clients         two mounts and the web: 200 seeds
//   npm run soak -- continuity      300 deaths of the mount process under load, with --continuity, 1,404 in 13 operations, git, cp, tar, rsync, sqlite3
//   npm run soak -- standby         200 deaths with --standby=on
//   npm run soak -- ablations       without each safeguard of --continuity a test fails
//   npm run soak -- crashes 2000    SIGKILL at every step and at any moment: 2,000 kills; 1,000 by default
//   npm run soak -- kernel          one mount for a minute: 32 threads of mixed calls, 8 finds
//   npm run soak -- model           1,000,000 operations beside a plain directory
//   npm run soak -- nfs             1,000,000 mutated records, a walk of 10,000 folders, 20 seeds × 5,000 operations, 20 deaths, 50 starts, for NFS
//   npm run soak -- serve           10,000 random operations on both back ends of the service, and copies between them
//   npm run soak -- sync            1,000,000 generated histories of two clients and a service that loses requests
//   npm run soak -- packages        the Debian package in bare Debian 12 and 13 roots, and that for arm64 under qemu-user
//   npm run soak -- programs        cp, tar, rsync and zip of 10,000 files, 500 commits, sqlite3 killed 25 times
//   npm run soak -- upgrade         100 upgrades of a running mount with --continuity
//   npm run soak -- hostile         a service that sends arbitrary answers: 500 seeds, 100,000 histories of listings
//   npm run soak -- desktop         2,000 pictures in a folder, an eject during an upload on a slow line, Nautilus
//   npm run soak -- disk            a disk that is full at each step of the store that needs room
//   npm run soak -- hanging         saves beside a stopped server and a listing of 100,000 entries
//   npm run soak -- conformance     the conformance suite with 100,000 entries in a folder
//
// Each part reports the passed tests while it runs. At its end it reports the amounts done and the failed tests. New seeds start from a
// random one, which is printed: CFS_FIRST_SEED=N repeats the run, CFS_SEED=N a single seed. Add a seed that failed to the list in its test
// file.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { headComment } from './measure/head-comment.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
const FIGURES = 'figures: '; // test/harness/figures.ts

/** `files` and `project` of vitest (one or several; default: `mount`); `environment(amount)`: the variables that set the amount. */
const parts = new Map(
  await Promise.all(
    readdirSync(join(root, 'scripts/soak'))
      .filter((name) => name.endsWith('.mjs'))
      .sort()
      .map(async (name) => /** @type {const} */ ([name.slice(0, -'.mjs'.length), await import(`./soak/${name}`)])),
  ),
);

const [name, amount] = process.argv.slice(2);
if (name === '--help' || name === '-h') {
  console.log(headComment(import.meta.url));
  process.exit(0);
}
if (name !== undefined && !parts.has(name)) {
  console.error(`no such part: ${name} (there are ${[...parts.keys()].join(', ')})`);
  process.exit(2);
}
if (amount?.startsWith('-')) {
  console.error(`no option ${amount}; npm run soak -- --help describes the parts`);
  process.exit(2);
}
const firstSeed = process.env.CFS_FIRST_SEED ?? String(1_000_000 + Math.floor(Math.random() * 1_000_000_000));

/**
 * Shows what a command says.
 * @returns {Promise<{ code: number, figures: string[] }>} its exit code, and its lines of figures
 * @param {string[]} args
 * @param {NodeJS.ProcessEnv} env
 */
function run(args, env) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, {
      cwd: root,
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    /** @type {string[]} */
    const figures = [];
    createInterface({ input: child.stdout }).on('line', (line) => {
      console.log(line);
      if (line.startsWith(FIGURES)) figures.push(line.slice(FIGURES.length));
    });
    child.on('close', (code) => resolve({ code: code ?? 1, figures }));
    child.on('error', () => resolve({ code: 1, figures }));
  });
}

/** @param {string} report path of what vitest's json reporter wrote */
function outcomeIn(report) {
  try {
    /** @type {{ name: string, status: string, assertionResults: { status: string, fullName: string }[] }[]} */
    const files = JSON.parse(readFileSync(report, 'utf8')).testResults;
    const tests = files.flatMap((file) => file.assertionResults);
    const namesOf = (/** @type {string} */ wanted) =>
      tests.filter(({ status }) => status === wanted).map(({ fullName }) => fullName);
    const failed = namesOf('failed');
    // A failed hook does not appear among the tests.
    const broken = files.filter(
      ({ status, assertionResults }) =>
        status === 'failed' && !assertionResults.some((test) => test.status === 'failed'),
    );
    failed.push(...broken.map((file) => `${file.name.slice(root.length)}: outside of its tests`));
    return { passed: namesOf('passed').length, failed };
  } catch {
    return { passed: 0, failed: ['no results'] };
  }
}

if ((await run(['scripts/bootstrap.mjs'], {})).code !== 0) process.exit(1);
const scratch = mkdtempSync(join(tmpdir(), 'cfs-soak-'));
const summary = [];
let isSound = true;
for (const [part, { files, project = 'mount', environment }] of parts) {
  if (name !== undefined && part !== name) continue;
  console.log(`\n== soak: ${part} (CFS_FIRST_SEED=${firstSeed})`);
  const started = performance.now();
  const report = join(scratch, `${part}.json`);
  const reporters = ['--no-color', '--reporter=verbose', '--reporter=json', `--outputFile.json=${report}`];
  const { code, figures } = await run(
    [
      'node_modules/vitest/vitest.mjs',
      'run',
      ...[project].flat().map((each) => `--project=${each}`),
      ...reporters,
      ...files,
    ],
    { CFS_FIRST_SEED: firstSeed, ...environment(amount) },
  );
  const { passed, failed } = outcomeIn(report);
  if (code !== 0) isSound = false;
  summary.push(
    ...figures.map((line) => `  ${line}`),
    ...failed.map((test) => `  FAILED ${test}`),
    `${part}: ${code === 0 ? 'held' : 'FAILED'} after ${Math.round((performance.now() - started) / 1000)} s, ` +
      `${passed} tests passed, ${failed.length} failed (CFS_FIRST_SEED=${firstSeed})`,
  );
}
rmSync(scratch, { recursive: true, force: true });
console.log(`\n${summary.join('\n')}`);
process.exit(isSound ? 0 : 1);
